//! Tests of one rule each, with the smallest input.

use super::*;

fn o(ordinals: &[u64]) -> Vec<Ordinal> {
    ordinals.iter().copied().map(Ordinal).collect()
}

fn log(count: u64) -> Vec<EntryRef> {
    (0..count).map(message).collect()
}

#[test]
fn nothing_is_read_without_permits() {
    let mut d = shared();
    assert_eq!(d.next(0, Ordinal(5)), Next::Idle);
    join(&mut d, 2, 0);
    assert_eq!(d.next(0, Ordinal(5)), Next::Idle);
    d.flow(ConsumerKey(2), 3);
    assert_eq!(drive(&mut d, 0, &log(5)), [(2, 0, 0), (2, 1, 0), (2, 2, 0)]);
    assert_eq!(d.consumer_stats(ConsumerKey(2)).unwrap().permits, 0);
}

#[test]
fn a_turn_is_twenty_messages() {
    let mut d = shared();
    join(&mut d, 3, 1000);
    let sent = drive(&mut d, 0, &log(70));
    let owners: Vec<u64> = sent.iter().map(|sent| sent.0).collect();
    let expected: Vec<u64> = [(1, 20), (2, 20), (3, 20), (1, 10)]
        .iter()
        .flat_map(|&(owner, count)| vec![owner; count])
        .collect();
    assert_eq!(owners, expected);
}

#[test]
fn a_batch_costs_its_messages_and_may_go_below_zero() {
    let mut d = shared();
    join(&mut d, 2, 15);
    let log: Vec<_> = (0..5).map(|at| batch(at, 10)).collect();
    let sent = drive(&mut d, 0, &log);
    assert_eq!(sent.len(), 4);
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().permits, -5);
    d.flow(ConsumerKey(1), 5);
    assert!(drive(&mut d, 0, &log).is_empty());
    d.flow(ConsumerKey(1), 1);
    assert_eq!(drive(&mut d, 0, &log), [(1, 4, 0)]);
}

#[test]
fn a_lower_level_gets_messages_only_when_no_higher_one_has_permits() {
    let mut d = shared();
    for (key, priority_level) in [(1, 1), (2, 0), (3, 0)] {
        let spec = ConsumerSpec {
            priority_level,
            ..spec("c")
        };
        d.add_consumer(ConsumerKey(key), spec).unwrap();
        d.flow(ConsumerKey(key), 4);
    }
    let sent = drive(&mut d, 0, &log(10));
    assert_eq!(got(&sent, 1), [8, 9]);
    d.flow(ConsumerKey(3), 1);
    assert_eq!(drive(&mut d, 0, &log(12)), [(3, 10, 0), (1, 11, 0)]);
}

#[test]
fn unwritten_bytes_stop_a_consumer() {
    let mut d = shared();
    let spec = ConsumerSpec {
        window_bytes: 250,
        ..spec("c")
    };
    d.add_consumer(ConsumerKey(1), spec).unwrap();
    d.flow(ConsumerKey(1), 1000);
    assert_eq!(drive(&mut d, 0, &log(10)).len(), 3);
    d.written(ConsumerKey(1), 50);
    assert!(drive(&mut d, 0, &log(10)).is_empty());
    d.written(ConsumerKey(1), 1);
    assert_eq!(drive(&mut d, 0, &log(10)).len(), 1);
}

#[test]
fn what_a_leaver_had_comes_first_and_in_order() {
    let mut d = shared();
    join(&mut d, 2, 30);
    let sent = drive(&mut d, 0, &log(60));
    let mut left = got(&sent, 1);
    d.ack(Ordinal(left.remove(3)));
    assert!(d.remove_consumer(ConsumerKey(1)));
    d.flow(ConsumerKey(2), 100);
    let again = drive(&mut d, 0, &log(62));
    left.extend([60, 61]);
    assert_eq!(got(&again, 2), left);
    assert!(again.iter().all(|sent| sent.2 == 0), "leaving is no redelivery");
}

#[test]
fn when_all_have_left_delivery_begins_again_without_what_is_acked() {
    let mut d = shared();
    join(&mut d, 1, 100);
    drive(&mut d, 0, &log(6));
    for at in [0, 2, 3] {
        d.ack(Ordinal(at));
    }
    d.remove_consumer(ConsumerKey(1));
    assert!(d.is_empty());
    assert_eq!(d.stats(Ordinal(6)).pending, 0);
    join(&mut d, 1, 100);
    assert_eq!(got(&drive(&mut d, 0, &log(6)), 1), [1, 4, 5]);
}

