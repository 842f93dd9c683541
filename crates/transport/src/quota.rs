//! Quota of a holder, in number and rate: connections of an address or a role, consumers of a tenant, requests of a
//! role.
//!
//! A holder that was quiet may use [`BURST_SECONDS`] times its rate at once, so that all its clients can reconnect
//! together; from then on its rate applies. Holders that have nothing and were quiet are forgotten.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_runtime::{Nanos, clock};

/// The network part of an IPv6 address that one machine may have all to itself.
const NETWORK_MASK: u128 = !0 << 64;
/// Burst of a quiet holder, in seconds of its rate.
pub const BURST_SECONDS: u64 = 20;
/// Holders that are remembered before it is looked for some to forget.
const REMEMBERED_MIN: usize = 1024;
const SECOND: u64 = 1_000_000_000;

/// Unit that counts as one address: an IPv4 address, or the /64 network of an IPv6 address.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(at) => Ipv6Addr::from_bits(at.to_bits() & NETWORK_MASK).into(),
        v4 => v4,
    }
}

/// Requester whose requests count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Requester {
    /// All clients of a role.
    Role(Arc<str>),
    /// Clients without a role, by [`network_of`] their address.
    Network(IpAddr),
}

/// Limits of each holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// At once; 0 is no limit.
    pub held_max: usize,
    /// New ones a second; 0 is no limit.
    pub rate_max: u32,
}

/// Reason why a holder gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Number limit reached.
    #[error("{0} are open, which is as many as may be")]
    TooMany(usize),
    /// Rate limit exceeded, per second.
    #[error("more than {0} came in a second")]
    TooFast(u32),
}

/// The holders. Shared by all threads.
#[derive(Debug)]
pub struct Quota<K> {
    limits: QuotaLimits,
    refused: AtomicU64,
    table: Mutex<Holders<K>>,
}

#[derive(Debug)]
struct Holders<K> {
    holders: HashMap<K, Allowance>,
    /// With so many it is looked for some to forget.
    crowded: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    held: usize,
    /// Time at which the used allowance is replenished at its rate.
    paid_until: u64,
}

/// Held unit of a quota; given back when this is dropped.
#[derive(Debug)]
pub struct QuotaHold<K: Hash + Eq> {
    quota: Arc<Quota<K>>,
    holder: K,
}

impl<K: Hash + Eq> QuotaHold<K> {
    /// Holder of the unit.
    #[must_use]
    pub fn holder(&self) -> &K {
        &self.holder
    }
}

impl<K: Hash + Eq + Clone + Debug> Quota<K> {
    /// With these limits for each.
    #[must_use]
    pub fn new(limits: QuotaLimits) -> Arc<Self> {
        let table = Holders {
            holders: HashMap::new(),
            crowded: REMEMBERED_MIN,
        };
        Arc::new(Self {
            limits,
            refused: AtomicU64::new(0),
            table: Mutex::new(table),
        })
    }

    /// Number of refusals.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Adds one unit for a holder.
    ///
    /// # Errors
    /// [`QuotaError`]: a limit is reached.
    pub fn enter(self: &Arc<Self>, key: K) -> Result<QuotaHold<K>, QuotaError> {
        self.enter_at(key, clock::now())
    }

    /// Counts one that is not held, and refuses none: how long it has to wait for its turn. Those that come meanwhile wait longer.
    pub fn turn(&self, key: K) -> Duration {
        self.turn_at(key, clock::now())
    }

    fn turn_at(&self, key: K, now: Nanos) -> Duration {
        if self.limits.rate_max == 0 {
            return Duration::ZERO;
        }
        let mut table = self.lock();
        table.forget_some(now);
        table
            .holders
            .entry(key)
            .or_default()
            .turn(self.limits.rate_max, now)
    }

