//! Directory of the bookies: addresses, racks, groups, free space and health.
//!
//! Bookies that take writes have an ephemeral key below `available`; its value holds their addresses. Operators write
//! racks and groups into the key `bookies`, as Pulsar's `bookies set-bookie-rack` does: `{group: {bookie: {"rack":
//! "/r/a"}}}`. A bookie that failed is in quarantine for a while: it gets nothing new unless there are too few
//! others. A bookie that returned an entry late or not at all counts as slow for a while: it is asked last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_ledger::Affinity;
use pharos_metadata::Item;
use pharos_runtime::{Nanos, clock};
use prost::Message;
use serde::Deserialize;

use crate::machine::Placement;
use crate::metadata::BookieId;
use crate::placement::{BookieOffer, PlacementOptions, RackPath};
use crate::quorum::Quorum;

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

/// A bookie as an operator describes it.
#[derive(Debug, Deserialize)]
struct BookieAddresses {
    #[serde(default)]
    rack: String,
}

/// The largest share of a bookie with much room, beside that of the one in the middle.
const SHARE_MAX: u64 = 3;

/// The bookies of a cluster, as last heard.
#[derive(Debug)]
pub(crate) struct Directory {
    options: PlacementOptions,
    /// The lock is held for one look or change.
    known: Mutex<KnownBookies>,
}

#[derive(Debug, Default)]
struct KnownBookies {
    /// Bookies that take writes.
    writable: BTreeSet<BookieId>,
    /// Addresses of those that were there once; entries are still read from them.
    addresses: BTreeMap<BookieId, String>,
    places: BTreeMap<BookieId, RackPath>,
    groups: BTreeMap<String, BTreeSet<BookieId>>,
    quarantine: BTreeMap<BookieId, Nanos>,
    slow: BTreeMap<BookieId, Nanos>,
    /// Free bytes of their disks.
    room: BTreeMap<BookieId, u64>,
    /// Credit per bookie. The one with the most is chosen next: each choice adds its share to every bookie, and takes
    /// the sum of all shares from the chosen one.
    credit: BTreeMap<BookieId, i64>,
}

/// Chooses bookies for one ledger.
pub(crate) struct Chooser<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) quorum: Quorum,
    pub(crate) affinity: Option<&'a Affinity>,
}

fn until(time: Duration) -> Nanos {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Nanos(clock::now().0.saturating_add(nanos))
}

impl Directory {
    pub(crate) fn new(options: PlacementOptions) -> Self {
        Self {
            options,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownBookies> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the writable bookies by the keys below `available/`; `prefix` is that key with its slash.
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
            known.addresses.insert(bookie.clone(), address);
            if is_writable {
                known.writable.insert(bookie);
            }
        }
    }

    /// Reads the racks and groups that operators configured.
    ///
    /// # Errors
    /// The text has another format; the previous state is kept.
    pub(crate) fn describe(&self, text: &[u8]) -> Result<(), serde_json::Error> {
        let described: BTreeMap<String, BTreeMap<String, BookieAddresses>> = match text {
            [] => BTreeMap::new(),
            text => serde_json::from_slice(text)?,
        };
        let mut known = self.lock();
        known.places.clear();
        known.groups.clear();
        for (group, bookies) in described {
            for (name, bookie) in bookies {
                let id = BookieId::new(&name);
                known.places.insert(id.clone(), RackPath::parse(&bookie.rack));
                known.groups.entry(group.clone()).or_default().insert(id);
            }
        }
        Ok(())
    }

    /// Returns the address of the bookie, `host:port`, as far as is known.
    pub(crate) fn address(&self, bookie: &BookieId) -> String {
        let address = self.lock().addresses.get(bookie).cloned();
        address.unwrap_or_else(|| bookie.as_str().to_owned())
    }

    /// Number of bookies that take writes.
    pub(crate) fn count(&self) -> usize {
        self.lock().writable.len()
    }

    /// Returns the bookies that take writes.
    pub(crate) fn writable(&self) -> Vec<BookieId> {
        self.lock().writable.iter().cloned().collect()
    }

    /// The bookie gets nothing new for a while.
    pub(crate) fn quarantine(&self, bookie: &BookieId, time: Duration) {
        self.lock().quarantine.insert(bookie.clone(), until(time));
    }

    /// The bookie is asked last for a while.
    pub(crate) fn mark_slow(&self, bookie: &BookieId, time: Duration) {
        self.lock().slow.insert(bookie.clone(), until(time));
    }

    pub(crate) fn is_slow(&self, bookie: &BookieId) -> bool {
        let known = self.lock();
        known.slow.get(bookie).is_some_and(|until| clock::now() < *until)
    }

    /// The bookie's disks have so many bytes left.
    pub(crate) fn has_room(&self, bookie: &BookieId, free: u64) {
        self.lock().room.insert(bookie.clone(), free);
    }
}