#[test]
fn a_read_from_before_all_left_is_of_no_use() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let Next::Read { from, .. } = d.next(0, Ordinal(2)) else {
        panic!("a read");
    };
    assert_eq!(d.next(0, Ordinal(2)), Next::Idle, "one read at a time");
    d.remove_consumer(ConsumerKey(1));
    join(&mut d, 1, 100);
    let mut out = Vec::new();
    d.on_entries(0, &log(2)[from.0 as usize..], &mut out);
    assert!(out.is_empty());
    assert_eq!(got(&drive(&mut d, 0, &log(2)), 1), [0, 1]);
}

#[test]
fn only_an_explicit_redelivery_counts_and_an_ack_ends_it() {
    let mut d = shared();
    join(&mut d, 2, 100);
    let log = log(40);
    let sent = drive(&mut d, 0, &log);
    assert_eq!(got(&sent, 1), (0..20).collect::<Vec<_>>());
    // 25 is pending at the other one.
    assert_eq!(d.redeliver(ConsumerKey(1), Some(&o(&[5, 3, 25, 99]))), 2);
    let again = drive(&mut d, 0, &log);
    assert_eq!(
        again.iter().map(|s| (s.1, s.2)).collect::<Vec<_>>(),
        [(3, 1), (5, 1)]
    );
    for key in [1, 2] {
        d.redeliver(ConsumerKey(key), None);
    }
    d.ack(Ordinal(3));
    let again = drive(&mut d, 0, &log);
    assert_eq!(again.len(), 39);
    assert_eq!(again[3], (again[3].0, 4, 1));
    assert_eq!(again[4], (again[4].0, 5, 2));
}

#[test]
fn an_ack_of_anothers_message_frees_its_owner() {
    let mut d = shared();
    join(&mut d, 2, 100);
    drive(&mut d, 0, &log(40));
    let acked = d.ack(Ordinal(25));
    assert_eq!((acked.owner, acked.messages), (Some(ConsumerKey(2)), 1));
    assert_eq!(d.consumer_stats(ConsumerKey(2)).unwrap().unacked, 19);
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().unacked, 20);
    let again = d.ack(Ordinal(25));
    assert_eq!((again.owner, again.messages), (None, 0));
    assert_eq!(d.stats(Ordinal(40)).unacked, 39);
}

#[test]
fn a_consumer_is_blocked_at_its_limit_and_free_at_half() {
    let mut d = shared();
    d.set_limits(Limits {
        unacked_per_consumer_max: 10,
        unacked_per_subscription_max: 0,
    });
    join(&mut d, 1, 100);
    let log = log(100);
    assert_eq!(drive(&mut d, 0, &log).len(), 10);
    d.flow(ConsumerKey(1), 5);
    let stats = d.consumer_stats(ConsumerKey(1)).unwrap();
    assert!(stats.is_blocked);
    assert_eq!(stats.permits, 90, "permits are parked meanwhile");
    (0..4).for_each(|at| assert!(d.ack(Ordinal(at)).outcome.advanced()));
    assert!(drive(&mut d, 0, &log).is_empty());
    d.ack(Ordinal(4));
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().permits, 95);
    assert_eq!(drive(&mut d, 0, &log).len(), 5);
    assert!(d.consumer_stats(ConsumerKey(1)).unwrap().is_blocked);
    d.redeliver(ConsumerKey(1), Some(&o(&[5])));
    assert_eq!(drive(&mut d, 0, &log), [(1, 5, 1)], "asking again unblocks");
}

#[test]
fn a_blocked_subscription_still_replays() {
    let mut d = shared();
    d.set_limits(Limits {
        unacked_per_consumer_max: 0,
        unacked_per_subscription_max: 10,
    });
    join(&mut d, 2, 100);
    let log = log(100);
    assert_eq!(drive(&mut d, 0, &log).len(), 10);
    assert!(d.stats(Ordinal(100)).is_blocked);
    d.redeliver(ConsumerKey(1), Some(&o(&[7, 8])));
    assert_eq!(got(&drive(&mut d, 0, &log), 1), [7, 8]);
    (0..5).for_each(|at| assert!(d.ack(Ordinal(at)).outcome.changed()));
    assert!(drive(&mut d, 0, &log).is_empty(), "at half is not below half");
    d.ack(Ordinal(5));
    assert_eq!(drive(&mut d, 0, &log).len(), 6);
}

