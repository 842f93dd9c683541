//! Random histories of a cursor log beside a model.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Subscribe,
    Join(u8),
    Move(u8, u8),
    Hole(u8, u8),
    Remove(u8),
    Unsubscribe(u8),
    Put(u8, u8),
    RemoveSystem,
    Note(u8, u8),
    Forget(u8),
    Commit,
    Maintain,
    MaintainOnce,
    Hold(bool),
    Overload(bool),
    FailWrites(bool),
    Later,
    Crash,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Subscribe),
        4 => any::<u8>().prop_map(Step::Join),
        8 => (any::<u8>(), 0u8..100).prop_map(|(which, to)| Step::Move(which, to)),
        3 => (any::<u8>(), 0u8..100).prop_map(|(which, at)| Step::Hole(which, at)),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => any::<u8>().prop_map(Step::Unsubscribe),
        3 => (0u8..100, any::<u8>()).prop_map(|(position, value)| Step::Put(position, value)),
        1 => Just(Step::RemoveSystem),
        3 => (0u8..20, any::<u8>()).prop_map(|(key, value)| Step::Note(key, value)),
        1 => (0u8..5).prop_map(Step::Forget),
        5 => Just(Step::Commit),
        3 => Just(Step::Maintain),
        8 => Just(Step::MaintainOnce),
        2 => any::<bool>().prop_map(Step::Hold),
        2 => any::<bool>().prop_map(Step::Overload),
        1 => any::<bool>().prop_map(Step::FailWrites),
        2 => Just(Step::Later),
        2 => Just(Step::Crash),
        1 => Just(Step::Close),
    ]
}

type State = (
    BTreeMap<SubscriptionId, Box<Subscription>>,
    BTreeMap<Slot, Cursor>,
    BTreeMap<Box<str>, SystemCursor>,
    Notes,
);

type Notes = Vec<(Vec<u8>, Vec<u8>)>;

/// Every state the log was in since the one that is surely durable, and the tickets that would make later ones so.
struct Model {
    states: Vec<State>,
    /// Index into `states` of the last one known to be durable.
    durable: usize,
    tickets: Vec<(usize, BoxFuture<'static, Result<(), CommitError>>)>,
}

fn state_of(world: &World) -> State {
    let (subscriptions, cursors) = world.state();
    let notes = world
        .log
        .notes(b"")
        .map(|(key, value)| (key.to_vec(), value.to_vec()));
    let notes = notes.collect();
    (subscriptions, cursors, world.log.system_cursors().clone(), notes)
}

impl Model {
    fn note(&mut self, world: &World) {
        self.states.push(state_of(world));
    }

    fn poll(&mut self) {
        let durable = &mut self.durable;
        self.tickets
            .retain_mut(|(at, ticket)| match ticket.as_mut().now_or_never() {
                Some(Ok(())) => {
                    *durable = (*durable).max(*at);
                    false
                }
                Some(Err(error)) => {
                    // The metadata store failed: the next commit may do it.
                    assert!(error.is_transient(), "commit failed: {error}");
                    false
                }
                None => true,
            });
    }

    fn reopened(&mut self, world: &World) {
        let state = state_of(world);
        let found = self.states.iter().rposition(|known| *known == state);
        let found = found.expect("a state that the log was in");
        assert!(
            found >= self.durable,
            "state {found} came back, {} was durable",
            self.durable
        );
        (self.states, self.durable, self.tickets) = (vec![state], 0, Vec::new());
    }

    fn pick<K: Copy, V>(map: &BTreeMap<K, V>, which: u8) -> Option<K> {
        map.keys().nth(usize::from(which) % map.len().max(1)).copied()
    }

