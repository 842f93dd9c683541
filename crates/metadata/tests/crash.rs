//! Lives of a store on a disk that loses, tears, refuses and fills up, one seed each.
//!
//! A life opens the store, compares what is there with what was answered, changes it in small groups while calls are refused, the
//! device is full or the process dies at a change to the disk, and ends by a stop, a kill or a power cut.
//!
//! A failure prints its seed; `PHAROS_CRASH_SEED=<seed>` replays just that one and tells every change to the disk.
//! `PHAROS_CRASH_SEEDS=<from>..<to>` runs others, five lives each.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{
    Expect, Manual, MetadataStore, OpenError, Options, Session, SessionWriteError, Version, WriteError,
};
use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_runtime::random::Random;

const SEEDS: u64 = 1_500;
const LIVES: u64 = 5;
const DIR: &str = "/data/metadata";

/// Possible states of a key: a value or none.
type Possible = BTreeSet<Option<Bytes>>;

/// Answers received so far.
#[derive(Default)]
struct Model {
    /// State of every key; absent keys have none.
    known: BTreeMap<String, (Bytes, Version)>,
    /// Alternative states of keys after the next start, because a change was answered with "unknown".
    maybe: BTreeMap<String, Possible>,
    values: u64,
}

#[derive(Debug, Default)]
struct Done {
    crashes: u64,
    stops: u64,
    acknowledged: u64,
    no_space: u64,
    unknown: u64,
    freed_on_full: u64,
    healed: u64,
    final_faults: u64,
    died_while_opening: u64,
    failed_to_open: u64,
}

struct Machine {
    fs: FaultFs,
    random: Random,
    model: Model,
    done: Done,
}

fn options() -> Options {
    Options {
        reserve_bytes: 16 << 10,
        ..Options::default()
    }
}

impl Machine {
    fn new(seed: u64, tells: bool) -> Self {
        let fs = FaultFs::new(seed);
        if tells {
            fs.tell_steps();
        }
        Self {
            fs,
            random: Random::new(seed ^ 0xa5a5),
            model: Model::default(),
            done: Done::default(),
        }
    }

    fn live(&mut self) {
        if self.random.one_in(2) {
            let steps = self.random.below(120) as u64;
            self.fs.die_in(steps);
        }
        let mut faulty = false;
        if self.random.one_in(3) {
            faulty = true;
            let op = [
                FaultOp::Write,
                FaultOp::Write,
                FaultOp::Allocate,
                FaultOp::SyncFile,
                FaultOp::Open,
            ][self.random.below(5)];
            let fault = [Fault::Io, Fault::NoSpace, Fault::TooManyFiles][self.random.below(3)];
            let calls = self.random.below(60) as u64;
            self.fs.plan(Plan::next(op, fault, calls));
            if op == FaultOp::Write && self.random.one_in(2) {
                self.fs.plan(Plan::one_in(FaultOp::Write, fault, 9));
            }
        }
        let mut store = match Manual::open(&*self.fs.mount(), Path::new(DIR), &options()) {
            Ok(store) => store,
            Err(OpenError::Fault(_)) if self.fs.is_dead() => {
                self.done.died_while_opening += 1;
                return self.end(None);
            }
            Err(OpenError::Fault(_)) if faulty => {
                self.done.failed_to_open += 1;
                return self.end(None);
            }
            Err(error) => panic!("does not open: {error:?}"),
        };
        self.compare(&mut store);
        let call = std::sync::Arc::clone(&store.store);
        let session = store.run(async move { call.open_session(Duration::from_mins(60)).await });
        let session = session.unwrap();
        for _ in 0..self.random.below(40) {
            self.changes(&mut store, &*session);
            if self.random.one_in(12) {
                let room = self.random.below(3) as u64 * 3000;
                self.fs.set_bytes_max(Some(self.fs.bytes() + room));
            } else if self.random.one_in(6) {
                self.fs.set_bytes_max(None);
            }
            if store.store.fault().is_some() {
                self.done.final_faults += 1;
                break;
            }
        }
        self.end(Some(store));
    }

