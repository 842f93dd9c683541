//! Reads of feeds and dispatchers that wait for room in the shard's account, or for another try.
//!
//! Always true: while reads wait, one task looks for room every [`LOOK_INTERVAL`], so that none waits for ever.

use std::cell::Cell;
use std::time::Duration;

use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::Ordinal;

use pharos_feed::ids::TopicId;
use pharos_feed::{Room, Waiting};
use tokio::sync::oneshot;

use super::feeds::Feeds;

/// Interval of the check for free memory while reads wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Time after which unused entries may be evicted while others wait, in nanoseconds: their stream consumers have full
/// sockets or no permits.
const UNUSED_NANOS: u64 = 200_000_000;

/// Running tasks.
#[derive(Debug, Default)]
pub(super) struct Reads {
    is_relieving: Cell<bool>,
    is_granting: Cell<bool>,
}

impl Feeds {
    /// Looks for room now and then until no read waits.
    pub(super) fn relieve_reads(&self) {
        if self.reads.is_relieving.replace(true) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            while me.budget().waiting() > 0 {
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
            if let Some(feed) = me.get(topic) {
                feed.begin_read(from, false);
            }
        });
    }

    /// Room for what a dispatcher reads, at most `bytes_max`, if no other waits and there is some; otherwise where it is told when it
    /// is its turn. Who drops that gives up the turn.
    pub(super) fn room_to_read(&self, bytes_max: usize) -> Result<Room, oneshot::Receiver<Room>> {
        if let Some(room) = self.budget().reserve_room(false, bytes_max) {
            return Ok(room);
        }
        let (turn, granted) = oneshot::channel();
        self.budget().wait(Waiting::Dispatcher(bytes_max, turn));
        self.relieve_reads();
        Err(granted)
    }

    /// A dispatcher's read is over and dealt: others may have its room.
    pub(super) fn end_read(&self, room: Room) {
        drop(room);
        if self.budget().waiting() > 0 {
            self.grant_reads_soon();
        }
    }

    /// Begins the reads that wait, in their order, as far as there is room.
    fn grant_reads(&self) {
        while let Some(read) = self.budget().take_waiting() {
            let goes_on = match read {
                // A feed that is gone waits for nothing.
                Waiting::Feed(topic, place) => {
                    self.get(topic).is_none_or(|feed| feed.begin_read(place, true))
                }
                Waiting::Dispatcher(_, turn) if turn.is_closed() => true,
                Waiting::Dispatcher(bytes_max, turn) => match self.budget().reserve_room(true, bytes_max) {
                    // A caller that gave up meanwhile releases it by that.
                    Some(room) => {
                        drop(turn.send(room));
                        true
                    }
                    None => {
                        self.budget().wait_on(Waiting::Dispatcher(bytes_max, turn));
                        false
                    }
                },
            };
            if !goes_on {
                return;
            }
        }
    }

    fn drop_unused_pages(&self) {
        let since = Nanos(clock::now().0.saturating_sub(UNUSED_NANOS));
        for topic in self.budget().holders() {
            if let Some(feed) = self.get(topic) {
                feed.drop_unused(since);
            }
        }
    }
}
