//! Decision when, and to where, a subscription that moved here may be moved at other clusters: a state machine
//! without I/O and clock.
//!
//! ```text
//!   here   ── m1 ── request ──────────────── m2 ── response ── snapshot ──
//!                      │                       ▲       ▲ at this place: what is before it,
//!   there  ─────────── └─ request ── response ─┼───────┘
//!                                 ▲ up to here, is before it here as well
//! ```
//! *Proof.* Of the messages in the other cluster's log up to its position, its own were sent before its answer, and arrived here
//! before it; those of this cluster are in the log here before they were sent there. So a subscription that
//! acknowledged everything before the answer here has acknowledged everything up to that position there. This does
//! not hold for a third cluster's messages: they may have arrived there and not here yet. So with more than one other
//! cluster all are asked a second time, once the first answers are here: messages that one of them had sent to
//! another by then are in its log before its second answer, and arrive here before that. Each round has an id of its
//! own, so that a repeated answer does not match a later request.
//!
//! Old positions are only ever forgotten: with fewer of them a subscription moves later, never too far.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use pharos_types::{Ordinal, Position};

use crate::markers::ClusterPlaces;

/// Interval of snapshots, and the limits on those that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// True if there are replicated subscriptions at all.
    pub are_on: bool,
    /// From one to the next, at least.
    pub interval: Duration,
    /// Time after which a snapshot without all answers is abandoned.
    pub timeout: Duration,
    /// Number of snapshots of one subscription that are kept until it has passed them, at least 3.
    pub kept_max: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            are_on: true,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(30),
            kept_max: 30,
        }
    }
}

/// Result of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotStep {
    /// All clusters are asked again, with this id.
    Ask(String),
    /// All answers are here: these places belong to that of the last answer.
    Done {
        /// The id of the first request.
        id: String,
        /// Each other cluster's.
        places: ClusterPlaces,
    },
}

/// The snapshots of a topic. Times are in milliseconds of one clock that does not go back.
#[derive(Debug)]
pub struct Snapshots {
    asking: Option<Asking>,
    /// Time of the last stored message.
    data_ms: u64,
    /// Start time of the last snapshot that got all answers.
    begun_ms: Option<u64>,
}

/// Snapshot that does not have all answers.
#[derive(Debug)]
struct Asking {
    id: String,
    since_ms: u64,
    all: BTreeSet<Box<str>>,
    missing: BTreeSet<Box<str>>,
    /// Positions in the first answers.
    places: ClusterPlaces,
    is_second: bool,
}

impl Asking {
    fn round_id(&self) -> String {
        match self.is_second {
            true => format!("{}/2", self.id),
            false => self.id.clone(),
        }
    }
}

impl Snapshots {
    /// Returns the state of a topic that was just loaded: the first snapshot is due at once.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            asking: None,
            data_ms: now_ms,
            begun_ms: None,
        }
    }

    /// Messages were stored.
    pub fn on_data(&mut self, now_ms: u64) {
        self.data_ms = now_ms;
    }

    /// True if a snapshot is to begin: there are messages since the last one, and none waits for answers. A snapshot
    /// that waits too long is abandoned.
    pub fn is_due(&mut self, now_ms: u64, timeout: Duration) -> bool {
        let is_late =
            |asking: &Asking| u128::from(now_ms.saturating_sub(asking.since_ms)) >= timeout.as_millis();
        if self.asking.as_ref().is_some_and(is_late) {
            self.asking = None;
        }
        self.asking.is_none() && self.begun_ms.is_none_or(|begun_ms| begun_ms <= self.data_ms)
    }

    /// Begins one; each of `clusters` is asked. `id`: of no other one of this topic.
    pub fn begin<'c>(&mut self, id: String, clusters: impl IntoIterator<Item = &'c str>, now_ms: u64) {
        let all: BTreeSet<Box<str>> = clusters.into_iter().map(Box::from).collect();
        self.asking = Some(Asking {
            id,
            since_ms: now_ms,
            missing: all.clone(),
            all,
            places: BTreeMap::new(),
            is_second: false,
        });
    }

    /// The one that waits for answers is given up, because its question did not get into the log.
    pub fn give_up(&mut self) {
        self.asking = None;
    }

    /// An answer came.
    pub fn on_response(&mut self, id: &str, cluster: &str, position: Position) -> Option<SnapshotStep> {
        let asking = self.asking.as_mut().filter(|asking| asking.round_id() == id)?;
        if !asking.missing.remove(cluster) {
            return None;
        }
        if !asking.is_second {
            asking.places.insert(cluster.into(), position);
        }
        if !asking.missing.is_empty() {
            return None;
        }
        if !asking.is_second && asking.all.len() > 1 {
            asking.is_second = true;
            asking.missing.clone_from(&asking.all);
            return Some(SnapshotStep::Ask(asking.round_id()));
        }
        let done = self.asking.take()?;
        self.begun_ms = Some(done.since_ms);
        Some(SnapshotStep::Done {
            id: done.id,
            places: done.places,
        })
    }
}

/// The snapshots that a subscription has not passed yet: by their places here, those there.
#[derive(Clone, Debug, Default)]
pub struct SnapshotsAhead {
    kept: BTreeMap<Ordinal, Rc<ClusterPlaces>>,
    /// Position that was last taken.
    passed: Option<Ordinal>,
}

impl SnapshotsAhead {
    /// Keeps one, at most `most` of them. Of too many the one goes that is nearest to its neighbours, neither the first nor the last.
    pub fn keep(&mut self, at: Ordinal, places: Rc<ClusterPlaces>, most: usize) {
        if self.passed.is_some_and(|passed| at <= passed) {
            return;
        }
        self.kept.insert(at, places);
        if self.kept.len() <= most.max(3) {
            return;
        }
        let gap =
            |((before, _), (_, after)): ((&Ordinal, &Ordinal), (&Ordinal, &Ordinal))| before.count_to(*after);
        let keys = || self.kept.keys();
        let pairs = keys().zip(keys().skip(1));
        let triples = pairs.zip(keys().skip(1).zip(keys().skip(2)));
        let nearest = triples.min_by_key(|triple| gap(*triple)).map(|((_, at), _)| *at);
        if let Some(nearest) = nearest {
            self.kept.remove(&nearest);
        }
    }

    /// The last one that the subscription has passed, which has acknowledged everything before `acked_to`; it and those before it
    /// are forgotten.
    pub fn take_passed(&mut self, acked_to: Ordinal) -> Option<Rc<ClusterPlaces>> {
        let (&at, _) = self.kept.range(..=acked_to).next_back()?;
        let ahead = self.kept.split_off(&at.plus(1));
        let (at, places) = std::mem::replace(&mut self.kept, ahead).pop_last()?;
        self.passed = Some(at);
        Some(places)
    }

    /// Returns the number of snapshots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// True if there is no snapshot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
