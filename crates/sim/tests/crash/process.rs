//! A running broker, with its engine and its metadata store, that does nothing unless it is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_broker::ids::{ShardId, TopicId};
use pharos_broker::shard::Shard;
use pharos_broker::{Broker, Options, Threads};
use pharos_broker_admin::Resources;
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_ledger::LedgerEngine;
use pharos_ledger::offload::OffloadPolicy;
use pharos_metadata::{Beside, MetadataStore};
use pharos_runtime::fs::FaultFs;
use pharos_runtime::random::Random;
use pharos_runtime::simulated::{GroupId, Simulated};
use pharos_storage::manual::Manual;
use pharos_types::LedgerId;
use pharos_wire::message::PulsarEntries;

use crate::cold::{self, Cold, Seeded};
use crate::leftovers::{self, CleaningUp};

/// The process is dead; what it was about to do may or may not have happened.
#[derive(Debug)]
pub(crate) struct Died;

pub(crate) type Alive<T> = Result<T, Died>;

const MILLISECOND: u64 = 1_000_000;
/// Steps after which a request that is not answered never will be.
const STEPS_MAX: u32 = 400_000;

thread_local! {
    /// Shards of the process, each added by itself.
    static SHARDS: RefCell<Vec<Rc<Shard>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Process {
    pub(crate) fs: FaultFs,
    pub(crate) random: Random,
    /// Thread group in which clients' requests run.
    pub(crate) outside: GroupId,
    pub(crate) store: Manual,
    pub(crate) metadata: pharos_metadata::Manual,
    broker: Option<(Broker, Threads)>,
    pub(crate) admin: Option<Resources>,
    pub(crate) shards: Vec<Rc<Shard>>,
    /// Store of offloaded ledgers, if there is one, and its content when this began.
    pub(crate) cold: Option<(Arc<Seeded>, cold::Seen)>,
    /// Cleanup of an earlier life's leftovers while the broker runs.
    pub(crate) cleaning_up: Option<CleaningUp>,
    // Last, so that tasks go before what they use.
    simulated: Simulated,
}

pub(crate) fn store_dir() -> PathBuf {
    Path::new("/data").to_owned()
}

fn metadata_dir() -> PathBuf {
    Path::new("/data/metadata").to_owned()
}

/// Opens the metadata as the metadata of the ledgers that are there.
async fn open_metadata(fs: &FaultFs, store: &Manual) -> Alive<pharos_metadata::Manual> {
    let ledgers = store.storage.list().await.unwrap();
    let options = pharos_metadata::Options {
        // The least: snapshots are soon due.
        reserve_bytes: 0,
        beside: Some(Beside {
            witness: "/data/ledgers/METADATA".into(),
            has_ledgers: !ledgers.is_empty(),
            next_ledger: store.storage.next_ledger().0,
            accept: false,
        }),
        ..pharos_metadata::Options::default()
    };
    match pharos_metadata::Manual::open(&*fs.mount(), &metadata_dir(), &options) {
        Ok(metadata) => Ok(metadata),
        Err(_) if fs.is_dead() => Err(Died),
        Err(error) => panic!("cannot open the metadata: {error} {error:?}"),
    }
}

impl Process {
    pub(crate) async fn start(
        fs: &FaultFs,
        mut random: Random,
        storage: &pharos_storage::Options,
        mut options: Options,
        cold: Option<&mut Cold>,
        once_named: &mut BTreeSet<LedgerId>,
    ) -> Alive<Self> {
        let simulated = Simulated::start();
        let outside = simulated.group();
        let store = match Manual::open(fs.mount(), &store_dir(), storage.clone()) {
            Ok(store) => store,
            Err(_) if fs.is_dead() => return Err(Died),
            Err(error) => panic!("cannot open the store: {error} {error:?}"),
        };
        let metadata = open_metadata(fs, &store).await?;
        let seed = random.number();
        let mut process = Self {
            fs: fs.clone(),
            random: Random::new(seed),
            outside,
            store,
            metadata,
            broker: None,
            admin: None,
            shards: Vec::new(),
            cold: None,
            cleaning_up: None,
            simulated,
        };
        let mut offload = OffloadPolicy::default();
        if let Some(cold) = cold {
            let offloader = cold.start(fs);
            let seen = cold::look(&mut process, &offloader).await?;
            process.cold = Some((offloader.clone(), seen));
            options.managed_ledger.offloader = Some(offloader);
            offload = cold.policy.clone();
        }
        let cleaning_up = leftovers::begin(&mut process, once_named).await?;
        process.cleaning_up = Some(cleaning_up);
        process.start_broker(options, offload).await?;
        Ok(process)
    }

    pub(crate) fn metadata(&self) -> Arc<dyn MetadataStore> {
        self.metadata.store.clone()
    }

    async fn start_broker(&mut self, options: Options, offload: OffloadPolicy) -> Alive<()> {
        let metadata = self.metadata();
        let catalog = self
            .drive(async move { Catalog::open(metadata, catalog_options(offload)).await })
            .await?;
        let catalog = match catalog {
            Ok(catalog) => catalog,
            Err(_) if self.fs.is_dead() => return Err(Died),
            Err(error) => panic!("cannot open the catalog: {error}"),
        };
        let engine: Arc<dyn LedgerEngine> = self.store.storage.clone();
        let (broker, threads) =
            pharos_broker::start(options, catalog, engine, self.metadata(), &PulsarEntries)
                .expect("no thread is made");
        self.admin = Some(Resources::of(&broker));
        // A start that a crash cut off left its shards here; they are of a process that is gone, and answer nothing.
        SHARDS.take();
        for index in 0..broker.shard_count() {
            let broker = broker.clone();
            let id = ShardId(u16::try_from(index).unwrap());
            let keep = |shard| async move { SHARDS.with_borrow_mut(|shards| shards.push(shard)) };
            let _ = self.drive(async move { broker.call(id, keep).await }).await?;
            self.shards.append(&mut SHARDS.take());
        }
        self.broker = Some((broker, threads));
        Ok(())
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.fs.is_dead()
    }

    /// Starts a request of a client.
    pub(crate) fn spawn(&self, request: impl Future<Output = ()> + 'static) {
        self.simulated.spawn(self.outside, request);
    }

    /// Runs a request to its end.
    pub(crate) async fn drive<T: 'static>(&mut self, request: impl Future<Output = T> + 'static) -> Alive<T> {
        let slot: Rc<RefCell<Option<T>>> = Rc::default();
        let answer = slot.clone();
        self.spawn(async move {
            let outcome = request.await;
            *answer.borrow_mut() = Some(outcome);
        });
        for _ in 0..STEPS_MAX {
            if let Some(outcome) = slot.borrow_mut().take() {
                return Ok(outcome);
            }
            self.step().await?;
        }
        panic!("a request is never answered");
    }

    /// Lets a client do something that chance picks.
    pub(crate) async fn step(&mut self) -> Alive<()> {
        match self.random.below(16) {
            0..8 => {
                let ready = self.simulated.ready();
                match self.random.pick(&ready) {
                    Some(group) => drop(self.simulated.run_one(*group)),
                    None => self.turn().await,
                }
            }
            8..10 => {
                let number = self.random.below(self.store.journals());
                self.store.step_journal(number);
            }
            10 => {
                let number = self.random.below(self.store.journals());
                self.store.step_preparer(number);
            }
            11 => drop(self.store.step_flusher()),
            12 | 13 => drop(self.metadata.step()),
            14 => self.turn().await,
            _ => self.pass(MILLISECOND).await,
        }
        self.alive()
    }

    fn alive(&self) -> Alive<()> {
        if self.fs.is_dead() { Err(Died) } else { Ok(()) }
    }

    /// Tasks that gave way are ready again, timers that are due ring.
    async fn turn(&self) {
        tokio::task::yield_now().await;
    }

    /// Lets time pass at once.
    pub(crate) async fn pass(&mut self, nanos: u64) {
        self.simulated.pass(nanos);
        self.store.pass(nanos);
        tokio::time::advance(Duration::from_nanos(nanos)).await;
    }

    /// Runs until no task has anything to do before time passes.
    pub(crate) async fn settle(&mut self) -> Alive<()> {
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            let mut worked = false;
            loop {
                let ready = self.simulated.ready();
                let Some(group) = self.random.pick(&ready) else {
                    break;
                };
                worked |= self.simulated.run_one(*group);
                self.alive()?;
            }
            for number in 0..self.store.journals() {
                worked |= self.store.step_journal(number);
                worked |= self.store.step_preparer(number);
            }
            worked |= self.store.step_flusher();
            worked |= self.metadata.step();
            self.alive()?;
            self.turn().await;
            quiet = if worked { 0 } else { quiet + 1 };
            if quiet == 3 {
                return Ok(());
            }
        }
        panic!("the broker does not come to rest");
    }

    /// Lets time pass in small pieces, with all the work that it brings.
    pub(crate) async fn rest(&mut self, milliseconds: u64) -> Alive<()> {
        let piece = 250.min(milliseconds.max(1));
        for _ in 0..milliseconds.div_ceil(piece) {
            self.pass(piece * MILLISECOND).await;
            self.settle().await?;
        }
        Ok(())
    }

    /// At rest: topics have the consumers that their clients hold, and no others. One that was refused and stayed would keep the next
    /// out for ever. `topics`: of each consumer that a client holds.
    pub(crate) async fn agrees_with(&mut self, topics: Vec<TopicId>) -> Alive<()> {
        let Some((broker, _)) = &self.broker else {
            return Ok(());
        };
        let broker = broker.clone();
        // A look changes nothing, not even what chance brings next.
        let random = self.random.clone();
        let figures = self.drive(async move { broker.shard_figures().await }).await?;
        self.random = random;
        let mut held = BTreeMap::new();
        for topic in topics {
            *held.entry((topic.home.0, topic.number)).or_insert(0) += 1;
        }
        let mut attached = BTreeMap::new();
        for topic in figures.unwrap().iter().flat_map(|shard| &shard.topics) {
            let counts = topic.subscriptions.iter();
            let count: usize = counts.map(|subscription| subscription.consumer_count).sum();
            if count > 0 {
                attached.insert((topic.id.home.0, topic.id.number), count);
            }
        }
        assert_eq!(attached, held, "consumers at their topics, and at their clients");
        Ok(())
    }

    /// A clean stop.
    pub(crate) async fn stop(&mut self) -> Alive<()> {
        let Some((broker, threads)) = self.broker.take() else {
            return Ok(());
        };
        self.drive(async move { broker.drain().await }).await?;
        threads.stop();
        self.settle().await?;
        let storage = self.store.storage.clone();
        self.drive(async move { storage.shutdown().await }).await?;
        let metadata = self.metadata();
        self.drive(async move { metadata.shutdown().await }).await?;
        self.settle().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever happens on the way down reaches the disk no more.
        self.fs.die_in(0);
    }
}

/// Unused topics stay: the model knows nothing of their going.
fn catalog_options(offload: OffloadPolicy) -> CatalogOptions {
    let mut options = CatalogOptions::default();
    options.policies.offload = offload;
    options.policies.inactive_topics.delete = false;
    options
}
