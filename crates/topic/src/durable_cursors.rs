//! The cursors that hold a topic's data: their places, what is stored of them, and how low the lowest stands.
//!
//! Three things that must agree are changed together here and nowhere else: the places ([`Slots`]), the records in the cursor
//! log, and the marks by which ledgers are trimmed.
//!
//! Always true: every place that is not dropped is counted in the marks at what was last heard of it, which is no later than what
//! was queued for the log, so trimming never outruns a cursor. A record that the log refuses is said to the caller at once.
//!
//! *System cursors* are the broker's own: no subscriptions, counted for trimming and for nothing else, and there at the place that is
//! durable, because the broker reads again from there after a crash.

use std::collections::BTreeMap;

use pharos_feed::ids::SlotId;
use pharos_feed::slots::{Slot, Slots};
use pharos_feed::{Marks, Moment};
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::{self, CursorLog, QueueError, Record, SystemCursor};
use pharos_runtime::clock;
use pharos_transactions::keys;
use pharos_types::Ordinal;

use super::absence::Presence;
use super::cursor_store;

/// The durable cursors of a topic.
pub(crate) struct DurableCursors {
    log: CursorLog,
    slots: Slots,
    marks: Marks,
    /// Positions of the system cursors.
    system_marks: Marks,
    /// Positions that are released once the queued records are durable.
    ending: Ending,
}

/// Positions of cursors whose end is queued, and of system cursors moved since. They remain in the marks: after a
/// crash before the records are durable, the cursors are still there.
#[derive(Default)]
pub(super) struct Ending {
    cursors: Vec<Ordinal>,
    system: Vec<Ordinal>,
}

impl Ending {
    /// True if no end is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty() && self.system.is_empty()
    }
}

impl DurableCursors {
    /// Cursors of a topic whose cursor log was just opened; nothing is restored yet.
    pub(super) fn new(log: CursorLog) -> Self {
        let mut system_marks = Marks::default();
        for cursor in log.system_cursors().values() {
            system_marks.add(cursor.position);
        }
        Self {
            log,
            slots: Slots::default(),
            marks: Marks::default(),
            system_marks,
            ending: Ending::default(),
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

    /// State of one slot.
    pub(crate) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id)
    }

    /// Lowest position of the subscriptions' cursors; `None` without any.
    pub(crate) fn lowest(&self) -> Option<Ordinal> {
        self.marks.lowest()
    }

    /// Lowest position of all cursors, of subscriptions and of the system, of the latter as far as durable; `None`
    /// without any. No cursor holds anything before it.
    pub(super) fn lowest_of_all(&self) -> Option<Ordinal> {
        let lowest = [self.marks.lowest(), self.system_marks.lowest()];
        lowest.into_iter().flatten().min()
    }

    /// A system cursor, as queued last.
    pub(super) fn system_cursor(&self, name: &str) -> Option<&SystemCursor> {
        self.log.system_cursors().get(name)
    }

    /// Makes a system cursor, or moves it and replaces its properties; one record. `position`: everything before it is processed, and
    /// durable. It holds back trimming at its place before until the next commit is durable.
    ///
    /// # Errors
    /// Nothing changed. [`QueueError::TooLarge`], where the properties exceed what one record takes.
    pub(super) fn put_system_cursor(
        &mut self,
        name: &str,
        position: Ordinal,
        properties: BTreeMap<String, i64>,
    ) -> Result<(), QueueError> {
        let before = self.system_cursor(name).map(|cursor| cursor.position);
        self.queue(cursor_store::system_cursor_put(name, position, properties))?;
        self.system_marks.add(position);
        self.ending.system.extend(before);
        Ok(())
    }

    /// Removes a system cursor, if it is there. It holds back trimming until the next commit is durable.
    ///
    /// # Errors
    /// Nothing changed.
    pub(super) fn remove_system_cursor(&mut self, name: &str) -> Result<(), QueueError> {
        let Some(before) = self.system_cursor(name).map(|cursor| cursor.position) else {
            return Ok(());
        };
        self.queue(cursor_store::system_cursor_removed(name))?;
        self.ending.system.push(before);
        Ok(())
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
        self.ending.cursors.extend(holding);
        let prefix = keys::pending_in(subscription);
        if self.log.notes(&prefix).next().is_some() {
            self.queue(Record::NotesRemoved { prefix })?;
        }
        self.queue(cursor_store::subscription_removed(subscription))
    }