    fn apply(&mut self, world: &mut World, step: &Step) {
        match step {
            Step::Subscribe => {
                // Two records; a crash may keep the first alone.
                let subscription = world.log.subscription_free();
                let (name, properties) = (format!("s{}", subscription.0), BTreeMap::new());
                let facts = vec![1];
                world
                    .log
                    .queue(Record::SubscriptionCreated {
                        subscription,
                        name,
                        kind: 0,
                        properties,
                        facts,
                    })
                    .unwrap();
            }
            Step::Join(which) => {
                if let Some(subscription) = Self::pick(world.log.subscriptions(), *which) {
                    world.join(subscription, "c", AckState::new(Ordinal(u64::from(*which % 50))));
                }
            }
            Step::Move(which, to) => {
                if let Some(slot) = Self::pick(world.log.cursors(), *which) {
                    let acks = AckState::new(Ordinal(u64::from(*to)));
                    world.log.queue(Record::CursorMoved { slot, acks }).unwrap();
                }
            }
            Step::Hole(which, at) => {
                if let Some(slot) = Self::pick(world.log.cursors(), *which) {
                    let mut acks = world.log.acks(slot).unwrap().clone();
                    acks.ack(Ordinal(u64::from(*at)));
                    world.log.queue(Record::CursorMoved { slot, acks }).unwrap();
                }
            }
            Step::Remove(which) => {
                if let Some(slot) = Self::pick(world.log.cursors(), *which) {
                    world.log.queue(Record::CursorRemoved { slot }).unwrap();
                }
            }
            Step::Unsubscribe(which) => {
                if let Some(subscription) = Self::pick(world.log.subscriptions(), *which) {
                    world
                        .log
                        .queue(Record::SubscriptionRemoved { subscription })
                        .unwrap();
                }
            }
            Step::Put(position, value) => {
                let put = Record::SystemCursorPut {
                    name: format!("system-{}", value % 2),
                    position: Ordinal(u64::from(*position)),
                    properties: BTreeMap::from([(value.to_string(), i64::from(*value))]),
                };
                world.log.queue(put).unwrap();
            }
            Step::RemoveSystem => {
                if let Some(name) = world.log.system_cursors().keys().next() {
                    let name = name.to_string();
                    world.log.queue(Record::SystemCursorRemoved { name }).unwrap();
                }
            }
            Step::Note(key, value) => {
                // Five prefixes of four keys each.
                let (key, value) = (vec![key % 5, key / 5], vec![*value; 3]);
                world.log.queue(Record::Noted { key, value }).unwrap();
            }
            Step::Forget(prefix) => {
                let prefix = vec![*prefix];
                world
                    .log
                    .queue(Record::NotesRemoved {
                        prefix: prefix.clone(),
                    })
                    .unwrap();
                assert_eq!(world.log.notes(&prefix).count(), 0);
            }
            Step::Commit => {
                let ticket = world.log.commit();
                self.tickets
                    .push((self.states.len() - 1, Box::pin(ticket.durable())));
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
            Step::Overload(yes) => world.engine.overload(*yes),
            Step::FailWrites(fails) => world.metadata.fail_writes(fails.then_some("test")),
            Step::Later => world.now_ms += 1_000,
            Step::Crash => {
                world.metadata.fail_writes(None);
                world.engine.overload(false);
                world.crash();
                self.reopened(world);
            }
            Step::Close => self.close(world),
        }
    }

    fn close(&mut self, world: &mut World) {
        world.metadata.fail_writes(None);
        world.engine.release();
        world.engine.overload(false);
        world.now_ms += 1_000;
        world.maintain();
        let spare = open_topic(&MemoryEngine::new(), &Arc::default());
        let spare = run(CursorLog::open(&spare, tiny(), 0)).unwrap();
        run(std::mem::replace(&mut world.log, spare).close(world.now_ms)).unwrap();
        self.durable = self.states.len() - 1;
        world.reopen(world.engine.clone());
        self.reopened(world);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_crash_leaves_a_state_that_is_whole_and_new_enough(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new(tiny());
        let mut model = Model { states: vec![state_of(&world)], durable: 0, tickets: Vec::new() };
        for step in &steps {
            model.apply(&mut world, step);
            model.note(&world);
            model.poll();
        }
        world.metadata.fail_writes(None);
        world.engine.overload(false);
        world.crash();
        model.reopened(&world);
        let named: Vec<_> = world.log.named.into_iter().collect();
        let strays = run(orphans(&world.engine, &*world.metadata)).unwrap();
        assert!(strays.iter().all(|stray| !named.contains(stray)));
    }

    #[test]
    fn replaying_garbage_never_panics(
        bytes in proptest::collection::vec(prop_oneof![0u8..14, any::<u8>()], 0..80),
        is_snapshot in any::<bool>(),
    ) {
        let mut entry = if is_snapshot { SNAPSHOT } else { CHANGES }.to_vec();
        entry.extend_from_slice(&bytes);
        let mut replay = Replay { is_snapshot_whole: !is_snapshot, ..Replay::default() };
        let _ = replay.on_entry(&entry);
    }
}
