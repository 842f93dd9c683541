//! Simulated machine: its disk, the store on it, and what the test knows about both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter, OpenError};
use pharos_runtime::fs::FaultFs;
use pharos_runtime::random::Random;
use pharos_storage::manual::Manual;
use pharos_storage::offline::{Access, Offline, OfflineError};
use pharos_storage::{IoMode, Options, Preallocate};
use pharos_types::{EntryId, LedgerId};

use crate::Done;
use crate::model::{Expected, Fate, Model};
use crate::trouble::{self, Trouble};

const SECOND: u64 = 1_000_000_000;

pub(crate) struct Machine {
    pub(crate) fs: FaultFs,
    random: Random,
    pub(crate) model: Model,
    pub(crate) options: Options,
    pub(crate) done: Done,
    /// Faults besides crashes, full devices and failed syncs; none on a gentle machine.
    pub(crate) trouble: Option<Trouble>,
    /// Nothing more is to go wrong.
    is_quiet: bool,
    /// The device has lied.
    pub(crate) tainted: bool,
    /// Calls that had failed when this life began.
    failed_before: u64,
}

/// A running store.
pub(crate) struct Process {
    pub(crate) store: Manual,
    pub(crate) writers: BTreeMap<LedgerId, Arc<dyn LedgerWriter>>,
}

/// The process is dead; what it was about to do may or may not have happened.
pub(crate) struct Died;

pub(crate) type Alive<T> = Result<T, Died>;

fn numbered_dirs(name: &str, count: usize) -> Vec<PathBuf> {
    (0..count).map(|n| dir().join(format!("{name}{n}"))).collect()
}

pub(crate) fn dir() -> PathBuf {
    Path::new("/store").to_owned()
}

impl Machine {
    /// `gentle`: with nothing but crashes, full devices and failed syncs.
    pub(crate) fn new(seed: u64, gentle: bool) -> Self {
        let mut random = Random::new(seed);
        let direct = random.one_in(4);
        let options = Options {
            block_bytes: if direct { 4096 } else { 512 },
            io: if direct { IoMode::Direct } else { IoMode::Buffered },
            segment_bytes_first: if direct { 96 << 10 } else { 16 << 10 },
            segment_bytes: if direct { 128 << 10 } else { 32 << 10 },
            entry_bytes_max: 8 << 10,
            preallocate: if random.one_in(2) {
                Preallocate::ZeroFill
            } else {
                Preallocate::Reserve
            },
            group_bytes_max: if direct { 32 << 10 } else { 4096 << random.below(4) },
            group_entries_max: if random.one_in(3) { 3 } else { usize::MAX },
            journal_dirs: numbered_dirs("journal", 1 + random.below(3)),
            ledger_dirs: numbered_dirs("ledgers", 1 + random.below(2)),
            journal_bytes_max: 20 << 10 << random.below(4),
            journal_backups: random.below(2),
            // Like the removals below not drawn, so that seeds go on to mean what they meant.
            spare_segments: (seed % 3) as usize,
            journal_reserve_bytes: [0, 16 << 10, 24 << 10][(seed % 3) as usize],
            ledger_reserve_bytes: [0, 8 << 10, 40 << 10][(seed / 3 % 3) as usize],
            write_cache_bytes: 4 << 10 << random.below(5),
            flush_interval: Duration::from_secs(3),
            entry_log_bytes: 16 << 10 << random.below(3),
            removal_step_bytes: if seed.is_multiple_of(2) { 4 << 10 } else { 8 << 20 },
            removal_pause: Duration::from_millis(seed % 3),
            read_cache_bytes: if random.one_in(3) { 0 } else { 64 << 10 },
            minor_compaction_percent: 60,
            minor_compaction_interval: Duration::from_secs(2),
            major_compaction_percent: 90,
            major_compaction_interval: Duration::from_secs(5),
            compact_bytes_per_s: u64::MAX,
            ..Options::default()
        };
        Self {
            fs: if gentle {
                FaultFs::gentle(seed ^ 0x5eed)
            } else {
                FaultFs::new(seed ^ 0x5eed)
            },
            random,
            model: Model::default(),
            options,
            done: Done::default(),
            trouble: (!gentle).then(|| Trouble::new(seed)),
            is_quiet: false,
            tainted: false,
            failed_before: 0,
        }
    }

