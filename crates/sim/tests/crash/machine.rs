//! Simulated machine: its disk, the lives of the broker on it, and the model of what its clients know.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use pharos_admin_api::TenantInfo;
use pharos_broker::Options;
use pharos_catalog::{NamespaceError, Policies, TenantError};
use pharos_ledger::Durability;
use pharos_runtime::fs::FaultFs;
use pharos_runtime::random::Random;
use pharos_runtime::simulated::Simulated;
use pharos_sim::model::{Crash, Model, Strength, Topic};
use pharos_sim::tell;
use pharos_types::{LedgerId, NamespaceName};
use serde_json::json;

use crate::cold::Cold;
use crate::hardship::Hardship;
use crate::leftovers;
use crate::process::{Alive, Died, Process};
use crate::work::{Corners, Habits, World};

pub(crate) struct Machine {
    pub(crate) fs: FaultFs,
    random: Random,
    hardship: Hardship,
    /// Store of offloaded ledgers, if there is one.
    cold: Option<Cold>,
    model: Rc<RefCell<Model>>,
    topics: Vec<String>,
    storage: pharos_storage::Options,
    options: Options,
    /// After how many seconds messages expire, if they do.
    ttl_s: Option<usize>,
    takes_turns: bool,
    /// Ledgers that were given up when a life began, of all lives.
    condemned: BTreeSet<LedgerId>,
    /// Every ledger that an info was seen to name.
    once_named: BTreeSet<LedgerId>,
    pub(crate) corners: Corners,
    pub(crate) trace: u64,
}

/// Time until work that was given up during hardship has been resumed, in milliseconds.
const RECOVERY_MS: u64 = 35_000;
const TENANT: &str = "t";
const NAMESPACES: [(&str, Strength); 3] = [
    ("sync", Strength::Sync),
    ("async", Strength::Async),
    ("bypass", Strength::Bypass),
];

fn storage_options(random: &mut Random) -> pharos_storage::Options {
    pharos_storage::Options {
        block_bytes: 512,
        io: pharos_storage::IoMode::Buffered,
        segment_bytes_first: 16 << 10,
        segment_bytes: 32 << 10,
        entry_bytes_max: 16 << 10,
        preallocate: pharos_storage::Preallocate::Reserve,
        group_bytes_max: 8192 << random.below(3),
        journal_dirs: vec!["/data/journal".into()],
        ledger_dirs: vec!["/data/ledgers".into()],
        journal_bytes_max: 64 << 10 << random.below(3),
        write_cache_bytes: 16 << 10 << random.below(4),
        flush_interval: Duration::from_secs(3),
        entry_log_bytes: 64 << 10,
        removal_pause: Duration::ZERO,
        read_cache_bytes: 64 << 10,
        minor_compaction_interval: Duration::from_secs(5),
        major_compaction_interval: Duration::from_secs(20),
        ..pharos_storage::Options::default()
    }
}