impl Chooser<'_> {
    /// Different bookies for a new ensemble. `None`: there are too few, or they stand too close.
    pub(crate) fn ensemble(&self) -> Option<Vec<BookieId>> {
        let mut known = self.directory.lock();
        let options = &self.directory.options;
        let ensemble = known.offers(options, self.affinity, |_| true).into_iter();
        let ensemble = ensemble
            .filter_map(|offer| options.ensemble(self.quorum, &offer))
            .next()?;
        known.charge(&ensemble);
        Some(ensemble)
    }
}

impl Placement for Chooser<'_> {
    fn replace(&mut self, ensemble: &[BookieId], position: usize, excluded: &[BookieId]) -> Option<BookieId> {
        let is_free = |bookie: &BookieId| !ensemble.contains(bookie) && !excluded.contains(bookie);
        let mut known = self.directory.lock();
        let options = &self.directory.options;
        let places: Vec<RackPath> = ensemble.iter().map(|bookie| known.place(bookie)).collect();
        let offers = known.offers(options, self.affinity, is_free).into_iter();
        let chosen = offers.filter_map(|offer| options.replacement(self.quorum, &places, position, &offer));
        let chosen = chosen.into_iter().next()?;
        known.charge(std::slice::from_ref(&chosen));
        Some(chosen)
    }
}

impl KnownBookies {
    fn place(&self, bookie: &BookieId) -> RackPath {
        self.places.get(bookie).cloned().unwrap_or_default()
    }

    /// Returns the candidates, best first; the second list is used if the first is not enough.
    fn offers(
        &mut self,
        options: &PlacementOptions,
        affinity: Option<&Affinity>,
        is_wanted: impl Fn(&BookieId) -> bool,
    ) -> Vec<Vec<BookieOffer>> {
        let now = clock::now();
        self.quarantine.retain(|_, until| now < *until);
        self.give_shares(options);
        let Some(affinity) = affinity else {
            return vec![self.offer(|bookie| is_wanted(bookie))];
        };
        let is_in = |groups: &[String], bookie: &BookieId| {
            let mut sets = groups.iter().filter_map(|group| self.groups.get(group));
            sets.any(|set| set.contains(bookie))
        };
        let first = self.offer(|bookie| is_wanted(bookie) && is_in(&affinity.primary, bookie));
        let second = self.offer(|bookie| {
            is_wanted(bookie) && !is_in(&affinity.primary, bookie) && is_in(&affinity.secondary, bookie)
        });
        let both = [first.clone(), second].concat();
        vec![first, both]
    }

    fn offer(&self, is_wanted: impl Fn(&BookieId) -> bool) -> Vec<BookieOffer> {
        let mut bookies: Vec<&BookieId> = self.writable.iter().filter(|bookie| is_wanted(bookie)).collect();
        let credit = |bookie: &BookieId| self.credit.get(bookie).copied().unwrap_or(0);
        bookies.sort_by_key(|bookie| std::cmp::Reverse(credit(bookie)));
        let candidate = |bookie: &BookieId| BookieOffer {
            bookie: bookie.clone(),
            place: self.place(bookie),
            is_quarantined: self.quarantine.contains_key(bookie),
        };
        bookies.into_iter().map(candidate).collect()
    }

    /// Returns the share of a bookie at each choice: the same for all, or by the free space on its disks.
    fn share(&self, options: &PlacementOptions, bookie: &BookieId, middle: u64) -> i64 {
        if !options.by_free_disk {
            return 1;
        }
        // In thousandths of the one in the middle. One that has not said is taken for that.
        let room = self
            .room
            .get(bookie)
            .copied()
            .unwrap_or(middle)
            .min(middle.saturating_mul(SHARE_MAX));
        let share = u128::from(room) * 1_000 / u128::from(middle.max(1));
        i64::try_from(share).unwrap_or(1_000).max(1)
    }

    fn give_shares(&mut self, options: &PlacementOptions) {
        let mut rooms: Vec<u64> = self
            .writable
            .iter()
            .filter_map(|bookie| self.room.get(bookie).copied())
            .collect();
        rooms.sort_unstable();
        let middle = rooms.get(rooms.len() / 2).copied().unwrap_or(1);
        let shares: Vec<(BookieId, i64)> = self
            .writable
            .iter()
            .map(|bookie| (bookie.clone(), self.share(options, bookie, middle)))
            .collect();
        self.credit.retain(|bookie, _| self.writable.contains(bookie));
        // Who was not chosen for long, as in quarantine, is not owed everything since then.
        let owed_max = shares
            .iter()
            .map(|(_, share)| share)
            .sum::<i64>()
            .saturating_mul(2);
        for (bookie, share) in shares {
            let credit = self.credit.entry(bookie).or_default();
            *credit = credit.saturating_add(share).min(owed_max);
        }
    }

