//! A shadow beside its source: what it shows, what it leaves alone.

use super::*;

const SHADOW: &str = "public/default/persistent/shadow";

fn shadow_of(world: &World) -> Result<ManagedLedger, OpenError> {
    let (engine, metadata) = (Arc::new(world.engine.clone()), Arc::clone(&world.metadata));
    run(open_shadow(
        (SHADOW, NAME),
        engine,
        metadata,
        world.options.clone(),
        true,
        world.now_ms,
    ))
}

/// Takes all news that there are.
fn follow(shadow: &mut ManagedLedger, follower: &mut SourceFollower) {
    loop {
        let at = Shadow::of(shadow).unwrap().followed();
        let Some(news) = follower.next(at).now_or_never() else {
            return;
        };
        Shadow::of(shadow).unwrap().on_source(news.unwrap());
        let end = shadow.end();
        Shadow::of(shadow).unwrap().show(&[], end);
    }
}

fn shown(shadow: &ManagedLedger) -> Vec<(Ordinal, Position, Bytes)> {
    let mut found = Vec::new();
    let mut at = shadow.first();
    while at < shadow.durable_end() {
        for entry in run(shadow.read(at, 2, 1 << 20)).unwrap() {
            at = entry.ordinal.next();
            found.push((entry.ordinal, entry.position, entry.payload));
        }
    }
    found
}

#[test]
fn a_shadow_shows_its_source_at_the_same_places_through_rollovers_and_restarts() {
    let mut world = World::new(small());
    world.append_many(2);
    let mut shadow = shadow_of(&world).unwrap();
    assert_eq!(shadow.durable_end(), Ordinal(2), "what is there is shown at once");
    let mut follower = Shadow::of(&mut shadow).unwrap().follower();
    for count in [1, 4, 9] {
        world.append_many(count);
        follow(&mut shadow, &mut follower);
        assert_eq!(shown(&shadow), shown(&world.log), "and the writer was not fenced");
        assert_eq!(shadow.durable_end(), world.log.end());
    }
    assert!(world.log.ledgers().len() >= 4);
    // Another owner of the source; the old one's last ledger is sealed by it.
    let (engine, metadata) = (world.engine.clone(), Arc::clone(&world.metadata));
    world.log = open(&engine, &metadata, &small(), 2_000);
    world.append_many(5);
    follow(&mut shadow, &mut follower);
    assert_eq!(shown(&shadow), shown(&world.log));
    // Another owner of the shadow.
    let ledgers = world.existing();
    let again = shadow_of(&world).unwrap();
    assert_eq!(shown(&again), shown(&world.log));
    assert_eq!(world.existing(), ledgers);
}

#[test]
fn a_shadow_shows_nothing_before_it_is_durable() {
    let mut world = World::new(Options::default());
    let mut shadow = shadow_of(&world).unwrap();
    let mut follower = Shadow::of(&mut shadow).unwrap().follower();
    world.engine.hold();
    world.append("a");
    follow(&mut shadow, &mut follower);
    assert_eq!((shadow.end(), shadow.durable_end()), (Ordinal(0), Ordinal(0)));
    world.engine.release();
    follow(&mut shadow, &mut follower);
    assert_eq!(shown(&shadow), shown(&world.log));
    assert_eq!(shadow.durable_end(), Ordinal(1));
}

#[test]
fn a_shadow_takes_nothing_and_deletes_nothing_and_its_front_follows() {
    let mut world = World::new(small());
    world.append_many(10);
    let mut shadow = shadow_of(&world).unwrap();
    let mut follower = Shadow::of(&mut shadow).unwrap().follower();
    assert!(matches!(
        shadow.append(Bytes::from("x")),
        Err(AppendError::Shadow)
    ));
    let before = world.existing();
    assert!(shadow.trim(Ordinal(10), Retention::NONE, 99_000).is_empty());
    assert!(shadow.take_maintenance(99_000).is_none());
    assert_eq!(world.existing(), before);
    world.log.trim(Ordinal(5), Retention::NONE, 99_000);
    world.maintain();
    assert!(world.log.first() > Ordinal(0));
    follow(&mut shadow, &mut follower);
    assert_eq!(shadow.first(), world.log.first());
    assert_eq!(shown(&shadow), shown(&world.log));
    run(shadow.close()).unwrap();
    let engine = Arc::new(world.engine.clone());
    assert!(run(delete(SHADOW, engine, &*world.metadata)).unwrap());
    assert_eq!(
        shown(&world.log).len() as u64,
        world.log.first().count_to(Ordinal(10))
    );
}

#[test]
fn a_shadow_waits_for_its_source_and_knows_it_from_a_later_one() {
    let mut world = World::new(small());
    world.append_many(4);
    let engine = Arc::new(world.engine.clone());
    run(delete(NAME, engine, &*world.metadata)).unwrap();
    let mut early = shadow_of(&world).unwrap();
    let mut follower = Shadow::of(&mut early).unwrap().follower();
    follow(&mut early, &mut follower);
    assert_eq!(early.durable_end(), Ordinal(0));
    world.now_ms = 5_000;
    world.log = open(&world.engine, &world.metadata, &small(), world.now_ms);
    world.append_many(2);
    follow(&mut early, &mut follower);
    assert_eq!(shown(&early), shown(&world.log));
    // Its cursors count the entries of this one.
    let engine = Arc::new(world.engine.clone());
    run(delete(NAME, engine, &*world.metadata)).unwrap();
    world.log = open(&world.engine, &world.metadata, &small(), 6_000);
    let at = Shadow::of(&mut early).unwrap().followed();
    let news = run(follower.next(at));
    assert!(matches!(news, Ok(SourceNews::Gone)), "{news:?}");
    let refused = shadow_of(&world);
    assert!(matches!(refused, Err(OpenError::SourceGone(_))));
    let (engine, metadata) = (Arc::new(world.engine.clone()), Arc::clone(&world.metadata));
    let opened = ManagedLedger::open(SHADOW, engine, metadata, small(), OpenMode::Create, 0);
    assert!(matches!(run(opened), Err(OpenError::NotSuch { .. })));
}

#[test]
fn a_shadow_ends_with_its_source_when_all_of_it_is_shown() {
    let mut world = World::new(small());
    world.append_many(4);
    let mut shadow = shadow_of(&world).unwrap();
    let mut follower = Shadow::of(&mut shadow).unwrap().follower();
    let ends = |shadow: &mut ManagedLedger| Shadow::of(shadow).unwrap().end_with_source();
    assert!(!ends(&mut shadow));
    world.append_many(1);
    world.log.terminate();
    world.maintain();
    follow(&mut shadow, &mut follower);
    assert!(ends(&mut shadow) && !ends(&mut shadow));
    assert!(shadow.is_terminated());
    assert_eq!(shown(&shadow), shown(&world.log));
}
