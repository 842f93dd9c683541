//! Which bookies there are, and which of them new entries go to.
//!
//! Bookies that take writes have an ephemeral key below `available`; its value says under which address they listen. A bookie that
//! failed is in quarantine for a while: it gets nothing new unless there are too few others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_metadata::Item;
use pharos_runtime::{Nanos, clock};
use prost::Message;

use crate::machine::Placement;
use crate::metadata::BookieId;

/// The endpoint that speaks the bookie protocol.
const PROTOCOL: &str = "bookie-rpc";

#[derive(Clone, PartialEq, Message)]
struct ServiceInfo {
    #[prost(message, repeated, tag = "6")]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(string, required, tag = "1")]
    id: String,
    #[prost(int32, required, tag = "2")]
    port: i32,
    #[prost(string, required, tag = "3")]
    host: String,
    #[prost(string, required, tag = "4")]
    protocol: String,
}

/// The bookies of a cluster, as last heard.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// The lock is held for one look or change.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Those that take writes.
    writable: BTreeMap<BookieId, String>,
    /// Addresses of those that were there once; entries are still read from them.
    addresses: BTreeMap<BookieId, String>,
    quarantine: BTreeMap<BookieId, Nanos>,
    /// Turns the order from one choice to the next.
    turn: usize,
}

impl Directory {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands below `available/` now: `prefix` is that key with its slash.
    pub(crate) fn update(&self, prefix: &str, items: &[Item]) {
        let mut known = self.lock();
        known.writable.clear();
        for item in items {
            let Some(name) = item.key.strip_prefix(prefix) else {
                continue;
            };
            // `readonly/…` are not for new entries, but may be read.
            let (name, is_writable) = match name.strip_prefix("readonly/") {
                Some(name) => (name, false),
                None => (name, name != "readonly"),
            };
            let bookie = BookieId::new(name);
            let address = address_in(&item.value).unwrap_or_else(|| name.to_owned());
            known.addresses.insert(bookie.clone(), address.clone());
            if is_writable {
                known.writable.insert(bookie, address);
            }
        }
    }

    /// Where the bookie listens: `host:port`, as far as is known.
    pub(crate) fn address(&self, bookie: &BookieId) -> String {
        let address = self.lock().addresses.get(bookie).cloned();
        address.unwrap_or_else(|| bookie.as_str().to_owned())
    }

    /// How many take writes.
    pub(crate) fn count(&self) -> usize {
        self.lock().writable.len()
    }

    /// The bookie gets nothing new for a while.
    pub(crate) fn quarantine(&self, bookie: &BookieId, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = Nanos(clock::now().0.saturating_add(nanos));
        self.lock().quarantine.insert(bookie.clone(), until);
    }

    /// Different bookies for a new ensemble; `None` when there are too few.
    pub(crate) fn ensemble(&self, size: usize) -> Option<Vec<BookieId>> {
        let mut known = self.lock();
        let mut chosen = known.in_turn(|_| true);
        chosen.truncate(size);
        (chosen.len() == size).then_some(chosen)
    }
}

impl Known {
    /// Those that take writes: first the healthy ones, each time from another one on.
    fn in_turn(&mut self, is_wanted: impl Fn(&BookieId) -> bool) -> Vec<BookieId> {
        let now = clock::now();
        self.quarantine.retain(|_, until| now < *until);
        let mut bookies: Vec<_> = self.writable.keys().filter(|b| is_wanted(b)).cloned().collect();
        if !bookies.is_empty() {
            let turn = self.turn % bookies.len();
            bookies.rotate_left(turn);
            self.turn = self.turn.wrapping_add(1);
        }
        bookies.sort_by_key(|bookie| self.quarantine.contains_key(bookie));
        bookies
    }
}

impl Placement for &Directory {
    fn replace(&mut self, ensemble: &[BookieId], _: usize, excluded: &[BookieId]) -> Option<BookieId> {
        let is_free = |bookie: &BookieId| !ensemble.contains(bookie) && !excluded.contains(bookie);
        self.lock().in_turn(is_free).into_iter().next()
    }
}

/// `host:port` as a bookie says it of itself.
fn address_in(value: &[u8]) -> Option<String> {
    let info = ServiceInfo::decode(value).ok()?;
    let endpoint = info
        .endpoints
        .into_iter()
        .find(|endpoint| endpoint.protocol == PROTOCOL)?;
    Some(format!("{}:{}", endpoint.host, endpoint.port))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pharos_metadata::Version;

    use super::*;

    fn item(name: &str, value: &[u8]) -> Item {
        Item {
            key: format!("ledgers/available/{name}"),
            value: Bytes::copy_from_slice(value),
            version: Version(1),
        }
    }

    #[test]
    fn a_bookie_says_where_it_listens() {
        // As Apache's bookies register themselves.
        let value = b"2#\n\x06bookie\x10\x8d\xb5\x01\x1a\x09127.0.0.1\"\nbookie-rpc";
        assert_eq!(address_in(value).unwrap(), "127.0.0.1:23181");
        let directory = Directory::default();
        directory.update(
            "ledgers/available/",
            &[
                item("one", value),
                item("127.0.0.1:7", b""),
                item("readonly/127.0.0.1:8", b""),
                item("readonly", b""),
            ],
        );
        assert_eq!(directory.count(), 2);
        let address = |name| directory.address(&BookieId::new(name));
        for (name, expected) in [
            ("one", "127.0.0.1:23181"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("127.0.0.1:8", "127.0.0.1:8"),
            // Never heard of.
            ("127.0.0.1:9", "127.0.0.1:9"),
        ] {
            assert_eq!(address(name), expected);
        }
    }

    #[test]
    fn quarantine_is_for_when_there_are_others() {
        let directory = Directory::default();
        directory.update(
            "ledgers/available/",
            &["a:1", "b:1", "c:1"].map(|name| item(name, b"")),
        );
        assert!(directory.ensemble(4).is_none());
        let a = BookieId::new("a:1");
        directory.quarantine(&a, Duration::from_secs(60));
        for _ in 0..9 {
            assert!(!directory.ensemble(2).unwrap().contains(&a));
        }
        assert!(directory.ensemble(3).unwrap().contains(&a));
        let (b, c) = (BookieId::new("b:1"), BookieId::new("c:1"));
        let replaced = (&directory).replace(&[a.clone(), b.clone()], 0, std::slice::from_ref(&a));
        assert_eq!(replaced, Some(c.clone()));
        assert_eq!((&directory).replace(&[a, b, c], 0, &[]), None);
    }
}