#[test]
fn a_partly_acked_batch_comes_again_with_the_rest_of_its_indexes() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let log = [batch(0, 10), message(1)];
    drive(&mut d, 0, &log);
    let remaining = 0b11_1111_1111 & !(1 << 3) & !(1 << 7);
    let acked = d.ack_batch(Ordinal(0), &[remaining]);
    assert_eq!((acked.owner, acked.messages), (Some(ConsumerKey(1)), 2));
    let stats = d.consumer_stats(ConsumerKey(1)).unwrap();
    assert_eq!((stats.unacked, stats.permits), (9, 89));
    d.redeliver(ConsumerKey(1), None);
    let Next::Replay { ordinals, .. } = d.next(0, Ordinal(2)) else {
        panic!("a replay");
    };
    assert_eq!(ordinals, o(&[0, 1]));
    let mut out = Vec::new();
    d.on_entries(0, &log, &mut out);
    assert_eq!(out[0].ack_set.as_deref(), Some([887].as_slice()));
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().permits, 80);
    assert!(d.ack_batch(Ordinal(0), &[0]).outcome.advanced());
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().unacked, 1);
}

/// A piece of a message of three.
fn piece(ordinal: u64, uuid_hash: u64, index: u32) -> EntryRef {
    let count = 3;
    EntryRef {
        chunk: Some(Chunk {
            uuid_hash,
            index,
            count,
        }),
        ..message(ordinal)
    }
}

#[test]
fn a_piece_left_behind_is_not_asked_for_while_its_consumer_is_busy() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let log = [piece(0, 7, 0), piece(1, 7, 1), piece(2, 7, 2)];
    drive(&mut d, 0, &log);
    d.redeliver(ConsumerKey(1), None);
    d.ack(Ordinal(2));
    // A better consumer takes the first piece, and with it the duty for the others.
    let better = ConsumerSpec {
        priority_level: -1,
        ..spec("better")
    };
    d.add_consumer(ConsumerKey(2), better).unwrap();
    d.remove_consumer(ConsumerKey(1));
    join(&mut d, 1, 100);
    d.flow(ConsumerKey(2), 1);
    assert_eq!(drive(&mut d, 0, &log), [(2, 0, 1)]);
    assert_eq!(d.next(0, Ordinal(3)), Next::Idle);
    d.flow(ConsumerKey(2), 1);
    assert_eq!(drive(&mut d, 0, &log), [(2, 1, 1)]);
}

#[test]
fn pieces_of_a_message_stay_together() {
    let mut d = Dispatcher::shared(
        AckState::default(),
        Options {
            round_robin_messages_max: 1,
            ..Options::default()
        },
        Limits::default(),
    );
    join(&mut d, 2, 2);
    // Two messages of three pieces, interleaved, and a plain one.
    let mut log = vec![
        piece(0, 7, 0),
        piece(1, 9, 0),
        piece(2, 7, 1),
        piece(3, 9, 1),
        piece(4, 7, 2),
        message(5),
        piece(6, 9, 2),
    ];
    let sent = drive(&mut d, 0, &log);
    assert_eq!((got(&sent, 1), got(&sent, 2)), (vec![0, 2], vec![1, 3]));
    d.flow(ConsumerKey(2), 3);
    let sent = drive(&mut d, 0, &log);
    assert_eq!(got(&sent, 2), [5, 6], "4 waits for the other one");
    assert_eq!(d.stats(Ordinal(7)).in_replay, 1);
    assert_eq!(
        d.next(0, Ordinal(7)),
        Next::Idle,
        "and is not asked for meanwhile"
    );
    d.remove_consumer(ConsumerKey(1));
    d.flow(ConsumerKey(2), 10);
    assert_eq!(got(&drive(&mut d, 0, &log), 2), [0, 2, 4]);
    // A piece whose beginning was not seen is delivered all the same.
    log.push(piece(7, 11, 2));
    assert_eq!(drive(&mut d, 0, &log), [(2, 7, 0)]);
}