fn broker_options(random: &mut Random) -> Options {
    Options {
        shards: 1 + u16::try_from(random.below(3)).unwrap(),
        cursor_flush_interval: Duration::from_secs(1),
        failover_delay: Duration::from_millis(random.below(2) as u64 * 300),
        retention_check_interval: Duration::from_secs(2),
        message_expiry_interval: Duration::from_secs(2),
        unload_idle_after: random.one_in(3).then(|| Duration::from_secs(2)),
        catch_up_read_cache_bytes: 1 << 20,
        newest_cache_bytes: 1 << 20,
        managed_ledger: pharos_managed_ledger::Options {
            ledger_entries_max: 3 + random.below(8) as u64,
            ledger_age_ms_min: 0,
            ledger_age_ms_max: 1000 << random.below(6),
            cache_bytes_max: 64 << 10,
            durability: Durability::Sync,
            ..pharos_managed_ledger::Options::default()
        },
        ..Options::default()
    }
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Simulated::new_machine();
        let storage = storage_options(&mut random);
        let options = broker_options(&mut random);
        // One kind of durability for most seeds, so that a history of one is long.
        let only = random.below(5);
        let mut topics = Vec::new();
        for name in ["a", "b"] {
            let (namespace, _) = NAMESPACES[if only < 3 { only } else { random.below(3) }];
            topics.push(format!("persistent://{TENANT}/{namespace}/{name}"));
        }
        // Not drawn, so that seeds go on to mean what they meant.
        let ttl_s = (seed % 4 == 1).then(|| 6 + (seed / 4 % 12) as usize);
        let takes_turns = seed % 5 == 3;
        let mut model = Model::default();
        for topic in &topics {
            let mut known = Topic::absent(strength_of(topic));
            known.ttl_ms = ttl_s.map(|seconds| seconds as u64 * 1000);
            model.topics.insert(topic.clone(), known);
        }
        Self {
            fs: FaultFs::new(seed ^ 0x5eed),
            random,
            hardship: Hardship::new(seed),
            cold: Cold::of(seed),
            model: Rc::new(RefCell::new(model)),
            topics,
            storage,
            options,
            ttl_s,
            takes_turns,
            condemned: BTreeSet::new(),
            once_named: BTreeSet::new(),
            corners: Corners::default(),
            trace: 0,
        }
    }

    fn reach(&mut self, corner: &'static str) {
        *self.corners.entry(corner).or_default() += 1;
    }

    fn count(&mut self, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        for (corner, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            *self.corners.entry(corner).or_default() += count;
        }
    }

    /// Starts, looks, works, and dies or stops; then the machine loses power, or the process just starts again.
    pub(crate) async fn live(&mut self) {
        let early = self.random.one_in(3);
        let dies_in = if early {
            self.random.below(80)
        } else {
            80 + self.random.below(700)
        };
        self.fs.die_in(dies_in as u64);
        let stopped = self.start_and_work().await;
        let dead = self.fs.is_dead();
        self.reach("crash points");
        if dead {
            self.reach("within a change");
        }
        // What a refused sync was to make durable is lost with the process as with the machine.
        let machine = !self.random.one_in(4) || self.hardship.refused_something();
        let crash = match (machine, matches!(stopped, Ok(true))) {
            (true, true) => Crash::AfterStop,
            (true, false) => Crash::Machine,
            (false, _) => Crash::Process,
        };
        self.crash(machine, crash);
    }

    fn crash(&mut self, machine: bool, crash: Crash) {
        if machine {
            self.fs.crash();
        } else {
            self.fs.restart();
        }
        tell(|| format!("---- {crash:?}"));
        self.model.borrow_mut().crashed(crash);
    }

    /// Runs a life without a crash, whatever happened before: it finds what the model expects, and everything still
    /// works.
    pub(crate) async fn final_check(&mut self) {
        self.hardship.spare();
        assert!(self.start_and_work().await.is_ok(), "a life without a crash");
        self.crash(true, Crash::Machine);
        self.reach("crash points");
        let mut process = self.start().await.expect("a start after a crash");
        let world = self.world(&process);
        self.look(&mut process, &world)
            .await
            .expect("a look without a crash");
        world.forget();
    }

    async fn start(&mut self) -> Alive<Process> {
        let random = Random::new(self.random.number());
        let (options, cold) = (self.options.clone(), self.cold.as_mut());
        let started = Process::start(
            &self.fs,
            random,
            &self.storage,
            options,
            cold,
            &mut self.once_named,
        )
        .await;
        let seen = match &started {
            Ok(process) => process.cold.as_ref().map(|(_, seen)| seen),
            Err(Died) => {
                self.reach("within a start");
                None
            }
        };
        if let Some(seen) = seen {
            let counts = [
                ("ledgers in the folder", seen.offloaded),
                ("ledgers in the folder alone", seen.only_there),
                ("offloads that a crash cut off", seen.half_done),
            ];
            self.count(counts);
        }
        started
    }

    fn world(&self, process: &Process) -> Rc<World> {
        let admin = process.admin.clone().expect("it has started");
        let habits = Habits {
            takes_turns: self.takes_turns,
            offloads: self.cold.is_some(),
        };
        World::new(&self.model, admin, process.shards.clone(), habits)
    }

    /// Starts the broker and runs its work; returns true after a clean stop.
    async fn start_and_work(&mut self) -> Alive<bool> {
        self.hardship.begin_life(&self.fs);
        let mut process = self.start().await?;
        let world = self.world(&process);
        let outcome = self.look_and_work(&mut process, &world).await;
        self.count(std::mem::take(&mut *world.corners.borrow_mut()));
        if let Some((offloader, _)) = &process.cold {
            let stats = offloader.real.stats();
            self.count([
                ("ledgers offloaded", stats.offloaded),
                ("offloads that failed", stats.offload_errors),
                ("entries read from the folder", stats.entries_read),
            ]);
        }
        // The connections go first: what they would still say goes nowhere.
        self.fs.die_in(0);
        world.forget();
        self.trace = self.trace.wrapping_mul(31).wrapping_add(self.fs.steps());
        outcome
    }

    async fn look_and_work(&mut self, process: &mut Process, world: &Rc<World>) -> Alive<bool> {
        self.make_namespaces(process, world).await?;
        let looked = self.look(process, world).await;
        if looked.is_err() {
            self.reach("within a look");
        }
        looked?;
        self.work(process, world).await?;
        if self.random.one_in(3) {
            let stopped = process.stop().await;
            self.reach(if stopped.is_ok() {
                "clean stops"
            } else {
                "within a stop"
            });
            return stopped.map(|()| true);
        }
        Ok(false)
    }

    async fn make_namespaces(&mut self, process: &mut Process, world: &World) -> Alive<()> {
        let catalog = world.admin.catalog.clone();
        let info = TenantInfo {
            admin_roles: Vec::new(),
            allowed_clusters: vec!["standalone".to_owned()],
        };
        let made = process
            .drive({
                let catalog = catalog.clone();
                async move { catalog.tenants().create(TENANT, info).await }
            })
            .await?;
        let exists = matches!(made, Ok(()) | Err(TenantError::AlreadyExists));
        self.answered(process, exists, &made)?;
        for (namespace, _) in NAMESPACES {
            let name = NamespaceName::new(TENANT, namespace).unwrap();
            let mut policies = Policies::first(&["standalone"], 4);
            policies.set("properties", json!({ "pharos.durability": namespace }));
            if let Some(seconds) = self.ttl_s {
                policies.set("message_ttl_in_seconds", json!(seconds));
            }
            let catalog = catalog.clone();
            let made = process
                .drive(async move { catalog.namespaces().create(&name, policies).await })
                .await?;
            let exists = matches!(made, Ok(()) | Err(NamespaceError::AlreadyExists));
            self.answered(process, exists, &made)?;
        }
        Ok(())
    }

    /// A request that can only fail when the process dies.
    fn answered(&self, process: &Process, is_good: bool, what: &impl std::fmt::Debug) -> Alive<()> {
        if process.is_dead() {
            return Err(Died);
        }
        assert!(is_good, "{what:?}");
        Ok(())
    }

    async fn work(&mut self, process: &mut Process, world: &Rc<World>) -> Alive<()> {
        for _ in 0..20 + self.random.below(200) {
            self.endure();
            if let Some(request) = world.next(&mut self.random, &self.topics) {
                process.spawn(request);
            }
            for _ in 0..self.random.below(30) {
                process.step().await?;
            }
            if self.hardship.refused_something() && !self.hardship.is_there() {
                break;
            }
            match self.random.below(40) {
                0 => process.rest(self.random.below(3000) as u64).await?,
                1 if !self.hardship.refused_something() => self.breathe(process, world).await?,
                _ => {}
            }
        }
        if self.hardship.is_there() {
            self.relieve();
        }
        if self.hardship.refused_something() {
            return self.end_after_refusals(process, world).await;
        }
        Ok(())
    }

    /// A store that was refused a write or a sync may be final until the next start. Every caller gets an answer all the same, and
    /// then the process ends.
    async fn end_after_refusals(&mut self, process: &mut Process, world: &Rc<World>) -> Alive<()> {
        process.rest(RECOVERY_MS).await?;
        let left = world.under_way.borrow().clone();
        assert!(left.is_empty(), "never answered after a refusal: {left:?}");
        process.agrees_with(world.attached()).await?;
        self.reach("lives that end after refusals");
        self.fs.die_in(0);
        Err(Died)
    }

    /// A turn of hard times, if this machine knows any.
    fn endure(&mut self) {
        let was_there = self.hardship.is_there();
        if let Some(what) = self.hardship.turn(&self.fs) {
            self.reach(what);
        }
        if was_there != self.hardship.is_there() {
            self.disturb();
        }
    }

    fn relieve(&mut self) {
        self.hardship.end(&self.fs);
        self.disturb();
    }

    /// Topics may close and open again: what was acknowledged and not answered may be forgotten.
    fn disturb(&mut self) {
        for topic in &self.topics {
            self.model.borrow_mut().topic(topic).disturb();
        }
    }

    /// Everything gets the time it needs: every request is answered, what was acknowledged becomes durable.
    async fn breathe(&mut self, process: &mut Process, world: &Rc<World>) -> Alive<()> {
        if self.hardship.is_there() {
            self.relieve();
            process.rest(RECOVERY_MS).await?;
            self.disturb();
        }
        process.settle().await?;
        for _ in 0..40 {
            if world.under_way.borrow().is_empty() {
                break;
            }
            process.rest(1000).await?;
        }
        let left = world.under_way.borrow().clone();
        assert!(left.is_empty(), "never answered: {left:?}");
        process.rest(3000).await?;
        self.model.borrow_mut().settle();
        leftovers::note_named(process, &mut self.once_named).await;
        process.agrees_with(world.attached()).await?;
        self.reach("breaths");
        tell(|| "breathed".to_owned());
        Ok(())
    }

    async fn look(&mut self, process: &mut Process, world: &Rc<World>) -> Alive<()> {
        crate::look::look(process, world, &self.topics).await?;
        let left = crate::leftovers::look(process, &mut self.condemned).await?;
        if left > 0 {
            self.reach("ledgers left by an earlier life");
        }
        tell(|| "looked".to_owned());
        self.reach("looks");
        Ok(())
    }
}

fn strength_of(topic: &str) -> Strength {
    let found = NAMESPACES
        .iter()
        .find(|(name, _)| topic.contains(&format!("/{name}/")));
    found.map_or(Strength::Sync, |(_, strength)| *strength)
}
