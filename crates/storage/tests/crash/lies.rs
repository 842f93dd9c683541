//! Guarantees of a store on a device that lied, or that cannot read any more: nothing is lost silently.
//!
//! A read answers an error or the right bytes. A ledger that has fewer entries than were kept reports it when it is
//! recovered, and a check of the files calls it damage. Only the loss of the last write cannot be noticed at all, so
//! each journal gets something more, on a device that is honest again, before the machine loses power.

use std::sync::Arc;

use pharos_ledger::{LedgerEngine, ReadError};
use pharos_storage::manual::Manual;
use pharos_storage::offline::{Access, Offline};
use pharos_types::{EntryId, LedgerId};

use crate::life::{Alive, Died, Machine, dir};
use crate::model::{Expected, Fate};

impl Machine {
    /// A life on a device that lies, or one that cannot read a stretch afterwards; then a look at what is left.
    pub(crate) fn lied_to(&mut self) {
        let Some(trouble) = &mut self.trouble else { return };
        let lies = trouble.random().one_in(2);
        // Where it stopped by itself, what it had written last may be gone without a word.
        let has_more = self.live_with_lies(lies).is_ok();
        self.done.lies_found_at_work += u64::from(!has_more);
        self.model.process_died();
        let drops = self.random_of_trouble(2) == 0;
        if drops && lies {
            self.fs.drop_caches();
            self.fs.restart();
        } else {
            self.fs.crash();
            self.model.machine_crashed();
        }
        if !lies {
            let trouble = self.trouble.as_mut().expect("there is trouble");
            trouble.bad_range(&self.fs);
        }
        self.done.crashes += 1;
        self.look_at_what_is_left(lies, has_more);
    }

    fn random_of_trouble(&mut self, end: usize) -> usize {
        self.trouble
            .as_mut()
            .map_or(0, |trouble| trouble.random().below(end))
    }

    fn live_with_lies(&mut self, lies: bool) -> Alive<()> {
        let mut process = self.start()?;
        if let Some(trouble) = self.trouble.as_mut().filter(|_| lies) {
            trouble.lie(&self.fs);
        }
        self.tainted = true;
        self.work(&mut process)?;
        self.fs.forget_plans();
        for _ in 0..4 * process.store.journals() {
            self.create(&mut process)?;
        }
        process.store.settle();
        for (id, writer) in &process.writers {
            self.model.acknowledged(*id, writer.tail().borrow().durable);
        }
        if process.store.storage.stats().poisoned {
            Err(Died)
        } else {
            Ok(())
        }
    }

    fn look_at_what_is_left(&mut self, lies: bool, has_more: bool) {
        let found = Offline::open_with(self.fs.mount(), &dir(), &self.options, Access::Look)
            .and_then(|offline| offline.check(&mut |_| {}));
        let said = match &found {
            Ok(report) => !report.is_clean(),
            Err(_) => true,
        };
        self.done.lies_called_damage += u64::from(said);
        let Ok(mut store) = Manual::open(self.fs.mount(), &dir(), self.options.clone()) else {
            assert!(said, "a store that cannot be opened is whole to a check");
            return;
        };
        let storage = Arc::clone(&store.storage);
        let listed = store.run(Arc::clone(&storage).list()).expect("a list");
        for (id, expected) in &self.model.ledgers {
            match (expected.fate, listed.contains(id)) {
                (Fate::Deleted, true) => {
                    assert!(said || !has_more, "ledger {id} came back, and no check says so")
                }
                (Fate::Exists | Fate::Sealed, false) => {
                    assert!(
                        said || !has_more,
                        "ledger {id} is gone, and no check says so: {found:#?}"
                    );
                }
                (Fate::PerhapsDeleted | Fate::Deleted, _) => {}
                (Fate::Exists | Fate::Sealed, true) => {
                    let told = look_at(&mut store, *id, expected, has_more);
                    // A reader reads more at once than a check, so it may meet a stretch that cannot be read near its entry.
                    assert!(
                        !told || said || !lies,
                        "ledger {id} lacks entries, and a check does not say so: {found:#?}"
                    );
                    self.done.lies_told_to_readers += u64::from(told);
                }
            }
        }
    }
}

/// Reads what can be read of a ledger. Says whether the store told of something that is not there. `has_more`: what was written
/// last was not the device's lie.
fn look_at(store: &mut Manual, id: LedgerId, expected: &Expected, has_more: bool) -> bool {
    let storage = Arc::clone(&store.storage);
    let (mut at, mut failed) = (0, false);
    while at < expected.appended.len() {
        match store.run(storage.read(id, EntryId(at as u64), 1, 5000)) {
            Ok(found) => {
                let Some(entry) = found.first() else { break };
                assert_eq!(entry.id, EntryId(at as u64));
                assert_eq!(entry.payload, expected.appended[at], "entry {at} of ledger {id}");
            }
            Err(ReadError::NoSuchLedger(_)) => break,
            Err(_) => failed = true,
        }
        at += 1;
    }
    if !failed && (at >= expected.kept || !has_more) {
        return false;
    }
    if failed {
        return true;
    }
    let recovered = store.run(storage.recover(id));
    assert!(
        recovered.is_err(),
        "ledger {id} has {at} entries, {} were kept ({:?}), and says nothing of it: {recovered:?}",
        expected.kept,
        expected.durability,
    );
    true
}