    fn end(&mut self, store: Option<Manual>) {
        if let Some(mut store) = store
            && self.random.one_in(3)
        {
            let call = std::sync::Arc::clone(&store.store);
            store.run(async move { call.shutdown().await });
            self.done.stops += 1;
        }
        if self.random.one_in(4) {
            self.fs.restart();
        } else {
            self.fs.crash();
            self.done.crashes += 1;
        }
    }

    /// Checks that the stored state matches the answers, or a possible alternative.
    fn compare(&mut self, store: &mut Manual) {
        let call = std::sync::Arc::clone(&store.store);
        let items = store.run(async move { call.scan("").await }).unwrap();
        let found: BTreeMap<String, (Bytes, Version)> = items
            .into_iter()
            .map(|item| (item.key, (item.value, item.version)))
            .collect();
        let keys: BTreeSet<&String> = found.keys().chain(self.model.known.keys()).collect();
        for key in keys {
            let is = found.get(key).map(|(value, _)| value);
            let was = self.model.known.get(key);
            if is == was.map(|(value, _)| value) && (is.is_none() || found.get(key) == was) {
                continue;
            }
            let may = self.model.maybe.get(key);
            assert!(
                may.is_some_and(|may| may.contains(&is.cloned())),
                "{key} is {:?} bytes, was {:?}",
                is.map(Bytes::len),
                was.map(|(value, _)| value.len())
            );
        }
        self.model.known = found;
        self.model.maybe.clear();
    }

