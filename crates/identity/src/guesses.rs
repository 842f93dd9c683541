//! Limit of wrong passwords per address.
//!
//! ```text
//!   attempt ─► a name that was right from this address before? ─► its own allowance
//!                                                        else ─► the allowance of the address
//!   an allowance that is used up: refused unseen, until time gives some of it back; what is right costs nothing
//! ```
//! Only passwords are counted: tokens and certificates cannot be guessed. An attacker behind a shared address
//! therefore locks out no client that presents one of these, and none whose password was right there before.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_runtime::{Nanos, clock};

/// Addresses, and names at addresses, that are remembered. With more, those go first that have their whole allowance.
const REMEMBERED_MAX: usize = 10_000;

/// The allowance of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuessLimits {
    /// Wrong passwords in `period`; 0 is no limit.
    pub failures_max: u32,
    /// After it the whole allowance is there again.
    pub period: Duration,
}

impl Default for GuessLimits {
    fn default() -> Self {
        Self {
            failures_max: 30,
            period: Duration::from_secs(60),
        }
    }
}

/// Allowances of addresses.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    limits: GuessLimits,
    table: Mutex<Allowances>,
}

/// `None` is for all names that were never right there.
type Guesser = (IpAddr, Option<Arc<str>>);

/// Time at which the used allowance is available again.
#[derive(Debug, Default)]
struct Allowances(HashMap<Guesser, u64>);

/// An attempt under way: it counts as wrong until it proves to be right.
#[derive(Debug)]
pub(crate) struct Attempt {
    name: Arc<str>,
    /// Cost of the attempt; `None`: nothing is counted.
    cost: Option<(Guesser, u64)>,
}

impl Guesses {
    pub(crate) fn new(limits: GuessLimits) -> Self {
        Self {
            limits,
            table: Mutex::default(),
        }
    }

    /// Begins an attempt with a password; `None`: not allowed now.
    pub(crate) fn begin(&self, from: Option<IpAddr>, name: &str) -> Option<Attempt> {
        self.begin_at(from, name, clock::now())
    }

    fn begin_at(&self, from: Option<IpAddr>, name: &str, now: Nanos) -> Option<Attempt> {
        let name: Arc<str> = name.into();
        let Some(address) = from.filter(|_| self.limits.failures_max > 0) else {
            return Some(Attempt { name, cost: None });
        };
        let period = u64::try_from(self.limits.period.as_nanos()).unwrap_or(u64::MAX);
        let cost = period / u64::from(self.limits.failures_max);
        let mut table = self.lock();
        let own = (address, Some(name.clone()));
        let who = match table.0.contains_key(&own) {
            true => own,
            false => (address, None),
        };
        let free_at = table.0.get(&who).copied().unwrap_or(0).max(now.0);
        if free_at - now.0 > period - cost {
            return None;
        }
        table.keep_small(now);
        table.0.insert(who.clone(), free_at + cost);
        Some(Attempt {
            name,
            cost: Some((who, cost)),
        })
    }

    /// Its password was right: it has cost nothing, and its name is known there from now on.
    pub(crate) fn was_right(&self, attempt: Attempt) {
        let Some((who, cost)) = attempt.cost else {
            return;
        };
        let mut table = self.lock();
        if let Some(free_at) = table.0.get_mut(&who) {
            *free_at = free_at.saturating_sub(cost);
        }
        table.0.entry((who.0, Some(attempt.name))).or_insert(0);
    }

    fn lock(&self) -> MutexGuard<'_, Allowances> {
        // A table is never left half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allowances {
    fn keep_small(&mut self, now: Nanos) {
        if self.0.len() < REMEMBERED_MAX {
            return;
        }
        self.0.retain(|_, free_at| *free_at > now.0);
        if self.0.len() >= REMEMBERED_MAX {
            // So many addresses guess at once. One who guesses from more than this many is not held by this.
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GuessLimits = GuessLimits {
        failures_max: 3,
        period: Duration::from_secs(30),
    };

    fn address(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    /// Returns the number of wrong passwords that are checked.
    fn tries(guesses: &Guesses, from: u8, name: &str, now: Nanos) -> usize {
        (0..100)
            .take_while(|_| guesses.begin_at(address(from), name, now).is_some())
            .count()
    }

    #[test]
    fn wrong_passwords_use_up_the_allowance_of_their_address_and_time_gives_it_back() {
        let guesses = Guesses::new(LIMITS);
        let start = clock::now();
        let at = |seconds: u64| Nanos(start.0 + seconds * 1_000_000_000);
        assert_eq!(tries(&guesses, 1, "ann", at(0)), 3);
        assert_eq!(tries(&guesses, 1, "bob", at(0)), 0, "whatever name is tried");
        assert_eq!(tries(&guesses, 2, "ann", at(0)), 3, "another address has its own");
        assert_eq!(tries(&guesses, 1, "ann", at(10)), 1);
        assert_eq!(tries(&guesses, 1, "ann", at(40)), 3);
    }

    #[test]
    fn what_is_right_costs_nothing_and_its_name_is_not_kept_out_by_others() {
        let guesses = Guesses::new(LIMITS);
        let now = clock::now();
        for _ in 0..10 {
            let attempt = guesses.begin_at(address(1), "ann", now).unwrap();
            guesses.was_right(attempt);
        }
        assert_eq!(tries(&guesses, 1, "eve", now), 3);
        assert_eq!(tries(&guesses, 1, "bob", now), 0);
        let attempt = guesses.begin_at(address(1), "ann", now).unwrap();
        guesses.was_right(attempt);
        assert_eq!(
            tries(&guesses, 1, "ann", now),
            3,
            "her own can be guessed at as often"
        );
    }

    #[test]
    fn without_a_limit_or_an_address_nothing_is_counted() {
        let unlimited = GuessLimits {
            failures_max: 0,
            ..LIMITS
        };
        assert_eq!(tries(&Guesses::new(unlimited), 1, "ann", clock::now()), 100);
        let guesses = Guesses::new(LIMITS);
        assert!((0..10).all(|_| guesses.begin(None, "ann").is_some()));
        assert!(guesses.lock().0.is_empty());
    }

    #[test]
    fn many_addresses_do_not_fill_the_memory() {
        let guesses = Guesses::new(LIMITS);
        let now = clock::now();
        for number in 0..30_000u32 {
            let from = Some(IpAddr::V4(number.into()));
            assert!(guesses.begin_at(from, "ann", now).is_some());
        }
        assert!(guesses.lock().0.len() <= REMEMBERED_MAX);
    }
}