    /// Every change to the disk is told from now on.
    pub(crate) fn tell_steps(&self) {
        self.fs.tell_steps();
    }

    /// Starts, works, and dies or stops; then the machine loses power, or just starts the process again.
    pub(crate) fn live(&mut self) {
        if self.random.one_in(3) {
            // Early enough to hit the start itself.
            self.fs.die_in(self.random.below(40) as u64);
        } else {
            self.fs.die_in(40 + self.random.below(400) as u64);
        }
        if !self.random.one_in(8) {
            let _ = self.start_and_work();
        } else if let Ok(mut process) = self.start() {
            // Nothing but a start and a failing sync.
            self.fs.fail_sync_in(self.random.below(10) as u64);
            let _ = self.work(&mut process);
        }
        self.done.crashes += 1;
        self.done.within_a_change += u64::from(self.fs.is_dead());
        self.done.several_journals += u64::from(self.options.journal_dirs.len() > 1);
        self.done.ended_by_a_refusal += u64::from(self.has_reason() && !self.fs.is_dead());
        self.model.process_died();
        if self.random.one_in(4) {
            self.fs.restart();
        } else {
            self.fs.crash();
            self.model.machine_crashed();
        }
    }

    /// Starts without faults, whatever happened before: the store has what the model expects, and everything still
    /// works.
    pub(crate) fn final_check(&mut self) {
        self.is_quiet = true;
        let mut process = self.start().ok().expect("a start without faults");
        self.work(&mut process).ok().expect("work without faults");
        self.stop(&mut process).ok().expect("a stop without faults");
        drop(process);
        self.done.crashes += 1;
        self.fs.crash();
        self.model.machine_crashed();
        self.start().ok().expect("a start after a stop");
    }

    fn start_and_work(&mut self) -> Alive<()> {
        let mut process = self.start()?;
        self.work(&mut process)?;
        if self.random.one_in(2) {
            let stopped = self.stop(&mut process);
            self.done.within_a_stop += u64::from(self.fs.is_dead());
            stopped?;
        }
        Ok(())
    }

    /// Opens the store and compares it with the model; what is readable now must stay.
    pub(crate) fn start(&mut self) -> Alive<Process> {
        let seen = self.look_from_outside();
        self.failed_before = trouble::failed(&self.fs.counts());
        if let Some(trouble) = self.trouble.as_mut().filter(|_| !self.is_quiet) {
            trouble.start(&self.fs);
        }
        let store = match Manual::open(self.fs.mount(), &dir(), self.options.clone()) {
            Ok(store) => store,
            Err(_) if self.fs.is_dead() => {
                self.done.within_a_start += 1;
                return Err(Died);
            }
            Err(_) if self.has_reason() => {
                self.done.starts_refused += 1;
                return Err(Died);
            }
            Err(error) => panic!("cannot open: {error} {error:?}"),
        };
        self.fs.set_handles_max(None);
        let mut process = Process {
            store,
            writers: BTreeMap::new(),
        };
        let stats = process.store.storage.stats();
        assert_eq!(stats.damages, 0, "a crash is not damage");
        // One that the device does not let open is made again.
        assert!(
            stats.indexes_rebuilt == 0 || self.has_reason(),
            "an index is durable before it is needed"
        );
        let listed = process
            .store
            .run(Arc::clone(&process.store.storage).list())
            .unwrap();
        if let Some(seen) = seen {
            assert_eq!(seen, listed, "a check sees the same ledgers");
        }
        self.model.started(&listed);
        for (id, expected) in &mut self.model.ledgers {
            let found = listed.contains(id);
            match (expected.fate, found) {
                (Fate::Deleted, true) => panic!("ledger {id} came back"),
                (Fate::Exists | Fate::Sealed, false) => panic!("ledger {id} is gone"),
                (Fate::PerhapsDeleted, false) => expected.fate = Fate::Deleted,
                (Fate::PerhapsDeleted, true) => expected.fate = Fate::Exists,
                (Fate::Exists | Fate::Sealed, true) | (Fate::Deleted, false) => {}
            }
            if found {
                check_content(&mut process.store, *id, expected, true);
            }
        }
        if let Some(trouble) = self.trouble.as_mut().filter(|_| !self.is_quiet) {
            trouble.reads(&self.fs);
        }
        Ok(process)
    }

