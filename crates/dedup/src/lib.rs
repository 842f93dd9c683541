//! Deduplication of a topic's producers: a state machine without I/O and without a clock.
//!
//! ```text
//!   check ─► Accept ─ append ─► on_pushed ─ durable ─► on_persisted ─ on_durable ─ snapshot ─► a cursor: place, last number by name
//!     └► Duplicate, Undecidable                └ failed ─► take_back                                  │
//!   replaying(place, numbers) ◄─ after a start, or when it is turned on ───────────────────────────────┘
//!     └ on_replayed for each entry from the place on ─► end_replay
//! ```
//!
//! Producers number their messages in ascending order. For each name two numbers are kept: the highest that was given
//! to the log (*pushed*) and the last that is durable there (*persisted*). A send no higher than persisted is a
//! duplicate; one between the two may yet become durable or not, so it is undecidable; any other is new.
//!
//! Messages of replicators of other clusters are judged by their position in the log of that cluster instead
//! ([`SequenceIds::check_source`]).
//!
//! While a log is replayed, sends are noted and not judged: they come from producers that were attached when it was
//! turned on. These sends are later in the log than the replayed entries, so their numbers take precedence.
//!
//! Always true: a snapshot's numbers are of entries that are durable, and count every entry before its position.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};

use pharos_types::Ordinal;

mod names;
mod sources;
#[cfg(test)]
mod tests;

use names::{Numbers, cost};
pub use sources::SourcePlace;
use sources::Sources;

/// Number of names kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// Names that are kept; beyond it those that have been gone for longest are forgotten. Names of attached producers stay.
    pub names_max: usize,
    /// Bytes that a snapshot may have, about; beyond it names are forgotten as well.
    pub bytes_max: usize,
    /// Entries between two snapshots.
    pub entries_max: u64,
    /// Milliseconds without a producer after which a name is forgotten; 0 is never.
    pub gone_ms_max: u64,
}

impl Default for SequenceLimits {
    fn default() -> Self {
        Self {
            names_max: 10_000,
            bytes_max: 4 << 20,
            entries_max: 1_000,
            gone_ms_max: 360 * 60_000,
        }
    }
}

/// Verdict on a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Accept,
    /// The message is stored and durable: answer it without storing it again.
    Duplicate,
    /// The message was given to the log, and is not durable yet: the producer has to send it again.
    Undecidable,
}

/// Stored snapshot of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All entries before this are counted.
    pub position: Ordinal,
    /// The last number by name.
    pub persisted: BTreeMap<String, i64>,
}

/// Progress of a replay.
struct Rereading {
    next: Ordinal,
    /// The last number, and where it was read.
    names: HashMap<Box<str>, (i64, Ordinal)>,
    /// The last place by cluster.
    sources: BTreeMap<Box<str>, SourcePlace>,
}

/// The numbers of a topic's producers. See the [module](self).
pub struct SequenceIds {
    limits: SequenceLimits,
    names: HashMap<Box<str>, Numbers>,
    sources: Sources,
    replay: Option<Rereading>,
    /// All entries before this are counted in what is persisted.
    counted: Ordinal,
    /// Position of the last snapshot.
    stored: Ordinal,
    /// Entries since then.
    entries: u64,
}

impl SequenceIds {
    /// Begins to read a log again from `from` on, with what was stored there.
    #[must_use]
    pub fn replaying<'n>(
        limits: SequenceLimits,
        from: Ordinal,
        stored: impl IntoIterator<Item = (&'n str, i64)>,
    ) -> Self {
        let mut stored: Vec<_> = stored.into_iter().collect();
        let sources = Sources::of_snapshot(&mut stored).into_iter();
        let names = stored.into_iter();
        Self {
            limits,
            names: HashMap::new(),
            sources: Sources::default(),
            replay: Some(Rereading {
                next: from,
                names: names.map(|(name, last)| (name.into(), (last, from))).collect(),
                sources: sources.map(|(cluster, place)| (cluster.into(), place)).collect(),
            }),
            counted: from,
            stored: from,
            entries: 0,
        }
    }

    /// The next place to replay; `None` once that is over.
    #[must_use]
    pub fn replay_next(&self) -> Option<Ordinal> {
        self.replay.as_ref().map(|replay| replay.next)
    }

    /// Counts one replayed or lost entry. `sequence`: its producer and the number of its last message, if it counts.
    pub fn on_replayed(&mut self, at: Ordinal, sequence: Option<(&str, u64)>) {
        let Some(replay) = &mut self.replay else { return };
        replay.next = Ordinal(at.0 + 1);
        self.entries += 1;
        if let Some((name, highest)) = sequence {
            let last = (highest.cast_signed(), at);
            match replay.names.get_mut(name) {
                Some(known) => *known = last,
                None => _ = replay.names.insert(name.into(), last),
            }
            names::keep_latest(&mut replay.names, self.limits.names_max);
        }
    }

    /// The entry that was read again last came from another cluster, where it is at this place.
    pub fn on_source_replayed(&mut self, cluster: &str, place: SourcePlace) {
        let Some(replay) = &mut self.replay else { return };
        let is_full = replay.sources.len() >= sources::CLUSTERS_MAX;
        match replay.sources.get_mut(cluster) {
            Some(known) => *known = place,
            None if is_full => {}
            None => _ = replay.sources.insert(cluster.into(), place),
        }
    }

