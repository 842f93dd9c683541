//! Whose turn it is in a Shared subscription.
//!
//! One queue per priority level, holding the consumers of the level that may be available. A consumer that turns out not to
//! be is dropped from its queue and comes back with its next permits, so a turn costs nothing for consumers that wait. One that
//! leaves is not looked for: its place in the queue is void, and is passed over or swept out together with others.
//!
//! Always true: every available consumer is in the queue of its level, once. The front of a queue is not void. At most about half
//! of a queue is.

use std::collections::{BTreeMap, VecDeque};

use pharos_types::steps::step;

use super::consumers::{Consumers, Slot};

/// Void places that are left in a queue whatever its length.
const VOID_KEPT: usize = 16;

/// A place in a queue; void unless its ticket is the one that its slot has.
#[derive(Clone, Copy, Debug)]
struct QueuePlace {
    slot: Slot,
    ticket: u32,
}

#[derive(Debug, Default)]
struct Level {
    /// The front has its turn.
    queue: VecDeque<QueuePlace>,
    /// Places in the queue that are not void.
    len: usize,
    /// Messages the front has got in this turn.
    turn_messages: u32,
}

/// State of a slot in the queues.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    is_queued: bool,
    /// Rises when its place becomes void.
    ticket: u32,
}

/// The queues of all levels.
#[derive(Debug)]
pub(super) struct RoundRobin {
    levels: BTreeMap<i32, Level>,
    /// By slot.
    standings: Vec<Standing>,
    turn_messages_max: u32,
}

impl Level {
    /// Drops void places from the front, and all when they are too many.
    fn tidy(&mut self, standings: &[Standing]) {
        let is_void = |queued: &QueuePlace| standings[queued.slot.index()].ticket != queued.ticket;
        while self.queue.pop_front_if(|queued| is_void(queued)).is_some() {
            step();
        }
        if self.queue.len() > 2 * self.len + VOID_KEPT {
            self.queue.retain(|queued| {
                step();
                !is_void(queued)
            });
        }
    }
}

impl RoundRobin {
    pub(super) fn new(turn_messages_max: u32) -> Self {
        Self {
            levels: BTreeMap::new(),
            standings: Vec::new(),
            turn_messages_max: turn_messages_max.max(1),
        }
    }

    /// A consumer has become available, or still is.
    pub(super) fn offer(&mut self, slot: Slot, priority_level: i32) {
        if self.standings.len() <= slot.index() {
            self.standings.resize(slot.index() + 1, Standing::default());
        }
        let standing = &mut self.standings[slot.index()];
        if !std::mem::replace(&mut standing.is_queued, true) {
            let level = self.levels.entry(priority_level).or_default();
            let ticket = standing.ticket;
            level.queue.push_back(QueuePlace { slot, ticket });
            level.len += 1;
        }
    }

    /// A consumer has left.
    pub(super) fn remove(&mut self, slot: Slot, priority_level: i32) {
        step();
        let Some(standing) = self.standings.get_mut(slot.index()) else {
            return;
        };
        if !std::mem::replace(&mut standing.is_queued, false) {
            return;
        }
        standing.ticket = standing.ticket.wrapping_add(1);
        let Some(level) = self.levels.get_mut(&priority_level) else {
            return;
        };
        if level.queue.front().is_some_and(|front| front.slot == slot) {
            level.turn_messages = 0;
        }
        level.len -= 1;
        if level.len == 0 {
            self.levels.remove(&priority_level);
        } else {
            level.tidy(&self.standings);
        }
    }

    /// The consumer that gets the next message: of the best level with an available one, the one whose turn it is.
    pub(super) fn pick(&mut self, consumers: &Consumers) -> Option<Slot> {
        for level in self.levels.values_mut() {
            if level.turn_messages >= self.turn_messages_max {
                level.turn_messages = 0;
                level.queue.rotate_left(1.min(level.queue.len()));
                level.tidy(&self.standings);
            }
            while let Some(&QueuePlace { slot, .. }) = level.queue.front() {
                if consumers.is_available(slot) {
                    return Some(slot);
                }
                level.queue.pop_front();
                level.len -= 1;
                level.turn_messages = 0;
                self.standings[slot.index()].is_queued = false;
                level.tidy(&self.standings);
            }
        }
        None
    }

    /// The picked consumer got `messages`.
    pub(super) fn charge(&mut self, slot: Slot, priority_level: i32, messages: u32) {
        if let Some(level) = self.levels.get_mut(&priority_level)
            && level.queue.front().is_some_and(|front| front.slot == slot)
        {
            level.turn_messages = level.turn_messages.saturating_add(messages);
        }
    }
}
