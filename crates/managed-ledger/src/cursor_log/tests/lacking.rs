//! Changes that were gathered in memory, while the ledger that takes their place is not named yet.

use super::*;

/// Changes made while the engine accepts nothing are in the next ledger alone. Until that is named, a crash leads
/// back to the old one, where no change may follow the missing ones.
#[test]
fn nothing_follows_in_a_ledger_that_lacks_something() {
    let mut world = World::new(tiny());
    let (first, slot) = world.subscribe("a", AckState::new(Ordinal(1)));
    world.commit();
    world.engine.overload(true);
    let mut joined = 0;
    while !world.log.is_unwritten {
        world.join(first, "c", AckState::new(Ordinal(2)));
        joined += 1;
        assert!(joined < 1000);
    }
    let lacking = world.log.slot_free();
    let before = world.state();
    world.join(first, "lacking", AckState::new(Ordinal(3)));
    world.engine.overload(false);
    world.metadata.fail_writes(Some("test"));
    world.maintain();
    assert!(!world.log.is_unwritten, "the next ledger has all");
    let moved = |slot, to| Record::CursorMoved {
        slot,
        acks: AckState::new(Ordinal(to)),
    };
    world.log.queue(moved(lacking, 9)).unwrap();
    world.log.queue(moved(slot, 9)).unwrap();
    let ticket = world.log.commit();
    world.maintain();
    assert!(ticket.durable().now_or_never().is_none(), "it waits for the name");

    let (engine, metadata) = (world.engine.crash(), Arc::clone(&world.metadata));
    metadata.fail_writes(None);
    world.reopen(engine);
    assert!(
        world.state().1.len() < before.1.len(),
        "the old ledger lacks some"
    );
    assert!(world.log.cursor(lacking).is_none());
    assert_eq!(world.log.acks(slot).unwrap().acked_to(), Ordinal(1));
}

#[test]
fn once_named_the_next_ledger_has_what_was_gathered_and_what_came_after() {
    let mut world = World::new(tiny());
    let (first, slot) = world.subscribe("a", AckState::new(Ordinal(1)));
    world.commit();
    world.engine.overload(true);
    while !world.log.is_unwritten {
        world.join(first, "c", AckState::new(Ordinal(2)));
    }
    world.engine.overload(false);
    world.metadata.fail_writes(Some("test"));
    world.maintain();
    let acks = AckState::new(Ordinal(9));
    world.log.queue(Record::CursorMoved { slot, acks }).unwrap();
    world.metadata.fail_writes(None);
    world.now_ms += 1_000;
    world.commit();
    let state = world.state();
    world.crash();
    assert_eq!(world.state(), state);
}
