//! Progress of the replicators of other clusters, each by the position of its messages in the topic's log of that
//! cluster.
//!
//! A replicator sends a log in its order, and after a reconnect some of it again from an earlier position. The
//! numbers of the original producers say nothing here: producers of the same name may be at both clusters.

use std::collections::{BTreeMap, HashMap};

use crate::Verdict;

/// Clusters that are known of a topic; what comes from further ones is taken as new.
pub(crate) const CLUSTERS_MAX: usize = 256;

/// Names of the two halves of a position in a snapshot.
const PREFIX: &str = "pulsar.repl.";
const LEDGER: &str = "_LID";
const ENTRY: &str = "_EID";

/// A place in a log of another cluster: ledger and entry, in this order.
pub type SourcePlace = (u64, u64);

/// The places of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClusterPlaces {
    /// Given to the log.
    pushed: Option<SourcePlace>,
    /// Durable.
    persisted: Option<SourcePlace>,
}

/// The places by cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    known: HashMap<Box<str>, ClusterPlaces>,
}

impl Sources {
    /// Takes what a snapshot says of places out of its names.
    pub(crate) fn of_snapshot<'n>(stored: &mut Vec<(&'n str, i64)>) -> BTreeMap<&'n str, SourcePlace> {
        let half = |name: &'n str, end: &str| name.strip_prefix(PREFIX)?.strip_suffix(end);
        let entries: HashMap<&str, i64> = stored
            .iter()
            .filter_map(|(name, number)| Some((half(name, ENTRY)?, *number)))
            .collect();
        let whole = stored.iter().filter_map(|(name, ledger)| {
            let cluster = half(name, LEDGER)?;
            let entry = entries.get(cluster)?;
            Some((cluster, (ledger.cast_unsigned(), entry.cast_unsigned())))
        });
        let whole: BTreeMap<_, _> = whole.collect();
        stored.retain(|(name, _)| {
            let cluster = half(name, LEDGER).or_else(|| half(name, ENTRY));
            cluster.is_none_or(|cluster| !whole.contains_key(cluster))
        });
        whole
    }

    /// Adds the positions to a snapshot.
    pub(crate) fn put_into(&self, snapshot: &mut BTreeMap<String, i64>) {
        for (cluster, places) in &self.known {
            if let Some(place) = places.persisted {
                put(snapshot, cluster, place);
            }
        }
    }

    pub(crate) fn check(&self, cluster: &str, place: SourcePlace) -> Verdict {
        match self.known.get(cluster) {
            Some(ClusterPlaces {
                pushed: Some(pushed),
                persisted,
            }) if place <= *pushed => match persisted {
                Some(persisted) if place <= *persisted => Verdict::Duplicate,
                _ => Verdict::Undecidable,
            },
            _ => Verdict::Accept,
        }
    }

    pub(crate) fn on_pushed(&mut self, cluster: &str, place: SourcePlace) {
        if let Some(places) = self.of(cluster) {
            places.pushed = Some(place);
        }
    }

    pub(crate) fn on_persisted(&mut self, cluster: &str, place: SourcePlace) {
        if let Some(places) = self.known.get_mut(cluster) {
            places.persisted = Some(place);
        }
    }

    /// Adds a replayed position before those noted meanwhile.
    pub(crate) fn put_before(&mut self, cluster: &str, place: SourcePlace) {
        let Some(places) = self.of(cluster) else { return };
        match places.pushed {
            None => (places.pushed, places.persisted) = (Some(place), Some(place)),
            Some(pushed) if places.persisted.is_none() && place <= pushed => places.persisted = Some(place),
            Some(_) => {}
        }
    }

    pub(crate) fn take_back(&mut self) {
        self.known.retain(|_, places| {
            places.pushed = places.persisted;
            places.persisted.is_some()
        });
    }

    fn of(&mut self, cluster: &str) -> Option<&mut ClusterPlaces> {
        if !self.known.contains_key(cluster) {
            if self.known.len() >= CLUSTERS_MAX {
                return None;
            }
            self.known.insert(cluster.into(), ClusterPlaces::default());
        }
        self.known.get_mut(cluster)
    }
}

/// The two halves of a place, as a snapshot has them.
pub(crate) fn put(snapshot: &mut BTreeMap<String, i64>, cluster: &str, (ledger, entry): SourcePlace) {
    snapshot.insert(format!("{PREFIX}{cluster}{LEDGER}"), ledger.cast_signed());
    snapshot.insert(format!("{PREFIX}{cluster}{ENTRY}"), entry.cast_signed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_compared_as_a_whole() {
        let mut sources = Sources::default();
        assert_eq!(sources.check("east", (1, 0)), Verdict::Accept);
        sources.on_pushed("east", (1, 90));
        sources.on_persisted("east", (1, 90));
        sources.on_pushed("east", (2, 0));
        assert_eq!(sources.check("east", (1, 90)), Verdict::Duplicate);
        assert_eq!(sources.check("east", (2, 0)), Verdict::Undecidable);
        assert_eq!(sources.check("east", (1, 91)), Verdict::Undecidable);
        assert_eq!(sources.check("east", (2, 1)), Verdict::Accept);
        assert_eq!(sources.check("west", (1, 0)), Verdict::Accept, "another cluster");
        sources.take_back();
        assert_eq!(sources.check("east", (2, 0)), Verdict::Accept);
        assert_eq!(sources.check("east", (1, 5)), Verdict::Duplicate);
    }

    #[test]
    fn a_snapshot_says_places_beside_numbers() {
        let mut sources = Sources::default();
        sources.on_pushed("east", (7, 3));
        sources.on_persisted("east", (7, 3));
        sources.on_pushed("west", (1, 1));
        let mut snapshot = BTreeMap::from([("p_LID".to_owned(), 4)]);
        sources.put_into(&mut snapshot);
        assert_eq!(snapshot.len(), 3, "what is not durable is not in it");
        let mut stored: Vec<_> = snapshot
            .iter()
            .map(|(name, last)| (name.as_str(), *last))
            .collect();
        assert_eq!(
            Sources::of_snapshot(&mut stored),
            BTreeMap::from([("east", (7, 3))])
        );
        assert_eq!(stored, [("p_LID", 4)]);
        let mut half = vec![("pulsar.repl.east_LID", 4)];
        assert!(Sources::of_snapshot(&mut half).is_empty());
        assert_eq!(half.len(), 1, "half a place is none");
    }

    #[test]
    fn clusters_have_an_end() {
        let mut sources = Sources::default();
        for cluster in 0..=CLUSTERS_MAX {
            sources.on_pushed(&cluster.to_string(), (1, 1));
        }
        assert_eq!(sources.known.len(), CLUSTERS_MAX);
    }
}