    /// Checks the files that a crash left: nothing may be lost. Returns the ledgers found.
    fn look_from_outside(&self) -> Option<Vec<LedgerId>> {
        let steps = self.fs.steps();
        let offline = match Offline::open_with(self.fs.mount(), &dir(), &self.options, Access::Look) {
            Ok(offline) => offline,
            Err(OfflineError::NoStore(_)) => return None,
            Err(error) => panic!("cannot check: {error}"),
        };
        let report = offline.check(&mut |_| {}).unwrap();
        assert!(report.is_clean(), "a crash is not damage: {report:#?}");
        assert_eq!(self.fs.steps(), steps, "a check writes nothing");
        Some(report.ledgers.iter().map(|(id, _)| *id).collect())
    }

    pub(crate) fn work(&mut self, process: &mut Process) -> Alive<()> {
        let worked = self.work_on(process);
        let stats = process.store.storage.stats();
        self.done.add_stats(&stats);
        worked
    }

    fn work_on(&mut self, process: &mut Process) -> Alive<()> {
        let steps = 20 + self.random.below(120);
        for _ in 0..steps {
            self.do_something(process)?;
            for (id, writer) in &process.writers {
                self.model.acknowledged(*id, writer.tail().borrow().durable);
            }
            if self.is_over(process) {
                return Err(Died);
            }
        }
        Ok(())
    }

    /// True if something has failed in this life, so that the store may have failed, too.
    fn has_reason(&self) -> bool {
        self.tainted || trouble::failed(&self.fs.counts()) > self.failed_before
    }

    /// True if the process is dead or the store writes no more, for which there must be a reason.
    fn is_over(&self, process: &Process) -> bool {
        let poisoned = process.store.storage.stats().poisoned;
        assert!(
            !poisoned || self.fs.is_dead() || self.has_reason(),
            "stopped without a reason"
        );
        poisoned || self.fs.is_dead()
    }

    fn do_something(&mut self, process: &mut Process) -> Alive<()> {
        match self.random.below(100) {
            0..6 => self.create(process),
            6..50 => self.append(process),
            50..66 => {
                let number = self.random.below(process.store.journals());
                process.store.step_journal(number);
                Ok(())
            }
            66..72 => {
                let number = self.random.below(process.store.journals());
                process.store.step_preparer(number);
                Ok(())
            }
            72..84 => {
                process.store.step_flusher();
                Ok(())
            }
            84..86 => {
                process.store.pass(SECOND + 1);
                Ok(())
            }
            86..89 => self.close(process),
            89..92 => self.recover(process),
            92..95 => self.delete(process),
            95..96 => {
                process.store.settle();
                Ok(())
            }
            96..97 => self.fill_the_device(process),
            _ => self.check_one(process),
        }
    }

    /// No room for a while: appends may be refused, and nothing else happens.
    fn fill_the_device(&mut self, process: &mut Process) -> Alive<()> {
        let room = self.random.below(30_000) as u64;
        self.fs.set_bytes_max(Some(self.fs.bytes() + room));
        for _ in 0..30 {
            let number = self.random.below(process.store.journals());
            match self.random.below(6) {
                0 => process.store.step_journal(number),
                1 => process.store.step_preparer(number),
                2..4 => process.store.step_flusher(),
                _ => self.append(process).is_ok(),
            };
        }
        self.fs.set_bytes_max(None);
        process.store.pass(SECOND);
        process.store.settle();
        Ok(())
    }