    /// True if cursors hold entries whose release is queued and not known to be durable.
    pub(super) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Takes the positions whose release the next commit makes durable.
    pub(super) fn take_ending(&mut self) -> Ending {
        std::mem::take(&mut self.ending)
    }

    /// Restores the positions after that commit failed.
    pub(super) fn put_back_ending(&mut self, ending: Ending) {
        self.ending.cursors.extend(ending.cursors);
        self.ending.system.extend(ending.system);
    }

    /// Releases the positions once that commit is durable.
    pub(super) fn let_go(&mut self, ending: &Ending) {
        for place in &ending.cursors {
            self.marks.remove(*place);
        }
        for place in &ending.system {
            self.system_marks.remove(*place);
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use pharos_ledger::memory::MemoryEngine;
    use pharos_managed_ledger::{ManagedLedger, OpenMode, Options};
    use pharos_metadata::Memory;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("nothing in memory waits"),
        }
    }

    fn open(engine: &MemoryEngine, metadata: &Arc<Memory>) -> (ManagedLedger, DurableCursors) {
        let (engine, metadata) = (Arc::new(engine.clone()), Arc::clone(metadata));
        let opened = ManagedLedger::open("t", engine, metadata, Options::default(), OpenMode::Create, 0);
        let ledger = run(opened).unwrap();
        let log = run(cursor_store::open(&ledger)).unwrap();
        (ledger, DurableCursors::new(log))
    }

    fn commit(cursors: &mut DurableCursors) {
        let ending = cursors.take_ending();
        let ticket = cursors.log_mut().commit();
        while let Some(step) = cursors.log_mut().take_maintenance(0) {
            let done = run(step);
            cursors.log_mut().on_maintenance(done, 0);
        }
        run(ticket.durable()).unwrap();
        cursors.let_go(&ending);
    }

    #[test]
    fn a_system_cursor_holds_at_its_durable_place_and_is_none_of_the_subscriptions() {
        let (engine, metadata) = (MemoryEngine::new(), Arc::default());
        let (mut ledger, mut cursors) = open(&engine, &metadata);
        for _ in 0..10 {
            ledger.append(Bytes::from("x")).unwrap();
        }
        let properties = |value| BTreeMap::from([("p".to_owned(), value)]);
        cursors.put_system_cursor("s", Ordinal(2), properties(1)).unwrap();
        commit(&mut cursors);
        assert_eq!(
            (cursors.lowest(), cursors.lowest_of_all()),
            (None, Some(Ordinal(2)))
        );
        cursors.put_system_cursor("s", Ordinal(5), properties(2)).unwrap();
        cursors.put_system_cursor("s", Ordinal(7), properties(3)).unwrap();
        assert_eq!(
            cursors.lowest_of_all(),
            Some(Ordinal(2)),
            "the move is not durable"
        );
        // A commit that fails gives back what it took.
        let ending = cursors.take_ending();
        cursors.put_back_ending(ending);
        commit(&mut cursors);
        assert_eq!(cursors.lowest_of_all(), Some(Ordinal(7)));
        let (_, mut cursors) = open(&engine.crash(), &metadata);
        assert_eq!(cursors.lowest_of_all(), Some(Ordinal(7)), "it comes back");
        assert_eq!(cursors.system_cursor("s").unwrap().properties, properties(3));
        cursors.remove_system_cursor("s").unwrap();
        assert!(cursors.system_cursor("s").is_none());
        assert_eq!(
            cursors.lowest_of_all(),
            Some(Ordinal(7)),
            "its end is not durable"
        );
        commit(&mut cursors);
        assert_eq!(cursors.lowest_of_all(), None);
        cursors.remove_system_cursor("s").unwrap();
        assert!(!cursors.is_ending());
    }
}
