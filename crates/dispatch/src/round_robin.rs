//! Whose turn it is in a Shared subscription.
//!
//! One queue per priority level, holding the consumers of the level that may be available. A consumer that turns out not to
//! be is dropped from its queue and comes back with its next permits, so a turn costs nothing for consumers that wait.
//!
//! Always true: every available consumer is in the queue of its level, once.

use std::collections::{BTreeMap, VecDeque};

use super::consumers::{Consumers, Slot};

#[derive(Debug, Default)]
struct Level {
    /// The front has its turn.
    queue: VecDeque<Slot>,
    /// Messages the front has got in this turn.
    turn_messages: u32,
}

/// The queues of all levels.
#[derive(Debug)]
pub(super) struct RoundRobin {
    levels: BTreeMap<i32, Level>,
    /// By slot: whether it is in a queue.
    queued: Vec<bool>,
    turn_messages_max: u32,
}

impl RoundRobin {
    pub(super) fn new(turn_messages_max: u32) -> Self {
        Self {
            levels: BTreeMap::new(),
            queued: Vec::new(),
            turn_messages_max: turn_messages_max.max(1),
        }
    }

    /// A consumer has become available, or still is.
    pub(super) fn offer(&mut self, slot: Slot, priority_level: i32) {
        if self.queued.len() <= slot.index() {
            self.queued.resize(slot.index() + 1, false);
        }
        if !std::mem::replace(&mut self.queued[slot.index()], true) {
            let level = self.levels.entry(priority_level).or_default();
            level.queue.push_back(slot);
        }
    }

    /// A consumer has left.
    pub(super) fn remove(&mut self, slot: Slot, priority_level: i32) {
        if let Some(queued) = self.queued.get_mut(slot.index()) {
            *queued = false;
        }
        if let Some(level) = self.levels.get_mut(&priority_level) {
            if level.queue.front() == Some(&slot) {
                level.turn_messages = 0;
            }
            level.queue.retain(|&other| other != slot);
            if level.queue.is_empty() {
                self.levels.remove(&priority_level);
            }
        }
    }

    /// The consumer that gets the next message: of the best level with an available one, the one whose turn it is.
    pub(super) fn pick(&mut self, consumers: &Consumers) -> Option<Slot> {
        for level in self.levels.values_mut() {
            if level.turn_messages >= self.turn_messages_max {
                level.turn_messages = 0;
                level.queue.rotate_left(1.min(level.queue.len()));
            }
            while let Some(&slot) = level.queue.front() {
                if consumers.is_available(slot) {
                    return Some(slot);
                }
                level.queue.pop_front();
                level.turn_messages = 0;
                self.queued[slot.index()] = false;
            }
        }
        None
    }

    /// The picked consumer got `messages`.
    pub(super) fn charge(&mut self, slot: Slot, priority_level: i32, messages: u32) {
        if let Some(level) = self.levels.get_mut(&priority_level)
            && level.queue.front() == Some(&slot)
        {
            level.turn_messages = level.turn_messages.saturating_add(messages);
        }
    }
}