    /// The chosen pay what all were given.
    fn charge(&mut self, chosen: &[BookieId]) {
        let all: i64 = self.credit.values().sum();
        let each = all / i64::try_from(chosen.len().max(1)).unwrap_or(1);
        for bookie in chosen {
            *self.credit.entry(bookie.clone()).or_default() -= each;
        }
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
        let directory = Directory::new(PlacementOptions::default());
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

    fn chooser(directory: &Directory, ensemble: usize) -> Chooser<'_> {
        Chooser {
            directory,
            quorum: Quorum::new(ensemble, ensemble, 1).unwrap(),
            affinity: None,
        }
    }

    fn directory(options: PlacementOptions, names: &[&str]) -> Directory {
        let directory = Directory::new(options);
        let items: Vec<Item> = names.iter().map(|name| item(name, b"")).collect();
        directory.update("ledgers/available/", &items);
        directory
    }

    #[test]
    fn quarantine_is_for_when_there_are_others() {
        let directory = directory(PlacementOptions::default(), &["a:1", "b:1", "c:1"]);
        assert!(chooser(&directory, 4).ensemble().is_none());
        let a = BookieId::new("a:1");
        directory.quarantine(&a, Duration::from_secs(60));
        for _ in 0..9 {
            assert!(!chooser(&directory, 2).ensemble().unwrap().contains(&a));
        }
        assert!(chooser(&directory, 3).ensemble().unwrap().contains(&a));
        let (b, c) = (BookieId::new("b:1"), BookieId::new("c:1"));
        let replaced = chooser(&directory, 2).replace(&[a.clone(), b.clone()], 0, std::slice::from_ref(&a));
        assert_eq!(replaced, Some(c.clone()));
        assert_eq!(chooser(&directory, 3).replace(&[a, b, c], 0, &[]), None);
    }

    /// Counts the choices of each bookie over `times` ensembles of one.
    fn counts(directory: &Directory, times: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..times {
            for bookie in chooser(directory, 1).ensemble().unwrap() {
                *counts.entry(bookie.to_string()).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn bookies_take_turns_by_the_room_they_have() {
        let names = ["a:1", "b:1", "c:1"];
        let even = directory(PlacementOptions::default(), &names);
        assert!(counts(&even, 300).values().all(|count| *count == 100));
        let by_free_disk = PlacementOptions {
            by_free_disk: true,
            ..PlacementOptions::default()
        };
        let weighted = directory(by_free_disk, &names);
        for (name, free) in names.iter().zip([50 << 30, 100 << 30, 1_000 << 30]) {
            weighted.has_room(&BookieId::new(name), free);
        }
        // Half a share, one, and three, which is the most.
        let counts = counts(&weighted, 900);
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100, 200, 600]);
    }

    #[test]
    fn groups_and_racks_are_what_operators_wrote() {
        let racks = PlacementOptions {
            spread: crate::placement::Spread::Racks,
            ..PlacementOptions::default()
        };
        let directory = directory(racks, &["a:1", "b:1", "c:1", "d:1", "e:1"]);
        // As Pulsar's tool writes it.
        let text = br#"{"fast":{"a:1":{"rack":"/r/1","hostname":"a"},"b:1":{"rack":"/r/1","hostname":null},
            "c:1":{"rack":"/r/2"}},"other":{"d:1":{"rack":"/r/3"}}}"#;
        directory.describe(text).unwrap();
        let group = |primary: &[&str], secondary: &[&str]| Affinity {
            primary: primary.iter().map(ToString::to_string).collect(),
            secondary: secondary.iter().map(ToString::to_string).collect(),
        };
        let choose = |ensemble, affinity: &Affinity| {
            let chosen = Chooser {
                affinity: Some(affinity),
                ..chooser(&directory, ensemble)
            };
            let chosen = chosen.ensemble()?;
            let names: BTreeSet<String> = chosen.iter().map(ToString::to_string).collect();
            Some(names.into_iter().collect::<Vec<_>>().join(" "))
        };
        for _ in 0..6 {
            let pair = choose(2, &group(&["fast"], &["other"])).unwrap();
            assert!(pair == "a:1 c:1" || pair == "b:1 c:1", "{pair}");
        }
        assert_eq!(
            choose(4, &group(&["fast"], &["other"])).unwrap(),
            "a:1 b:1 c:1 d:1"
        );
        assert_eq!(choose(4, &group(&["fast"], &[])), None);
        assert_eq!(choose(1, &group(&["none"], &[])), None);
        // What cannot be read changes nothing.
        assert!(directory.describe(b"[").is_err());
        assert_eq!(choose(1, &group(&["other"], &[])).unwrap(), "d:1");
        directory.describe(b"{}").unwrap();
        assert_eq!(choose(1, &group(&["other"], &[])), None);
    }
}