#[test]
fn markers_are_acknowledged_and_not_delivered() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let marker = EntryRef {
        is_marker: true,
        ..message(0)
    };
    assert!(matches!(d.next(0, Ordinal(2)), Next::Read { .. }));
    let mut out = Vec::new();
    let dealt = d.on_entries(0, &[marker, message(1)], &mut out);
    assert!(dealt.changed && dealt.advanced);
    assert_eq!((out.len(), d.acked_to()), (1, Ordinal(1)));
}

#[test]
fn what_is_withheld_is_delivered_once_it_is_released() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let log = log(4);
    assert_eq!(drive(&mut d, 0, &log).len(), 4);
    d.withhold(&o(&[1, 2]));
    assert_eq!(
        d.consumer_stats(ConsumerKey(1)).unwrap().unacked,
        2,
        "its consumer has done with it"
    );
    d.redeliver(ConsumerKey(1), None);
    assert_eq!(got(&drive(&mut d, 0, &log), 1), [0, 3]);
    // Also when everything is read anew, because the last consumer left.
    d.remove_consumer(ConsumerKey(1));
    join(&mut d, 1, 100);
    assert_eq!(got(&drive(&mut d, 0, &log), 1), [0, 3]);
    d.release_withheld(&o(&[1, 3]));
    assert_eq!(
        drive(&mut d, 0, &log),
        [(1, 1, 1)],
        "what is not withheld stays where it is"
    );
    d.ack(Ordinal(2));
    d.release_withheld(&o(&[2]));
    assert!(drive(&mut d, 0, &log).is_empty(), "it was acknowledged");
    // Released before it was read again: it comes as new, once.
    d.withhold(&o(&[1]));
    d.remove_consumer(ConsumerKey(1));
    d.release_withheld(&o(&[1]));
    join(&mut d, 1, 100);
    assert_eq!(got(&drive(&mut d, 0, &log), 1), [0, 1, 3]);
}

#[test]
fn a_delayed_message_lets_others_pass_and_comes_within_a_tick() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let late = EntryRef {
        deliver_at: Some(10_000),
        ..message(0)
    };
    let log = [late, message(1)];
    assert_eq!(drive(&mut d, 5000, &log), [(1, 1, 0)]);
    assert_eq!(d.stats(Ordinal(2)).delayed, 1);
    assert_eq!(d.next(5000, Ordinal(2)), Next::WaitUntil(10_000));
    assert!(drive(&mut d, 8999, &log).is_empty());
    assert_eq!(drive(&mut d, 9000, &log), [(1, 0, 0)]);
    assert_eq!(d.stats(Ordinal(2)).delayed, 0);
}

#[test]
fn strict_delay_is_never_early_and_no_delay_is_at_once() {
    let log = [EntryRef {
        deliver_at: Some(10_000),
        ..message(0)
    }];
    let with = |delay| {
        let options = Options {
            delay,
            ..Options::default()
        };
        let mut d = Dispatcher::shared(AckState::default(), options, Limits::default());
        join(&mut d, 1, 100);
        d
    };
    let mut strict = with(Some(DelayOptions {
        strict: true,
        ..DelayOptions::default()
    }));
    assert!(drive(&mut strict, 9999, &log).is_empty());
    assert_eq!(strict.next(9999, Ordinal(1)), Next::WaitUntil(10_000));
    assert_eq!(drive(&mut strict, 10_000, &log).len(), 1);
    assert_eq!(drive(&mut with(None), 0, &log).len(), 1);
}

#[test]
fn delayed_messages_beyond_the_index_are_found_again() {
    let options = Options {
        delay: Some(DelayOptions {
            index_entries_max: 4,
            strict: true,
            ..DelayOptions::default()
        }),
        ..Options::default()
    };
    let mut d = Dispatcher::shared(AckState::default(), options, Limits::default());
    join(&mut d, 1, 1000);
    // Due in reverse order, with plain ones between.
    let log: Vec<_> = (0..40)
        .map(|at| EntryRef {
            deliver_at: (at % 2 == 0).then_some(1000 - at as i64),
            ..message(at)
        })
        .collect();
    assert_eq!(drive(&mut d, 0, &log).len(), 20, "the others are not held up");
    assert!(d.delayed.contains(38) && !d.delayed.contains(0));
    let mut sent = Vec::new();
    for now in 900..=1000 {
        sent.extend(got(&drive(&mut d, now, &log), 1));
    }
    assert_eq!(sent, (0..20).rev().map(|at| at * 2).collect::<Vec<_>>());
    assert_eq!(d.stats(Ordinal(40)).delayed, 0);
}