    /// The log was read up to `to`, exclusive: from now on sends are judged. `fresh`: names of producers that were let in before, and told
    /// that nothing of theirs is there, and that sent nothing since; they begin anew.
    pub fn end_replay<'n>(&mut self, to: Ordinal, fresh: impl IntoIterator<Item = &'n str>) {
        let Some(mut replay) = self.replay.take() else {
            return;
        };
        for name in fresh {
            replay.names.remove(name);
        }
        for (name, (last, _)) in replay.names {
            self.names.entry(name).or_default().put_before(last);
        }
        for (cluster, place) in &replay.sources {
            self.sources.put_before(cluster, *place);
        }
        self.counted = self.counted.max(replay.next).max(to);
    }

    /// Returns the verdict on a send, by the number of its first message.
    #[must_use]
    pub fn check(&self, name: &str, sequence_id: u64) -> Verdict {
        match self.names.get(name) {
            Some(numbers) if self.replay.is_none() => numbers.check(sequence_id.cast_signed()),
            _ => Verdict::Accept,
        }
    }

    /// Returns the verdict on a send of a replicator of another cluster, by its position in the log of that cluster.
    #[must_use]
    pub fn check_source(&self, cluster: &str, place: SourcePlace) -> Verdict {
        match self.replay {
            None => self.sources.check(cluster, place),
            Some(_) => Verdict::Accept,
        }
    }

    /// Such a send was appended.
    pub fn on_source_pushed(&mut self, cluster: &str, place: SourcePlace) {
        self.sources.on_pushed(cluster, place);
    }

    /// Such a send that was pushed is durable.
    pub fn on_source_persisted(&mut self, cluster: &str, place: SourcePlace) {
        self.sources.on_persisted(cluster, place);
    }

    /// A send was appended; `highest`: the number of its last message.
    pub fn on_pushed(&mut self, name: &str, highest: u64) {
        if !self.names.contains_key(name) {
            self.names.insert(name.into(), Numbers::default());
        }
        if let Some(numbers) = self.names.get_mut(name) {
            numbers.pushed = Some(highest.cast_signed());
        }
    }

    /// A send that was pushed is durable.
    pub fn on_persisted(&mut self, name: &str, highest: u64) {
        if let Some(numbers) = self.names.get_mut(name) {
            numbers.persisted = Some(highest.cast_signed());
        }
    }

    /// All entries before `end` are durable, and those of them that count were told of; `entries` of them are new.
    pub fn on_durable(&mut self, end: Ordinal, entries: u64) {
        self.entries += entries;
        self.counted = self.counted.max(end);
    }

    /// Discards numbers that were pushed and are not durable; they never will be.
    pub fn take_back(&mut self) {
        self.names.retain(|_, numbers| {
            numbers.pushed = numbers.persisted;
            numbers.persisted.is_some()
        });
        self.sources.take_back();
    }

    /// The last durable number of a name.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<i64> {
        self.names.get(name)?.persisted
    }

    /// True if everything pushed under a name is durable.
    #[must_use]
    pub fn is_settled(&self, name: &str) -> bool {
        self.names.get(name).is_none_or(Numbers::is_settled)
    }

    /// True if a snapshot is due by the number of entries.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.entries >= self.limits.entries_max.max(1) && self.has_news()
    }

    /// True if a snapshot would differ from the last one.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.place() > self.stored
    }

    fn place(&self) -> Ordinal {
        self.replay_next().unwrap_or(self.counted)
    }

    /// Returns the state to be stored now.
    pub fn snapshot(&mut self) -> Snapshot {
        self.entries = 0;
        self.stored = self.place();
        let mut persisted: BTreeMap<String, i64>;
        match &self.replay {
            Some(replay) => {
                let names = replay.names.iter();
                persisted = names.map(|(name, (last, _))| (name.to_string(), *last)).collect();
                for (cluster, place) in &replay.sources {
                    sources::put(&mut persisted, cluster, *place);
                }
            }
            None => {
                let names = self.names.iter();
                persisted = names
                    .filter_map(|(name, numbers)| Some((name.to_string(), numbers.persisted?)))
                    .collect();
                self.sources.put_into(&mut persisted);
            }
        }
        Snapshot {
            position: self.stored,
            persisted,
        }
    }

    /// Forgets the names that have been gone for too long, and those that are too many. `now_ms`: milliseconds on any clock, the same each
    /// time.
    pub fn forget_gone(&mut self, now_ms: u64, is_attached: impl Fn(&str) -> bool) {
        let limits = self.limits;
        let mut bytes = 0;
        self.names.retain(|name, numbers| {
            let is_kept = numbers.is_kept(now_ms, limits.gone_ms_max, is_attached(name));
            bytes += if is_kept { cost(name) } else { 0 };
            is_kept
        });
        let over = self.names.len().saturating_sub(limits.names_max);
        if over > 0 || bytes > limits.bytes_max {
            names::forget_longest_gone(&mut self.names, over, bytes.saturating_sub(limits.bytes_max));
        }
    }

    /// Returns the number of known names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if no name is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
