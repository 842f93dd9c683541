//! Random histories of a managed ledger beside a model.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Append(u8),
    Maintain,
    /// Runs one maintenance step only, so that crashes fall between any two.
    MaintainOnce,
    Hold(bool),
    FailWrites(bool),
    Trim(u8),
    Later(u16),
    Roll,
    Crash,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u8..6).prop_map(Step::Append),
        3 => Just(Step::Maintain),
        6 => Just(Step::MaintainOnce),
        2 => any::<bool>().prop_map(Step::Hold),
        1 => any::<bool>().prop_map(Step::FailWrites),
        2 => any::<u8>().prop_map(Step::Trim),
        2 => (0u16..3_000).prop_map(Step::Later),
        1 => Just(Step::Roll),
        2 => Just(Step::Crash),
        1 => Just(Step::Close),
    ]
}

/// Expected state of the log: every entry ever durable, in order, from the first that was not trimmed.
struct Model {
    /// Payload of each ordinal, as appended last.
    appended: Vec<String>,
    /// The highest durable end that was seen.
    durable: u64,
    count: u64,
}

impl Model {
    fn reopen(&mut self, world: &mut World, is_crash: bool) {
        world.metadata.fail_writes(None);
        if is_crash {
            world.crash();
        } else {
            world.engine.release();
            world.steps.clear();
            let spare = open(&MemoryEngine::new(), &Arc::default(), &small(), 0);
            let log = std::mem::replace(&mut world.log, spare);
            let end = log.end();
            // A step that was dropped half-way may have closed the ledger already.
            if run(log.close()).is_ok() {
                self.durable = self.durable.max(end.0);
            }
            world.log = open(&world.engine, &world.metadata, &world.options, world.now_ms);
        }
        let end = world.log.end();
        assert!(
            end.0 >= self.durable,
            "durable to {} but reopened at {}",
            self.durable,
            end.0
        );
        assert_eq!(world.log.durable_end(), end);
        self.appended.truncate(usize::try_from(end.0).unwrap());
        let named: Vec<_> = world.log.ledgers().iter().map(|row| row.id).collect();
        let strays = run(orphans(&world.engine, &*world.metadata)).unwrap();
        assert!(strays.iter().all(|stray| !named.contains(stray)));
    }

    fn check(&mut self, world: &World) {
        self.durable = self.durable.max(world.log.durable_end().0);
        assert!(world.log.durable_end() <= world.log.end());
        assert_eq!(world.log.end().0, self.appended.len() as u64);
        let (first, end) = (world.log.first().0 as usize, world.log.durable_end().0 as usize);
        assert_eq!(world.payloads(), self.appended[first..end]);
        assert!(
            world
                .log
                .ledgers()
                .iter()
                .is_sorted_by(|one, two| one.id < two.id && one.end() == two.first)
        );
    }

    fn apply(&mut self, world: &mut World, step: &Step) {
        match step {
            Step::Append(count) => {
                for _ in 0..*count {
                    self.count += 1;
                    let payload = self.count.to_string();
                    let appended = world.append(&payload);
                    assert_eq!(appended.ordinal.0, self.appended.len() as u64);
                    self.appended.push(payload);
                }
            }
            Step::Maintain => drop(world.maintain()),
            Step::MaintainOnce => {
                if let Some(step) = world.log.take_maintenance(world.now_ms) {
                    world.steps.push(step);
                }
                if let Some(Some(done)) = world.steps.next().now_or_never() {
                    world.log.on_maintenance(done, world.now_ms);
                }
            }
            Step::Hold(true) => world.engine.hold(),
            Step::Hold(false) => world.engine.release(),
            Step::FailWrites(fails) => world.metadata.fail_writes(fails.then_some("test")),
            Step::Trim(acked) => {
                let acked = Ordinal(u64::from(*acked).min(world.log.durable_end().0));
                world.log.trim(acked, Retention::NONE, world.now_ms);
            }
            Step::Later(ms) => world.now_ms += u64::from(*ms),
            Step::Roll => world.log.ask_rollover(),
            Step::Crash => self.reopen(world, true),
            Step::Close => self.reopen(world, false),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_histories_lose_nothing_durable(
        steps in proptest::collection::vec(step(), 1..80),
        is_cached in any::<bool>(),
    ) {
        let cache_bytes_max = if is_cached { 300 } else { 0 };
        let mut world = World::new(Options { cache_bytes_max, ..small() });
        let mut model = Model { appended: Vec::new(), durable: 0, count: 0 };
        for step in &steps {
            model.apply(&mut world, step);
            model.check(&world);
        }
        model.reopen(&mut world, true);
        model.check(&world);
    }
}
