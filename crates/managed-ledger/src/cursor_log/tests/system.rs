//! Cursors that are no subscriptions.

use super::*;

fn properties(of: &[(&str, i64)]) -> BTreeMap<String, i64> {
    of.iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

fn put(world: &mut World, name: &str, position: u64, of: &[(&str, i64)]) {
    let put = Record::SystemCursorPut {
        name: name.to_owned(),
        position: Ordinal(position),
        properties: properties(of),
    };
    world.log.queue(put).unwrap();
}

#[test]
fn they_come_back_with_their_place_and_properties_through_changes_and_snapshots() {
    for options in [CursorLogOptions::default(), tiny()] {
        let mut world = World::new(options);
        world.subscribe("a", AckState::new(Ordinal(1)));
        put(&mut world, "pulsar.dedup", 3, &[("p", -1)]);
        put(&mut world, "__compaction", 7, &[]);
        world.commit();
        put(&mut world, "pulsar.dedup", 9, &[("p", i64::MAX), ("q", i64::MIN)]);
        let gone = Record::SystemCursorRemoved {
            name: "__compaction".to_owned(),
        };
        world.log.queue(gone.clone()).unwrap();
        assert!(matches!(
            world.log.queue(gone),
            Err(QueueError::NoSystemCursor(name)) if name == "__compaction"
        ));
        world.commit();
        world.crash();
        let expected = SystemCursor {
            position: Ordinal(9),
            properties: properties(&[("p", i64::MAX), ("q", i64::MIN)]),
        };
        assert_eq!(
            *world.log.system_cursors(),
            BTreeMap::from([("pulsar.dedup".into(), expected)])
        );
        assert_eq!(
            (world.log.subscriptions().len(), world.log.cursors().len()),
            (1, 1)
        );
    }
}

#[test]
fn one_that_is_put_again_and_again_does_not_keep_the_log_from_rolling() {
    let mut world = World::new(tiny());
    for position in 0..50 {
        put(&mut world, "pulsar.dedup", position, &[("some producer", 1)]);
        world.commit();
    }
    let primary = world.log.primary.as_ref().unwrap();
    assert!(primary.bytes < 200, "{} bytes", primary.bytes);
}

#[test]
fn their_places_are_fitted_to_the_recovered_log() {
    let mut world = World::new(CursorLogOptions::default());
    put(&mut world, "pulsar.dedup", 120, &[("p", 1)]);
    world.commit();
    world.crash();
    for _ in 0..100 {
        world.topic.append(Bytes::from("new")).unwrap();
    }
    world.crash();
    assert_eq!(world.log.system_cursors()["pulsar.dedup"].position, Ordinal(100));
}

#[test]
fn a_snapshot_without_them_is_the_one_that_older_releases_write() {
    let mirror = Mirror::default();
    assert_eq!(mirror.snapshot(100), [[SNAPSHOT[0], SNAPSHOT[1], 9, 0, 0]]);
    let mut mirror = Mirror::default();
    mirror.apply(Record::SystemCursorPut {
        name: "s".to_owned(),
        position: Ordinal(2),
        properties: properties(&[("k", -2)]),
    });
    let record = [
        10, 1, b's', 2, 1, 1, b'k', 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];
    let mut expected = SNAPSHOT.to_vec();
    expected.extend_from_slice(&record);
    expected.extend_from_slice(&[12, 0, 0, 1]);
    assert_eq!(mirror.snapshot(100), [expected.clone()]);
    let mut replay = Replay::default();
    replay.on_entry(&expected).unwrap();
    assert_eq!(replay.mirror, mirror);
    // Cut anywhere, or with another count, it is damage.
    for cut in 2..expected.len() {
        let mut replay = Replay::default();
        let outcome = replay.on_entry(&expected[..cut]);
        assert!(outcome.is_err() || !replay.is_snapshot_whole, "cut at {cut}");
    }
    *expected.last_mut().unwrap() = 2;
    assert!(Replay::default().on_entry(&expected).is_err());
}
