//! Counters of one shard since its start, for the metrics page: connections, lookups, loads.
//!
//! Owned by the shard and updated on its thread only, so plain numbers suffice; the metrics page asks each shard and
//! adds the results.

use std::cell::RefCell;

use pharos_runtime::Histogram;

/// Events of one broadcast subscription or consumer since the topic was loaded, or of one shard since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BroadcastCounts {
    /// Places given up.
    pub absent_dropped: u64,
    /// Consumers that came back after that.
    pub returned_late: u64,
    /// Entries that were deleted before these came back, and that they had not acknowledged.
    pub entries_skipped: u64,
    /// Places taken over by another consumer of the same name.
    pub takeovers: u64,
    /// Take-overs that were refused because two live consumers fight for a name.
    pub takeovers_refused: u64,
}

impl BroadcastCounts {
    /// Adds others.
    pub fn add(&mut self, more: Self) {
        self.absent_dropped += more.absent_dropped;
        self.returned_late += more.returned_late;
        self.entries_skipped += more.entries_skipped;
        self.takeovers += more.takeovers;
        self.takeovers_refused += more.takeovers_refused;
    }
}

/// The numbers.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Connections that said a good CONNECT.
    pub handshakes: u64,
    /// Connections that ended without one.
    pub handshakes_failed: u64,
    /// Time of the lookups that were answered.
    pub lookups: Histogram,
    /// Lookups that were refused.
    pub lookups_failed: u64,
    /// Time of the loads that made a topic.
    pub loads: Histogram,
    /// Loads that failed for want of storage or metadata; a topic that is not there is no failure.
    pub loads_failed: u64,
    /// Stored entries that turned out to be unreadable, each once while its topic is loaded.
    pub entries_unreadable: u64,
    /// Reads for consumers that were moved past a lost entry.
    pub lost_skipped: u64,
    /// Events of broadcast subscriptions.
    pub broadcast: BroadcastCounts,
}

impl Counts {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.handshakes_failed += other.handshakes_failed;
        self.lookups.merge(&other.lookups);
        self.lookups_failed += other.lookups_failed;
        self.loads.merge(&other.loads);
        self.loads_failed += other.loads_failed;
        self.entries_unreadable += other.entries_unreadable;
        self.lost_skipped += other.lost_skipped;
        self.broadcast.add(other.broadcast);
    }
}

/// Counters of a shard.
#[derive(Debug, Default)]
pub struct Tally(RefCell<Counts>);

impl Tally {
    /// A connection said a good CONNECT.
    pub fn handshake(&self) {
        self.0.borrow_mut().handshakes += 1;
    }

    /// Counts connections that ended before a valid CONNECT.
    pub fn handshakes_failed(&self, count: u64) {
        self.0.borrow_mut().handshakes_failed += count;
    }

    /// A lookup was answered after `nanos`, or refused.
    pub fn lookup(&self, nanos: u64, is_answered: bool) {
        let mut counts = self.0.borrow_mut();
        match is_answered {
            true => counts.lookups.record(nanos),
            false => counts.lookups_failed += 1,
        }
    }

    /// A topic was loaded in `nanos`.
    pub fn loaded(&self, nanos: u64) {
        self.0.borrow_mut().loads.record(nanos);
    }

    /// A topic could not be loaded.
    pub fn load_failed(&self) {
        self.0.borrow_mut().loads_failed += 1;
    }

    /// A stored entry turned out to be unreadable.
    pub fn entry_unreadable(&self) {
        self.0.borrow_mut().entries_unreadable += 1;
    }

    /// Consumers were moved past a lost entry.
    pub fn lost_skipped(&self) {
        self.0.borrow_mut().lost_skipped += 1;
    }

    /// Something happened on a broadcast subscription.
    pub fn broadcast(&self, counts: BroadcastCounts) {
        self.0.borrow_mut().broadcast.add(counts);
    }

    /// The numbers so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().clone()
    }
}
