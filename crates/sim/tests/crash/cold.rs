//! Closed ledgers in a folder on the machine's one disk: who offloads, and what the folder holds whenever a life begins.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pharos_ledger::offload::{
    LedgerOffloader, OffloadError, OffloadId, OffloadPolicy, OffloadSource, OffloadedLedger, ReadFirst,
};
use pharos_ledger::{BoxFuture, ReadEntry};
use pharos_managed_ledger::{GARBAGE_PREFIX, INFO_PREFIX, ManagedLedgerInfo, noted_objects};
use pharos_offload::{Offloader, Options, drivers};
use pharos_runtime::fs::FaultFs;
use pharos_runtime::random::Random;
use pharos_types::EntryId;

use crate::process::{Alive, Died, Process};

/// Share of seeds with a folder: one in this many.
const SEEDS: u64 = 4;
const FOLDERS_IN: &str = "/cold";
const FOLDER: &str = "/cold/ledgers";

/// The offloader of one machine, of which each process starts its own. Its chance is its own, so that the rest of a history does
/// not hang on it.
#[derive(Clone)]
pub(crate) struct Cold {
    random: Random,
    pub(crate) policy: OffloadPolicy,
    block_bytes: usize,
}

/// An offloader whose ids come from the seed.
#[derive(Debug)]
pub(crate) struct Seeded {
    pub(crate) real: Offloader,
    random: Mutex<Random>,
}

impl Cold {
    /// Returns the folder of a seed, if it has one. Ledgers that the policy does not offload, an administrator does.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        if !seed.is_multiple_of(SEEDS) {
            return None;
        }
        let mut random = Random::new(seed ^ 0xc01d);
        let by_size = random.one_in(2).then(|| random.below(3) as u64 * 600);
        let policy = OffloadPolicy {
            target: Some(drivers::folder(Path::new(FOLDER))),
            bytes_kept: by_size,
            age_ms_max: random.one_in(2).then(|| random.below(4) as u64 * 1000),
            deletion_lag_ms: (!random.one_in(6)).then(|| random.below(4) as u64 * 1000),
            read_first: *random
                .pick(&[ReadFirst::Tiered, ReadFirst::Local])
                .unwrap_or(&ReadFirst::Tiered),
        };
        Some(Self {
            policy,
            block_bytes: 500 << random.below(5),
            random,
        })
    }

    /// Starts the threads of a process. Nothing is read or written yet.
    pub(crate) fn start(&mut self, fs: &FaultFs) -> Arc<Seeded> {
        let options = Options {
            block_bytes: self.block_bytes,
            folders_in: Some(FOLDERS_IN.into()),
            fs: fs.mount(),
            ..Options::default()
        };
        Arc::new(Seeded {
            real: Offloader::start(options).expect("no thread is made"),
            random: Mutex::new(Random::new(self.random.number())),
        })
    }
}

impl LedgerOffloader for Seeded {
    fn new_id(&self) -> OffloadId {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        OffloadId::from_halves(random.number(), random.number())
    }

    fn check_target(&self, target: &pharos_ledger::offload::OffloadTarget) -> Result<(), OffloadError> {
        self.real.check_target(target)
    }

    fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
    ) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.real.offload(object, source)
    }

    fn check(&self, object: OffloadedLedger, entries: u64) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.real.check(object, entries)
    }

    fn read(
        &self,
        object: OffloadedLedger,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<ReadEntry>, OffloadError>> {
        self.real.read(object, first, entries_max, bytes_max)
    }

    fn delete(&self, object: OffloadedLedger) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.real.delete(object)
    }
}

/// Result of a look at the folder.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Ledgers of topics that are in the folder.
    pub(crate) offloaded: u64,
    /// Number of those that are nowhere else.
    pub(crate) only_there: u64,
    /// Objects that are there without being readable: of attempts that a life left half done.
    pub(crate) half_done: u64,
}

/// Before any topic is opened: what infos call complete is whole, and nothing is in the folder that neither an info nor a note names.
pub(crate) async fn look(process: &mut Process, offloader: &Arc<Seeded>) -> Alive<Seen> {
    let metadata = process.metadata();
    let (mut seen, mut named, mut complete) = (Seen::default(), BTreeSet::new(), Vec::new());
    for item in metadata.scan(INFO_PREFIX).await.unwrap() {
        let info = ManagedLedgerInfo::parse(&item.key, &item.value).unwrap();
        named.extend(info.objects().flat_map(|object| names(&object)));
        for ledger in &info.ledgers {
            if let Some(row) = info.offloaded(ledger.ledger_id) {
                seen.offloaded += 1;
                seen.only_there += u64::from(row.local_deleted);
                complete.push((info.object(row), ledger.entries, ledger.closed_at_ms.is_some()));
            }
        }
        let half = info.offloads.iter().filter(|row| !row.is_complete());
        seen.half_done += half.count() as u64;
    }
    for item in metadata.scan(GARBAGE_PREFIX).await.unwrap() {
        let noted = noted_objects(&item.value);
        named.extend(noted.iter().flat_map(names));
    }
    for path in process.fs.paths() {
        let Ok(object) = path.strip_prefix(FOLDER) else {
            continue;
        };
        let object = object.display().to_string();
        let of = object.split('#').next().unwrap_or_default();
        assert!(
            named.contains(of),
            "{object} is in the folder, and nothing names it"
        );
    }
    for (object, entries, is_closed) in complete {
        // The count of one that is not closed is that of the engine; the last look before its copy goes is made when it is.
        if !is_closed {
            continue;
        }
        let offloader = offloader.clone();
        let asked = object.clone();
        let checked = process
            .drive(async move { offloader.check(asked, entries).await })
            .await?;
        if process.is_dead() {
            return Err(Died);
        }
        if let Err(error) = checked {
            panic!("ledger {} is said to be in the folder: {error}", object.ledger);
        }
    }
    Ok(seen)
}

fn names(object: &OffloadedLedger) -> [String; 2] {
    [object.data_name(), object.index_name()]
}