#[test]
fn skipping_takes_messages_from_wherever_they_are() {
    let mut d = shared();
    join(&mut d, 2, 30);
    let mut log = log(60);
    log[2].deliver_at = Some(1 << 40);
    drive(&mut d, 0, &log);
    d.redeliver(ConsumerKey(2), Some(&o(&[21, 22])));
    assert!(d.ack_before(Ordinal(25)));
    assert!(!d.ack_before(Ordinal(25)));
    let stats = d.stats(Ordinal(60));
    assert_eq!((stats.backlog, stats.in_replay, stats.delayed), (35, 0, 0));
    assert_eq!(stats.pending, 35);
    d.ack_before(Ordinal(70));
    assert_eq!(d.stats(Ordinal(70)).pending, 0);
    log.extend((60..72).map(message));
    d.flow(ConsumerKey(1), 100);
    let sent = drive(&mut d, 0, &log);
    assert_eq!(sent.iter().map(|sent| sent.1).collect::<Vec<_>>(), [70, 71]);
}

#[test]
fn a_seek_starts_over_at_exactly_that_entry() {
    let mut d = shared();
    join(&mut d, 1, 100);
    let log = log(10);
    drive(&mut d, 0, &log);
    d.redeliver(ConsumerKey(1), None);
    d.ack(Ordinal(5));
    d.reset(Ordinal(4));
    assert_eq!(d.consumer_stats(ConsumerKey(1)).unwrap().unacked, 0);
    let sent = drive(&mut d, 0, &log);
    assert_eq!(got(&sent, 1), (4..10).collect::<Vec<_>>());
    assert!(sent.iter().all(|sent| sent.2 == 0));
}

#[test]
fn entries_that_are_gone_are_not_asked_for_again() {
    let mut d = shared();
    join(&mut d, 1, 100);
    drive(&mut d, 0, &log(3));
    d.redeliver(ConsumerKey(1), None);
    let Next::Replay { ordinals, .. } = d.next(0, Ordinal(3)) else {
        panic!("a replay");
    };
    assert_eq!(ordinals, o(&[0, 1, 2]));
    assert!(d.gone(&o(&[0])).advanced);
    let mut out = Vec::new();
    d.on_entries(0, &[message(1)], &mut out);
    assert_eq!(out.len(), 1);
    let Next::Replay { ordinals, .. } = d.next(0, Ordinal(3)) else {
        panic!("a replay of the rest");
    };
    assert_eq!(ordinals, o(&[2]));
    d.read_failed();
    assert!(matches!(d.next(0, Ordinal(3)), Next::Replay { .. }));
}

#[test]
fn entries_that_are_set_aside_hold_up_nothing_and_stay_unacknowledged() {
    let mut d = shared();
    join(&mut d, 1, 100);
    drive(&mut d, 0, &log(3));
    d.redeliver(ConsumerKey(1), None);
    assert!(matches!(d.next(0, Ordinal(4)), Next::Replay { .. }));
    d.set_aside(&o(&[1]));
    let mut out = Vec::new();
    d.on_entries(0, &[message(0), message(2)], &mut out);
    assert_eq!(out.len(), 2);
    assert!(matches!(
        d.next(0, Ordinal(4)),
        Next::Read { from: Ordinal(3), .. }
    ));
    d.read_failed();
    for ordinal in [0, 2] {
        d.ack(Ordinal(ordinal));
    }
    assert_eq!(d.acks().acked_to(), Ordinal(1));
    // A consumer that comes after all left finds it where it was.
    d.remove_consumer(ConsumerKey(1));
    join(&mut d, 2, 100);
    assert!(matches!(
        d.next(0, Ordinal(3)),
        Next::Read { from: Ordinal(1), .. }
    ));
}

#[test]
fn without_storage_a_message_goes_to_who_can_take_it_or_nowhere() {
    let mut d = shared();
    assert_eq!(d.deal_transient(&message(0)), None);
    join(&mut d, 2, 1);
    let taken: Vec<_> = (0..3).map(|at| d.deal_transient(&message(at))).collect();
    assert_eq!(taken, [Some(ConsumerKey(1)), Some(ConsumerKey(2)), None]);
    assert_eq!(d.stats(Ordinal(0)).unacked, 0);
}
