//! Reads of feeds that wait for room in the shard's account, or for another try.
//!
//! Always true: while reads wait, one task looks for room every [`LOOK_INTERVAL`], so that none waits for ever.

use std::cell::Cell;
use std::time::Duration;

use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::Ordinal;

use super::Shard;
use crate::ids::TopicId;

/// How often room is looked for while reads wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What nobody looked at for so long may go when others wait: its listeners have full sockets or no permits.
const UNUSED_NANOS: u64 = 200_000_000;

/// Which tasks are there.
#[derive(Debug, Default)]
pub(super) struct Reads {
    is_relieving: Cell<bool>,
    is_granting: Cell<bool>,
}

impl Shard {
    /// Looks for room now and then until no read waits.
    pub(super) fn relieve_reads(&self) {
        if self.reads.is_relieving.replace(true) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            while me.backlog.waiting() > 0 {
                tokio::time::sleep(LOOK_INTERVAL).await;
                me.drop_unused_pages();
                me.grant_reads();
            }
            me.reads.is_relieving.set(false);
        });
    }

    /// Gives those that wait their turn, in a task of its own.
    pub(super) fn grant_reads_soon(&self) {
        if self.reads.is_granting.replace(true) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            me.reads.is_granting.set(false);
            me.grant_reads();
        });
    }

    /// Begins a read again after a while.
    pub(super) fn read_later(&self, topic: TopicId, from: Ordinal, delay: Duration) {
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            tokio::time::sleep(delay).await;
            if let Some(feed) = me.feed_by_id(topic) {
                feed.begin_read(from, false);
            }
        });
    }

    /// Begins the reads that wait, in their order, as far as there is room.
    fn grant_reads(&self) {
        while let Some((topic, place)) = self.backlog.take_waiting() {
            // A feed that is gone waits for nothing.
            let goes_on = self
                .feed_by_id(topic)
                .is_none_or(|feed| feed.begin_read(place, true));
            if !goes_on {
                return;
            }
        }
    }

    fn drop_unused_pages(&self) {
        let since = Nanos(clock::now().0.saturating_sub(UNUSED_NANOS));
        for topic in self.backlog.holders() {
            if let Some(feed) = self.feed_by_id(topic) {
                feed.drop_unused(since);
            }
        }
    }
}
