//! From one ledger to the next while entries wait.

use super::*;

#[test]
fn entries_that_wait_for_room_stay_in_the_ledger_where_they_have_positions() {
    let mut world = World::new(small());
    world.append_many(2);
    world.engine.hold();
    for payload in ["2", "3", "4"] {
        world.append(payload);
        world.maintain();
    }
    // The handover comes to its end, and the engine takes nothing of what waited for it.
    world.engine.overload(true);
    world.engine.release();
    world.maintain();
    for payload in ["5", "6", "7"] {
        world.append(payload);
        world.maintain();
    }
    let positions: Vec<_> = (0..8)
        .map(|at| world.log.position_of(Ordinal(at)).unwrap())
        .collect();
    world.engine.overload(false);
    world.maintain();
    assert_eq!(world.log.durable_end(), Ordinal(8));
    let engine = world.engine.crash();
    let stored: Vec<_> = positions
        .iter()
        .map(|position| run(engine.read(position.ledger, position.entry, 1, 100)).unwrap())
        .map(|found| found[0].payload.clone())
        .collect();
    assert_eq!(stored, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn a_released_handover_makes_all_durable_and_watches_follow() {
    let mut world = World::new(small());
    let mut watch = world.log.durable_watch();
    world.append_many(2);
    assert_eq!(run(watch.changed()).unwrap(), Ordinal(2));
    world.engine.hold();
    for payload in ["2", "3", "4"] {
        world.append(payload);
        world.maintain();
    }
    assert!(watch.changed().now_or_never().is_none());
    world.engine.release();
    assert_eq!(watch.end(), Ordinal(3));
    let events = world.maintain();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, MaintenanceEvent::RolledOver)),
        "{events:?}"
    );
    run(watch.reaches(Ordinal(4))).unwrap();
    assert_eq!(world.log.durable_end(), Ordinal(5));
    assert_eq!(world.payloads(), ["0", "1", "2", "3", "4"]);
}
