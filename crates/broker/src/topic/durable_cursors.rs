//! The cursors that hold a topic's data: their places, what is stored of them, and how low the lowest stands.
//!
//! Three things that must agree are changed together here and nowhere else: the places ([`Slots`]), the records in the cursor
//! log, and the marks by which ledgers are trimmed.
//!
//! Always true: every place that is not dropped is counted in the marks at what was last heard of it, which is no later than what
//! was queued for the log, so trimming never outruns a cursor. A record that the log refuses is said to the caller at once.

use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::{self, CursorLog, QueueError, Record};
use pharos_runtime::clock;
use pharos_types::Ordinal;

use super::absence::Presence;
use super::cursor_store;
use crate::feed::slots::{Slot, Slots};
use crate::feed::{Marks, Moment};
use crate::ids::SlotId;

/// The durable cursors of a topic.
pub(crate) struct DurableCursors {
    log: CursorLog,
    slots: Slots,
    marks: Marks,
    /// Where cursors stood whose end is queued. They are still in the marks: after a crash before that is durable they are there.
    ending: Vec<Ordinal>,
}

impl DurableCursors {
    /// Of a topic whose cursor log was just opened; nothing is restored yet.
    pub(super) fn new(log: CursorLog) -> Self {
        Self {
            log,
            slots: Slots::default(),
            marks: Marks::default(),
            ending: Vec::new(),
        }
    }

    /// The log, for what is stored.
    pub(crate) fn log(&self) -> &CursorLog {
        &self.log
    }

    /// The log, for commits and its maintenance.
    pub(super) fn log_mut(&mut self) -> &mut CursorLog {
        &mut self.log
    }

    /// What is known of one place.
    pub(crate) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id)
    }

    /// Where the lowest stands; `None` when there are none.
    pub(crate) fn lowest(&self) -> Option<Ordinal> {
        self.marks.lowest()
    }

    /// Puts places back as the log knows them.
    pub(super) fn restore(&mut self, slots: Vec<(SlotId, Slot)>) {
        for (_, slot) in slots.iter().filter(|(_, slot)| !slot.dropped) {
            self.marks.add(slot.acked_to());
        }
        self.slots.restore_all(slots);
    }

    /// Queues a record that concerns no place.
    ///
    /// # Errors
    /// The log refused it: what is known here and what is stored have parted.
    pub(super) fn queue(&mut self, record: Record) -> Result<(), QueueError> {
        self.log.queue(record)
    }

    /// Takes a place for a cursor of a subscription, and queues its record. The place is taken even if the log refused that.
    pub(super) fn add(
        &mut self,
        member: Option<&str>,
        subscription: u32,
        acks: AckState,
    ) -> (SlotId, Result<(), QueueError>) {
        let id = self.take_place(acks.clone(), true);
        let record = cursor_store::cursor_created(id, subscription, member, acks);
        (id, self.queue(record))
    }

    /// Takes a place that ends with its consumer: counted for trimming, but not in the log.
    pub(super) fn add_passing(&mut self, acks: AckState) -> SlotId {
        self.take_place(acks, false)
    }

    fn take_place(&mut self, acks: AckState, logged: bool) -> SlotId {
        self.marks.add(acks.acked_to());
        self.slots.add(Slot {
            acks,
            logged,
            dropped: false,
            advanced: Moment::default(),
        })
    }

    /// A cursor moved.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn moved(&mut self, id: SlotId, acks: &AckState) -> Result<(), QueueError> {
        let Some(slot) = self.slots.get_mut(id) else {
            return Ok(());
        };
        let before = slot.acked_to();
        slot.acks.clone_from(acks);
        if before < acks.acked_to() {
            slot.advanced = Moment::at(clock::now());
        }
        if !slot.dropped {
            self.marks.moved(before, acks.acked_to());
        }
        match slot.logged {
            true => self.queue(cursor_store::cursor_moved(id, acks.clone())),
            false => Ok(()),
        }
    }

    /// A cursor is gone.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn remove(&mut self, id: SlotId) -> Result<(), QueueError> {
        let Some(slot) = self.slots.remove(id) else {
            return Ok(());
        };
        if !slot.dropped {
            self.marks.remove(slot.acked_to());
        }
        match slot.logged {
            true => self.queue(cursor_store::cursor_removed(id)),
            false => Ok(()),
        }
    }

    /// A subscription is gone with all its cursors, in one record. What they held they hold until [`let_go`](Self::let_go).
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn remove_all(&mut self, slots: Vec<SlotId>, subscription: u32) -> Result<(), QueueError> {
        let gone = slots.into_iter().filter_map(|id| self.slots.remove(id));
        let holding = gone.filter(|slot| !slot.dropped).map(|slot| slot.acked_to());
        self.ending.extend(holding);
        self.queue(cursor_store::subscription_removed(subscription))
    }

    /// Whether cursors hold something whose end is queued and not known to be durable.
    pub(super) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Where those stood whose end the next commit makes durable.
    pub(super) fn take_ending(&mut self) -> Vec<Ordinal> {
        std::mem::take(&mut self.ending)
    }

    /// That commit failed.
    pub(super) fn put_back_ending(&mut self, ending: Vec<Ordinal>) {
        self.ending.extend(ending);
    }

    /// That commit is durable.
    pub(super) fn let_go(&mut self, ending: &[Ordinal]) {
        for place in ending {
            self.marks.remove(*place);
        }
    }

    /// Takes a place from its absent consumer: it holds nothing back any more, but the name stays known.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn give_up(&mut self, id: SlotId, presence: Presence) -> Result<(), QueueError> {
        let Some(slot) = self.slots.get_mut(id) else {
            return Ok(());
        };
        if std::mem::replace(&mut slot.dropped, true) {
            return Ok(());
        }
        let place = slot.acked_to();
        self.marks.remove(place);
        self.queue(cursor_store::cursor_facts(id, presence.to_facts()))
    }

    /// Gives a consumer that lost its place one again.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn revive(&mut self, id: SlotId, acks: &AckState) -> Result<(), QueueError> {
        let Some(slot) = self.slots.get_mut(id) else {
            return Ok(());
        };
        slot.dropped = false;
        slot.acks.clone_from(acks);
        self.marks.add(acks.acked_to());
        self.queue(cursor_store::cursor_facts(id, Presence::Here.to_facts()))?;
        self.queue(cursor_store::cursor_moved(id, acks.clone()))
    }

    /// Stores whether the consumer of a logged cursor is there, unless it is stored so already.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub(super) fn store_presence(&mut self, id: SlotId, presence: Presence) -> Result<(), QueueError> {
        let facts = presence.to_facts();
        let stored = self.log.cursor(cursor_log::Slot(id.0));
        match stored.is_some_and(|cursor| *cursor.facts != *facts) {
            true => self.queue(cursor_store::cursor_facts(id, facts)),
            false => Ok(()),
        }
    }
}
