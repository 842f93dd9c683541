//! The state that a cursor ledger amounts to, in memory.
//!
//! Always true: every cursor's subscription exists and lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use pharos_types::Ordinal;

use super::QueueError;
use super::record::{
    Record, SNAPSHOT, Slot, Stored, SubscriptionId, decode, encode_cursor, encode_note, encode_snapshot_end,
    encode_subscription, encode_system_cursor, take_part,
};
use crate::cursor::{AckState, Malformed};

/// A subscription as persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub name: Box<str>,
    /// Kind of subscription; opaque here, defined by the broker.
    pub kind: u8,
    /// Its properties.
    pub properties: BTreeMap<String, String>,
    /// Further state that the broker restores; opaque here.
    pub facts: Box<[u8]>,
    /// Its cursors.
    pub slots: BTreeSet<Slot>,
}

/// A cursor as persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Subscription of the cursor.
    pub subscription: SubscriptionId,
    /// Name of the consumer; empty for the subscription's main cursor.
    pub consumer: Box<str>,
    /// Further state that the broker restores; opaque here.
    pub facts: Box<[u8]>,
    /// Acknowledgement state.
    pub acks: AckState,
}

/// A durable cursor that is no subscription: up to where the broker itself has processed a topic, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCursor {
    /// Everything before this is processed.
    pub position: Ordinal,
    /// Properties that its owner restores.
    pub properties: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mirror {
    /// Boxed: most topics have one or two, and a node of the tree has room for eleven.
    pub(super) subscriptions: BTreeMap<SubscriptionId, Box<Subscription>>,
    pub(super) cursors: BTreeMap<Slot, Cursor>,
    /// By name; most topics have none.
    pub(super) system_cursors: BTreeMap<Box<str>, SystemCursor>,
    /// Notes: values that belong to no cursor.
    pub(super) notes: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// Removed slots, to be used again.
    slots_removed: BTreeSet<Slot>,
}

/// State of a replay so far.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) mirror: Mirror,
    pub(super) is_snapshot_whole: bool,
}

impl Replay {
    /// Applies one entry of a cursor ledger.
    pub(super) fn on_entry(&mut self, mut input: &[u8]) -> Result<(), Malformed> {
        let is_snapshot = take_part(&mut input)?;
        if is_snapshot == self.is_snapshot_whole {
            return Err(Malformed("snapshot and changes are out of order"));
        }
        while !input.is_empty() {
            match decode(&mut input)? {
                Stored::Record(record) => {
                    self.mirror
                        .check(&record)
                        .map_err(|_| Malformed("record does not fit those before"))?;
                    self.mirror.apply(record);
                }
                Stored::Advanced { slot, by } => self.mirror.advance(slot, by)?,
                Stored::SnapshotEnd {
                    subscriptions,
                    cursors,
                    system_cursors,
                } => {
                    let found = [
                        self.mirror.subscriptions.len() as u64,
                        self.mirror.cursors.len() as u64,
                        self.mirror.system_cursors.len() as u64,
                    ];
                    let are_all = found == [subscriptions, cursors, system_cursors];
                    if !is_snapshot || !input.is_empty() || !are_all {
                        return Err(Malformed("snapshot ends early or late"));
                    }
                    self.is_snapshot_whole = true;
                }
            }
        }
        Ok(())
    }
}

impl Mirror {
    /// Checks that `record` fits the state.
    pub(super) fn check(&self, record: &Record) -> Result<(), QueueError> {
        let subscription_exists = |id: &SubscriptionId| match self.subscriptions.contains_key(id) {
            true => Ok(()),
            false => Err(QueueError::NoSubscription(*id)),
        };
        match record {
            Record::SubscriptionCreated { subscription, .. } => {
                if self.subscriptions.contains_key(subscription) {
                    Err(QueueError::InUse)
                } else {
                    Ok(())
                }
            }
            Record::SubscriptionChanged { subscription, .. }
            | Record::SubscriptionRemoved { subscription } => subscription_exists(subscription),
            Record::CursorCreated {
                slot, subscription, ..
            } => {
                subscription_exists(subscription)?;
                if self.cursors.contains_key(slot) {
                    Err(QueueError::InUse)
                } else {
                    Ok(())
                }
            }
            Record::CursorMoved { slot, .. }
            | Record::CursorFacts { slot, .. }
            | Record::CursorRemoved { slot } => {
                if self.cursors.contains_key(slot) {
                    Ok(())
                } else {
                    Err(QueueError::NoCursor(*slot))
                }
            }
            Record::SystemCursorPut { .. } => Ok(()),
            Record::SystemCursorRemoved { name } => {
                if self.system_cursors.contains_key(&**name) {
                    Ok(())
                } else {
                    Err(QueueError::NoSystemCursor(name.clone()))
                }
            }
            Record::Noted { .. } | Record::NotesRemoved { .. } => Ok(()),
        }
    }