    /// An error is only fine when the disk gave a reason.
    fn outcome<T, E: std::fmt::Debug>(&self, process: &Process, answer: Result<T, E>) -> Alive<T> {
        answer.map_err(|error| {
            let reason = self.is_over(process) || self.has_reason();
            assert!(reason, "failed without a reason: {error:?}");
            Died
        })
    }

    pub(crate) fn create(&mut self, process: &mut Process) -> Alive<()> {
        let durability = match self.random.below(4) {
            0 => Durability::Async,
            1 => Durability::Bypass,
            _ => Durability::Sync,
        };
        let storage = Arc::clone(&process.store.storage);
        let created = process.store.run(storage.create(CreateOptions {
            durability,
            ..CreateOptions::default()
        }));
        match self.outcome(process, created) {
            Ok(writer) => {
                self.model.created(writer.id(), durability);
                process.writers.insert(writer.id(), writer);
                Ok(())
            }
            Err(died) => {
                self.model.unborn += 1;
                Err(died)
            }
        }
    }

    fn pick_writer(&mut self, process: &Process) -> Option<(LedgerId, Arc<dyn LedgerWriter>)> {
        let count = process.writers.len();
        let at = self.random.below(count.max(1));
        process
            .writers
            .iter()
            .nth(at)
            .map(|(id, writer)| (*id, Arc::clone(writer)))
    }

    fn append(&mut self, process: &mut Process) -> Alive<()> {
        let Some((id, writer)) = self.pick_writer(process) else {
            return self.create(process);
        };
        let bytes = match self.random.below(10) {
            0 => 1,
            1..7 => 1 + self.random.below(300),
            7..9 => 300 + self.random.below(2000),
            _ => 2000 + self.random.below(6000),
        };
        let mark = self.random.number().to_le_bytes();
        let payload: Bytes = mark
            .iter()
            .cycle()
            .take(bytes)
            .copied()
            .collect::<Vec<_>>()
            .into();
        let expected = self.model.ledgers.get_mut(&id).expect("a ledger of the model");
        // Before the call: the entry may be on disk even if the answer is lost.
        expected.appended.push(payload.clone());
        let appended = writer.append(payload);
        if let Err(AppendError::NoSpace { .. }) = &appended {
            expected.appended.pop();
            self.done.refused_for_space += 1;
            return Ok(());
        }
        let entry = self.outcome(process, appended)?;
        let expected = self.model.ledgers.get(&id).expect("a ledger of the model");
        assert_eq!(entry.0 as usize + 1, expected.appended.len(), "ids are dense");
        Ok(())
    }

    fn close(&mut self, process: &mut Process) -> Alive<()> {
        let Some((id, writer)) = self.pick_writer(process) else {
            return Ok(());
        };
        let closed = process.store.run(writer.close());
        self.outcome(process, closed)?;
        self.sealed(process, id, self.model.ledgers[&id].appended.len() as u64);
        Ok(())
    }

    fn sealed(&mut self, process: &mut Process, id: LedgerId, count: u64) {
        process.writers.remove(&id);
        let expected = self.model.ledgers.get_mut(&id).expect("a ledger of the model");
        let count = count as usize;
        assert!(
            (expected.seen..=expected.appended.len()).contains(&count),
            "ledger {id} sealed with {count} entries"
        );
        if expected.durability == Durability::Bypass && count > expected.kept {
            self.done.bypass_seals += 1;
        }
        expected.appended.truncate(count);
        (expected.kept, expected.kept_by_system, expected.seen) = (count, count, count);
        expected.fate = Fate::Sealed;
    }

    fn pick_ledger(&mut self) -> Option<LedgerId> {
        let exists = |e: &Expected| matches!(e.fate, Fate::Exists | Fate::Sealed);
        let existing = self.model.ledgers.iter().filter(|(_, e)| exists(e));
        let existing: Vec<LedgerId> = existing.map(|(id, _)| *id).collect();
        if existing.is_empty() {
            None
        } else {
            Some(existing[self.random.below(existing.len())])
        }
    }

