//! Messages that must not be delivered yet, by their time.
//!
//! The index is bounded. When it is full the earliest are kept; of the others only the lowest ordinal is remembered, and when
//! the index has emptied to half, reading starts again from there. So a million far-off messages cost neither memory nor
//! the messages behind them; they cost another read.
//!
//! Always true: every delayed message is in the index or at or after `overflow_from`.

use std::collections::BTreeSet;

use super::ordinal_map::{OrdinalMap, shrink_if_empty};
use super::replay::Group;
use super::types::DelayOptions;

/// Data of a delayed message besides its time.
#[derive(Clone, Copy, Debug)]
struct Item {
    deliver_at: i64,
    group: Option<Group>,
}

/// Memory of one message, in bytes: once by its time and once by its ordinal.
const ITEM_BYTES: usize = size_of::<(i64, u64)>() + size_of::<(u64, Item)>();

/// The delayed messages of a subscription.
#[derive(Debug)]
pub(super) struct Delayed {
    /// `None`: nothing is ever delayed.
    options: Option<DelayOptions>,
    by_time: BTreeSet<(i64, u64)>,
    items: OrdinalMap<Item>,
    /// The lowest ordinal that found no room.
    overflow_from: Option<u64>,
    /// Number of messages that found no room since reading last went back.
    overflow_count: u64,
}

impl Delayed {
    pub(super) fn new(options: Option<DelayOptions>) -> Self {
        Self {
            options,
            by_time: BTreeSet::new(),
            items: OrdinalMap::default(),
            overflow_from: None,
            overflow_count: 0,
        }
    }

    /// Sets the options; they apply to the waiting messages too.
    pub(super) fn set_options(&mut self, options: Option<DelayOptions>) {
        self.options = options;
    }

    /// Delayed messages, about: those that found no room count once per read.
    pub(super) fn len(&self) -> u64 {
        self.items.len() as u64 + self.overflow_count
    }

    /// Memory of what the index holds, spare room not counted.
    pub(super) fn index_bytes(&self) -> u64 {
        (self.items.len() * ITEM_BYTES) as u64
    }

    pub(super) fn contains(&self, ordinal: u64) -> bool {
        self.items.contains_key(&ordinal)
    }

    /// True if a message with this time has to wait.
    pub(super) fn is_early(&self, deliver_at: i64, now_ms: i64) -> bool {
        self.options
            .is_some_and(|options| deliver_at > now_ms.saturating_add(early_ms(&options)))
    }

    /// Adds a message that has to wait.
    pub(super) fn insert(&mut self, ordinal: u64, deliver_at: i64, group: Option<Group>) {
        self.by_time.insert((deliver_at, ordinal));
        self.items.insert(ordinal, Item { deliver_at, group });
        let room = self.options.map_or(0, |options| options.index_entries_max.max(1));
        if self.items.len() > room
            && let Some((_, latest)) = self.by_time.pop_last()
        {
            self.items.remove(&latest);
            self.overflow_from = Some(self.overflow_from.map_or(latest, |from| from.min(latest)));
            self.overflow_count += 1;
        }
    }

    pub(super) fn remove(&mut self, ordinal: u64) -> bool {
        let Some(item) = self.items.remove(&ordinal) else {
            return false;
        };
        self.by_time.remove(&(item.deliver_at, ordinal));
        shrink_if_empty(&mut self.items);
        true
    }

    /// Takes one message whose time has come, the earliest first.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<(u64, Option<Group>)> {
        let &(deliver_at, ordinal) = self.by_time.first()?;
        if self.is_early(deliver_at, now_ms) {
            return None;
        }
        self.by_time.pop_first();
        let item = self.items.remove(&ordinal)?;
        shrink_if_empty(&mut self.items);
        Some((ordinal, item.group))
    }

    /// The time of the earliest message. No consumer has to be woken before it: that one may come early is for what is looked
    /// at anyway, so that a second look is spared.
    pub(super) fn next_due(&self) -> Option<i64> {
        self.by_time.first().map(|&(deliver_at, _)| deliver_at)
    }

    /// Returns the ordinal to read again from for messages that found no room, once there is some.
    pub(super) fn take_overflow(&mut self) -> Option<u64> {
        if self.items.len() > self.options.map_or(0, |options| options.index_entries_max / 2) {
            return None;
        }
        self.overflow_count = 0;
        self.overflow_from.take()
    }

    /// Forgets what lies before `end`. Walks all of the index.
    pub(super) fn drop_before(&mut self, end: u64) {
        self.by_time.retain(|&(_, ordinal)| ordinal >= end);
        self.items.retain(|&ordinal, _| ordinal >= end);
        self.overflow_from = self.overflow_from.map(|from| from.max(end));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.options);
    }
}

/// Returns the time that a message may be delivered too early, in milliseconds.
fn early_ms(options: &DelayOptions) -> i64 {
    if options.strict { 0 } else { options.tick_ms }
}