    fn enter_at(self: &Arc<Self>, key: K, now: Nanos) -> Result<QuotaHold<K>, QuotaError> {
        let quota = self.clone();
        if self.limits == QuotaLimits::default() {
            return Ok(QuotaHold { quota, holder: key });
        }
        let mut table = self.lock();
        table.forget_some(now);
        let holder = table.holders.entry(key.clone()).or_default();
        match holder.enter(self.limits, now) {
            Ok(()) => Ok(QuotaHold { quota, holder: key }),
            Err(error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

impl<K: Hash + Eq> Quota<K> {
    fn lock(&self) -> MutexGuard<'_, Holders<K>> {
        // A table is never left half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Holders<K> {
    /// In a table that has doubled; so each that comes pays for a look at two.
    fn forget_some(&mut self, now: Nanos) {
        if self.holders.len() >= self.crowded {
            self.holders.retain(|_, holder| !holder.is_quiet(now));
            self.crowded = (2 * self.holders.len()).max(REMEMBERED_MIN);
        }
    }
}

impl Allowance {
    fn enter(&mut self, limits: QuotaLimits, now: Nanos) -> Result<(), QuotaError> {
        if limits.held_max > 0 && self.held >= limits.held_max {
            return Err(QuotaError::TooMany(self.held));
        }
        if limits.rate_max > 0 {
            let paid_until = self.paid_until.max(now.0);
            if paid_until - now.0 >= BURST_SECONDS * SECOND {
                return Err(QuotaError::TooFast(limits.rate_max));
            }
            self.paid_until = paid_until + SECOND / u64::from(limits.rate_max);
        }
        self.held += 1;
        Ok(())
    }

    fn turn(&mut self, rate_max: u32, now: Nanos) -> Duration {
        let paid_until = self.paid_until.max(now.0);
        let beyond = (paid_until - now.0).saturating_sub(BURST_SECONDS * SECOND);
        self.paid_until = paid_until + SECOND / u64::from(rate_max);
        Duration::from_nanos(beyond)
    }

    fn is_quiet(self, now: Nanos) -> bool {
        self.held == 0 && self.paid_until <= now.0
    }
}

impl<K: Hash + Eq> Drop for QuotaHold<K> {
    fn drop(&mut self) {
        if self.quota.limits == QuotaLimits::default() {
            // Nothing is counted.
            return;
        }
        let mut table = self.quota.lock();
        if let Some(holder) = table.holders.get_mut(&self.holder) {
            holder.held = holder.held.saturating_sub(1);
            if holder.is_quiet(clock::now()) {
                table.holders.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(held_max: usize, rate_max: u32) -> Arc<Quota<u32>> {
        Quota::new(QuotaLimits { held_max, rate_max })
    }

    #[test]
    fn each_holder_has_its_own_count() {
        let quota = quota(2, 0);
        let first = quota.enter(1).unwrap();
        let _second = quota.enter(1).unwrap();
        assert_eq!(quota.enter(1).unwrap_err(), QuotaError::TooMany(2));
        let other = quota.enter(2).unwrap();
        drop(first);
        let _third = quota.enter(1).unwrap();
        drop(other);
        assert_eq!(quota.lock().holders.len(), 1, "one that has nothing is forgotten");
        assert_eq!(quota.refused_count(), 1);
    }

    #[test]
    fn a_quiet_holder_may_come_for_a_burst_and_then_at_its_rate() {
        let quota = quota(0, 10);
        let start = clock::now();
        let at = |tenths: u64| Nanos(start.0 + tenths * SECOND / 10);
        let burst = (0..1000).take_while(|_| quota.enter_at(1, at(0)).is_ok()).count();
        assert_eq!(burst as u64, 10 * BURST_SECONDS);
        assert_eq!(quota.enter_at(1, at(0)).unwrap_err(), QuotaError::TooFast(10));
        assert!(quota.enter_at(2, at(0)).is_ok(), "others are not touched");
        assert!(quota.enter_at(1, at(1)).is_ok());
        assert!(quota.enter_at(1, at(1)).is_err());
        let later = at(20 * 10 * BURST_SECONDS);
        let again = (0..1000).take_while(|_| quota.enter_at(1, later).is_ok()).count();
        assert_eq!(again as u64, 10 * BURST_SECONDS);
    }

    #[test]
    fn who_asks_too_fast_waits_for_a_turn_after_all_who_asked_before() {
        let quota = quota(0, 10);
        let start = clock::now();
        let at = |tenths: u64| Nanos(start.0 + tenths * SECOND / 10);
        let tenths = |count: u64| Duration::from_millis(100 * count);
        for _ in 0..=10 * BURST_SECONDS {
            assert_eq!(quota.turn_at(1, at(0)), Duration::ZERO);
        }
        assert_eq!(quota.turn_at(1, at(0)), tenths(1));
        assert_eq!(quota.turn_at(1, at(0)), tenths(2));
        assert_eq!(quota.turn_at(2, at(0)), Duration::ZERO, "others are not touched");
        assert_eq!(quota.turn_at(1, at(3)), Duration::ZERO);
        assert_eq!(quota.turn_at(1, at(3)), tenths(1));
    }

    #[test]
    fn holders_that_come_once_do_not_fill_the_table() {
        let quota = quota(5, 1000);
        let start = clock::now();
        for number in 0..20_000u32 {
            let now = Nanos(start.0 + u64::from(number) * SECOND / 100);
            drop(quota.enter_at(number, now));
        }
        assert!(quota.lock().holders.len() <= 2 * REMEMBERED_MIN);
    }

    #[test]
    fn without_limits_nothing_is_kept() {
        let quota = quota(0, 0);
        let held = quota.enter(1).unwrap();
        assert_eq!(held.holder(), &1);
        assert!(quota.lock().holders.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