    fn recover(&mut self, process: &mut Process) -> Alive<()> {
        let Some(id) = self.pick_ledger() else {
            return Ok(());
        };
        let storage = Arc::clone(&process.store.storage);
        let recovered = process.store.run(storage.recover(id));
        let sealed = self.outcome(process, recovered)?;
        self.sealed(process, id, sealed.entry_count);
        let bytes: usize = self.model.ledgers[&id].appended.iter().map(Bytes::len).sum();
        assert_eq!(sealed.bytes, bytes as u64);
        Ok(())
    }

    fn delete(&mut self, process: &mut Process) -> Alive<()> {
        let Some(id) = self.pick_ledger() else {
            return Ok(());
        };
        let storage = Arc::clone(&process.store.storage);
        let fate = |machine: &mut Self, fate| {
            machine
                .model
                .ledgers
                .get_mut(&id)
                .expect("a ledger of the model")
                .fate = fate;
        };
        fate(self, Fate::PerhapsDeleted);
        process.writers.remove(&id);
        let deleted = process.store.run(storage.delete(id));
        self.outcome(process, deleted)?;
        fate(self, Fate::Deleted);
        let recovered = process.store.run(storage.recover(id));
        assert!(
            matches!(recovered, Err(OpenError::NoSuchLedger(_))),
            "{recovered:?}"
        );
        Ok(())
    }

    fn check_one(&mut self, process: &mut Process) -> Alive<()> {
        let Some(id) = self.pick_ledger() else {
            return Ok(());
        };
        let reason = self.is_over(process) || self.has_reason();
        let expected = self.model.ledgers.get_mut(&id).expect("a ledger of the model");
        let whole = check_content(&mut process.store, id, expected, false);
        assert!(
            whole || reason || self.has_reason(),
            "cannot read without a reason"
        );
        Ok(())
    }

    fn stop(&mut self, process: &mut Process) -> Alive<()> {
        let storage = Arc::clone(&process.store.storage);
        process.store.run(storage.shutdown());
        for (id, writer) in &process.writers {
            self.model.acknowledged(*id, writer.tail().borrow().durable);
        }
        // Without room or files what is flushed at a stop stays where it is.
        if self.is_over(process) || self.has_reason() {
            return Err(Died);
        }
        for id in self.model.ledgers.keys().copied().collect::<Vec<_>>() {
            self.model.settled(id);
        }
        Ok(())
    }
}

/// Reads all of a ledger. After a start (`first_look`) it gets no more appends, so what is there is what stays. Later a
/// read may fail; `false` then.
fn check_content(store: &mut Manual, id: LedgerId, expected: &mut Expected, first_look: bool) -> bool {
    let storage = Arc::clone(&store.storage);
    let mut count = 0;
    loop {
        let found = match store.run(storage.read(id, EntryId(count as u64), 7, 5000)) {
            Ok(found) => found,
            Err(_) if !first_look => return false,
            Err(error) => panic!("ledger {id} cannot be read at {count}: {error}"),
        };
        if found.is_empty() {
            break;
        }
        for entry in found {
            assert_eq!(entry.id, EntryId(count as u64));
            assert_eq!(
                Some(&entry.payload),
                expected.appended.get(count),
                "entry {count} of ledger {id}"
            );
            count += 1;
        }
    }
    assert!(
        count >= expected.seen,
        "ledger {id} has {count} entries, {} were kept ({:?}, {:?})",
        expected.seen,
        expected.durability,
        expected.fate
    );
    if first_look {
        let sealed = expected.fate == Fate::Sealed;
        assert!(
            !sealed || count == expected.kept_by_system,
            "sealed ledger {id} has changed"
        );
        expected.appended.truncate(count);
        (expected.kept, expected.kept_by_system, expected.seen) = (count, count, count);
    }
    true
}