    /// A few changes at once, and what becomes of them. Ephemeral keys come between, and are in no model: none may be found.
    fn changes(&mut self, store: &mut Manual, session: &dyn Session) {
        let held = self.random.below(3);
        let held: Vec<(String, Bytes)> = (0..held)
            .map(|number| (format!("ephemeral/{number}"), self.value()))
            .collect();
        let mut wanted: Vec<(String, Option<Bytes>, Expect)> = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let key = format!("key/{}", self.random.below(30));
            if wanted.iter().any(|(other, ..)| *other == key) {
                continue;
            }
            let version = self.model.known.get(&key).map(|(_, version)| *version);
            let expect = match (self.random.below(3), version) {
                (0, Some(version)) => Expect::Version(version),
                (0, None) => Expect::Absent,
                _ => Expect::Any,
            };
            let value = (!self.random.one_in(4)).then(|| self.value());
            wanted.push((key, value, expect));
        }
        let call = std::sync::Arc::clone(&store.store);
        let asked = wanted.clone();
        let answers = store.run(async move {
            let changes = asked.into_iter().map(|(key, value, expect)| {
                let call = &call;
                async move {
                    match value {
                        Some(value) => call.put(&key, value, expect).await.map(Some),
                        None => call.delete(&key, expect).await.map(|_| None),
                    }
                }
            });
            let held = held.into_iter().map(|(key, value)| async move {
                match session.put(&key, value, Expect::Any).await {
                    Ok(_) => {}
                    // What the group that it was decided with met.
                    Err(SessionWriteError::Write(WriteError::Fault(_) | WriteError::NoSpace(_))) => {}
                    Err(error) => panic!("{error:?}"),
                }
            });
            let held = futures_util::future::join_all(held);
            futures_util::future::join(held, futures_util::future::join_all(changes))
                .await
                .1
        });
        let known = &self.model.known;
        let wrote = |((key, value, _), answer): (&(String, Option<Bytes>, Expect), &Result<_, _>)| {
            answer.is_ok() && (value.is_some() || known.contains_key(key))
        };
        if wanted.iter().zip(&answers).any(wrote) {
            // What failed before is superseded: a group with its number counts now.
            self.model.maybe.clear();
        }
        for ((key, value, _), answer) in wanted.into_iter().zip(answers) {
            self.note(&key, value, answer);
        }
    }

    fn note(&mut self, key: &str, value: Option<Bytes>, answer: Result<Option<Version>, WriteError>) {
        match answer {
            Ok(version) => {
                self.done.acknowledged += 1;
                match (value, version) {
                    (Some(value), Some(version)) => {
                        self.model.known.insert(key.to_owned(), (value, version));
                    }
                    _ => drop(self.model.known.remove(key)),
                }
            }
            Err(WriteError::NoSpace(_)) => self.done.no_space += 1,
            Err(WriteError::Fault(_)) => {
                self.done.unknown += 1;
                self.model.maybe.entry(key.to_owned()).or_default().insert(value);
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn value(&mut self) -> Bytes {
        self.model.values += 1;
        let sizes = [10, 300, 2000, 9000];
        let size = self.random.below(4);
        let bytes = self.random.below(sizes[size]);
        let mut value = format!("{} ", self.model.values).into_bytes();
        value.resize(value.len() + bytes, self.model.values as u8);
        Bytes::from(value)
    }

    /// Without any fault everything is there, and a full device takes deletes and smaller values.
    fn last(&mut self) {
        let mut store = Manual::open(&*self.fs.mount(), Path::new(DIR), &options()).unwrap();
        self.compare(&mut store);
        self.fs.set_bytes_max(Some(self.fs.bytes()));
        let mut refused = 0;
        for number in 0..10_000 {
            let key = format!("filling/{number}");
            let call = std::sync::Arc::clone(&store.store);
            let value = self.value();
            match store.run(async move { call.put(&key, value, Expect::Absent).await }) {
                Ok(_) => {}
                Err(WriteError::NoSpace(_)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
            if refused > 3 {
                break;
            }
        }
        assert!(refused > 3);
        let call = std::sync::Arc::clone(&store.store);
        let all = store.run(async move { call.scan("").await }).unwrap();
        for (number, item) in all.into_iter().enumerate() {
            let call = std::sync::Arc::clone(&store.store);
            store.run(async move {
                let smaller = item.value.slice(..item.value.len() / 2);
                let version = call.put(&item.key, smaller, Expect::Version(item.version)).await;
                let version = version.unwrap();
                if number % 2 == 0 {
                    assert!(call.delete(&item.key, Expect::Version(version)).await.unwrap());
                }
            });
            self.done.freed_on_full += 1;
        }
        self.fs.set_bytes_max(None);
        let call = std::sync::Arc::clone(&store.store);
        let large = Bytes::from(vec![1; 100_000]);
        store
            .run(async move { call.put("goes on", large, Expect::Any).await })
            .unwrap();
        self.done.healed += 1;
        drop(store);
        self.fs.crash();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a number of a seed");
    if let Ok(seed) = std::env::var("PHAROS_CRASH_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    match std::env::var("PHAROS_CRASH_SEEDS") {
        Ok(wanted) => match wanted.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&wanted),
        },
        Err(_) => 0..SEEDS,
    }
}

#[test]
fn what_was_answered_survives_every_crash() {
    let seeds = seeds();
    let tells = std::env::var_os("PHAROS_CRASH_SEED").is_some();
    let mut all = Done::default();
    for seed in seeds.clone() {
        let run = std::panic::catch_unwind(|| {
            let mut machine = Machine::new(seed, tells);
            for _ in 0..LIVES {
                machine.live();
            }
            machine.last();
            machine.done
        });
        let Ok(done) = run else {
            panic!("replay with PHAROS_CRASH_SEED={seed}");
        };
        all.crashes += done.crashes;
        all.stops += done.stops;
        all.acknowledged += done.acknowledged;
        all.no_space += done.no_space;
        all.unknown += done.unknown;
        all.freed_on_full += done.freed_on_full;
        all.healed += done.healed;
        all.final_faults += done.final_faults;
        all.died_while_opening += done.died_while_opening;
        all.failed_to_open += done.failed_to_open;
    }
    eprintln!("seeds {seeds:?}: {all:?}");
    if seeds.end - seeds.start >= 500 {
        let reached = [
            all.no_space,
            all.unknown,
            all.final_faults,
            all.died_while_opening,
            all.failed_to_open,
        ];
        assert!(
            reached.iter().all(|count| *count > 0),
            "the test misses what it is for: {all:?}"
        );
    }
}