    /// Applies a record that was checked.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::SubscriptionCreated {
                subscription,
                name,
                kind,
                properties,
                facts,
            } => {
                let (name, facts) = (name.into_boxed_str(), facts.into_boxed_slice());
                let created = Subscription {
                    name,
                    kind,
                    properties,
                    facts,
                    slots: BTreeSet::new(),
                };
                self.subscriptions.insert(subscription, Box::new(created));
            }
            Record::SubscriptionChanged {
                subscription,
                kind,
                properties,
                facts,
            } => {
                if let Some(changed) = self.subscriptions.get_mut(&subscription) {
                    (changed.kind, changed.properties, changed.facts) = (kind, properties, facts.into());
                }
            }
            Record::SubscriptionRemoved { subscription } => {
                let removed = self.subscriptions.remove(&subscription);
                for slot in removed.into_iter().flat_map(|removed| removed.slots) {
                    self.remove_cursor(slot);
                }
            }
            Record::CursorCreated {
                slot,
                subscription,
                consumer,
                facts,
                acks,
            } => {
                if let Some(owner) = self.subscriptions.get_mut(&subscription) {
                    owner.slots.insert(slot);
                }
                self.slots_removed.remove(&slot);
                let (consumer, facts) = (consumer.into_boxed_str(), facts.into_boxed_slice());
                self.cursors.insert(
                    slot,
                    Cursor {
                        subscription,
                        consumer,
                        facts,
                        acks,
                    },
                );
            }
            Record::CursorMoved { slot, acks } => {
                if let Some(cursor) = self.cursors.get_mut(&slot) {
                    cursor.acks = acks;
                }
            }
            Record::CursorFacts { slot, facts } => {
                if let Some(cursor) = self.cursors.get_mut(&slot) {
                    cursor.facts = facts.into();
                }
            }
            Record::CursorRemoved { slot } => self.remove_cursor(slot),
            Record::SystemCursorPut {
                name,
                position,
                properties,
            } => {
                let put = SystemCursor { position, properties };
                self.system_cursors.insert(name.into_boxed_str(), put);
            }
            Record::SystemCursorRemoved { name } => _ = self.system_cursors.remove(&*name),
            Record::Noted { key, value } => {
                self.notes.insert(key.into(), value.into());
            }
            Record::NotesRemoved { prefix } => {
                let keys: Vec<Box<[u8]>> = self.notes_under(&prefix).map(|(key, _)| key.into()).collect();
                for key in keys {
                    self.notes.remove(&key);
                }
            }
        }
    }

    /// The notes whose keys begin so, in the order of their keys.
    pub(super) fn notes_under(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let notes = self.notes.range::<[u8], _>(from);
        let under = notes.take_while(move |(key, _)| key.starts_with(prefix));
        under.map(|(key, value)| (&**key, &**value))
    }

    /// The state that a `CursorMoved` replaces.
    pub(super) fn acks_before(&self, record: &Record) -> Option<&AckState> {
        let Record::CursorMoved { slot, .. } = record else {
            return None;
        };
        self.cursors.get(slot).map(|cursor| &cursor.acks)
    }

    fn advance(&mut self, slot: Slot, by: u64) -> Result<(), Malformed> {
        let cursor = self
            .cursors
            .get_mut(&slot)
            .ok_or(Malformed("an unknown cursor advances"))?;
        let to = cursor
            .acks
            .acked_to()
            .0
            .checked_add(by)
            .filter(|_| !cursor.acks.has_holes());
        cursor.acks = AckState::new(Ordinal(to.ok_or(Malformed("a cursor cannot advance that way"))?));
        Ok(())
    }

    fn remove_cursor(&mut self, slot: Slot) {
        if let Some(cursor) = self.cursors.remove(&slot) {
            self.slots_removed.insert(slot);
            if let Some(owner) = self.subscriptions.get_mut(&cursor.subscription) {
                owner.slots.remove(&slot);
            }
        }
    }

    pub(super) fn slot_free(&self) -> Slot {
        let after_last = || self.cursors.last_key_value().map_or(0, |(last, _)| last.0 + 1);
        self.slots_removed
            .first()
            .copied()
            .unwrap_or_else(|| Slot(after_last()))
    }

    pub(super) fn subscription_free(&self) -> SubscriptionId {
        SubscriptionId(
            self.subscriptions
                .last_key_value()
                .map_or(0, |(last, _)| last.0 + 1),
        )
    }

    /// Fits all cursors to a log of `first..end`. Whether a cursor knew something beyond the end.
    pub(super) fn fit_to(&mut self, first: Ordinal, end: Ordinal) -> bool {
        let mut is_clamped = false;
        for cursor in self.cursors.values_mut() {
            is_clamped |= cursor.acks.clamp_to(end);
            cursor.acks.raise_to(first);
        }
        for cursor in self.system_cursors.values_mut() {
            is_clamped |= cursor.position > end;
            cursor.position = cursor.position.min(end).max(first);
        }
        is_clamped
    }

    /// Everything, as entries of about `entry_bytes` each, at least one.
    pub(super) fn snapshot(&self, entry_bytes: usize) -> Vec<Vec<u8>> {
        let mut entries = Vec::new();
        let mut entry = SNAPSHOT.to_vec();
        let mut split = |entry: &mut Vec<u8>| {
            if entry.len() >= entry_bytes {
                entries.push(std::mem::replace(entry, SNAPSHOT.to_vec()));
            }
        };
        for (id, subscription) in &self.subscriptions {
            let Subscription {
                name,
                kind,
                properties,
                facts,
                ..
            } = &**subscription;
            encode_subscription(*id, name, *kind, properties, facts, &mut entry);
            split(&mut entry);
        }
        for (slot, cursor) in &self.cursors {
            let Cursor {
                subscription,
                consumer,
                facts,
                acks,
            } = cursor;
            encode_cursor(*slot, *subscription, consumer, facts, acks, &mut entry);
            split(&mut entry);
        }
        for (key, value) in &self.notes {
            encode_note(key, value, &mut entry);
            split(&mut entry);
        }
        for (name, cursor) in &self.system_cursors {
            encode_system_cursor(name, cursor.position, &cursor.properties, &mut entry);
            split(&mut entry);
        }
        let counts = (self.subscriptions.len(), self.cursors.len());
        encode_snapshot_end(counts.0, counts.1, self.system_cursors.len(), &mut entry);
        entries.push(entry);
        entries
    }
}
