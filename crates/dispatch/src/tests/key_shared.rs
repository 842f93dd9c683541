//! Rules of Key_Shared.

use super::*;
use crate::HashRange;

const A: ConsumerKey = ConsumerKey(1);
const B: ConsumerKey = ConsumerKey(2);

/// Keys that the ring sends to `c1` and `c2` when both are there (protocol facts, golden vectors).
const OF_C1: [&str; 4] = ["key-0", "key-2", "hello", "order-42"];
const OF_C2: [&str; 2] = ["key-1", "a"];

fn with(mode: KeySharedMode, allow_out_of_order: bool) -> ConsumerSpec {
    ConsumerSpec {
        key_shared: Some(KeySharedSpec {
            mode,
            allow_out_of_order,
        }),
        ..spec("c")
    }
}

fn sticky(ranges: &[(u32, u32)]) -> KeySharedMode {
    let range = |&(start, end)| HashRange { start, end };
    KeySharedMode::Sticky(ranges.iter().map(range).collect())
}

#[test]
fn keys_go_where_the_reference_sends_them() {
    let mut d = key_shared();
    join(&mut d, 2, 100);
    let log: Vec<_> = (0..)
        .zip(OF_C1.iter().chain(&OF_C2))
        .map(|(at, key)| keyed(at, key))
        .collect();
    let sent = drive(&mut d, 0, &log);
    assert_eq!((got(&sent, 1), got(&sent, 2)), (vec![0, 1, 2, 3], vec![4, 5]));
    let covered: u32 = [A, B]
        .iter()
        .flat_map(|key| d.hash_ranges(*key))
        .map(|range| range.end - range.start + 1)
        .sum();
    assert_eq!(covered, 65535);
}

#[test]
fn a_key_that_moves_waits_until_the_old_owner_is_done_with_it() {
    let mut d = key_shared();
    join(&mut d, 1, 100);
    let mut log = vec![keyed(0, "a"), keyed(1, "a"), keyed(2, "key-0")];
    drive(&mut d, 0, &log);
    d.add_consumer(B, spec("c2")).unwrap();
    d.flow(B, 100);
    log.extend([keyed(3, "a"), keyed(4, "key-1"), keyed(5, "key-0")]);
    let sent = drive(&mut d, 0, &log);
    assert_eq!((got(&sent, 1), got(&sent, 2)), (vec![5], vec![4]));
    assert_eq!(d.stats(Ordinal(6)).draining_hashes, 1);
    d.ack(Ordinal(1));
    assert!(drive(&mut d, 0, &log).is_empty());
    d.ack(Ordinal(0));
    assert_eq!(drive(&mut d, 0, &log), [(2, 3, 0)]);
    assert_eq!(d.stats(Ordinal(6)).draining_hashes, 0);
}

#[test]
fn an_old_owner_that_gives_messages_back_is_done_with_them() {
    for leaves in [true, false] {
        let mut d = key_shared();
        join(&mut d, 1, 100);
        let mut log = vec![keyed(0, "a"), keyed(1, "key-0"), keyed(2, "a")];
        drive(&mut d, 0, &log);
        d.add_consumer(B, spec("c2")).unwrap();
        d.flow(B, 100);
        log.push(keyed(3, "a"));
        assert!(drive(&mut d, 0, &log).is_empty());
        if leaves {
            d.remove_consumer(A);
            assert_eq!(got(&drive(&mut d, 0, &log), 2), [0, 1, 2, 3]);
        } else {
            d.redeliver(A, None);
            let sent = drive(&mut d, 0, &log);
            assert_eq!((got(&sent, 2), got(&sent, 1)), (vec![0, 2, 3], vec![1]));
        }
    }
}

#[test]
fn out_of_order_delivery_does_not_wait() {
    let mut d = key_shared();
    let auto = |name| ConsumerSpec {
        name: Arc::from(name),
        ..with(KeySharedMode::AutoSplit, true)
    };
    d.add_consumer(A, auto("c1")).unwrap();
    d.flow(A, 100);
    let mut log = vec![keyed(0, "a")];
    drive(&mut d, 0, &log);
    d.add_consumer(B, auto("c2")).unwrap();
    d.flow(B, 100);
    log.push(keyed(1, "a"));
    assert_eq!(drive(&mut d, 0, &log), [(2, 1, 0)]);
    d.redeliver(A, None);
    assert_eq!(drive(&mut d, 0, &log), [(2, 0, 1)]);
}

#[test]
fn a_consumer_without_permits_holds_up_only_its_own_keys() {
    let mut d = key_shared();
    join(&mut d, 2, 0);
    d.flow(A, 100);
    let log: Vec<_> = (0..20)
        .map(|at| keyed(at, if at % 2 == 0 { "key-0" } else { "a" }))
        .collect();
    assert_eq!(
        got(&drive(&mut d, 0, &log), 1),
        (0..20).step_by(2).collect::<Vec<_>>()
    );
    assert_eq!(d.stats(Ordinal(20)).in_replay, 10);
    d.flow(B, 4);
    assert_eq!(got(&drive(&mut d, 0, &log), 2), [1, 3, 5, 7]);
}

#[test]
fn a_message_in_replay_blocks_the_later_ones_of_its_key() {
    let mut d = key_shared();
    join(&mut d, 1, 2);
    let log: Vec<_> = (0..4).map(|at| keyed(at, "a")).collect();
    drive(&mut d, 0, &log);
    d.redeliver(A, Some(&[Ordinal(1)]));
    d.flow(A, 10);
    assert_eq!(drive(&mut d, 0, &log), [(1, 1, 1), (1, 2, 0), (1, 3, 0)]);
}

#[test]
fn looking_ahead_past_held_back_messages_ends() {
    let options = Options {
        key_shared: KeySharedOptions {
            look_ahead_per_consumer_max: 10,
            look_ahead_per_subscription_max: 15,
            ..KeySharedOptions::default()
        },
        ..Options::default()
    };
    let mut d = Dispatcher::key_shared(AckState::default(), options, Limits::default());
    join(&mut d, 2, 0);
    d.flow(A, 1000);
    let log: Vec<_> = (0..100).map(|at| keyed(at, "a")).collect();
    assert!(drive(&mut d, 0, &log).is_empty());
    assert_eq!(d.stats(Ordinal(100)).in_replay, 15);
    d.flow(B, 1000);
    assert_eq!(drive(&mut d, 0, &log).len(), 100);
}

#[test]
fn sticky_ranges_get_their_keys_and_the_rest_waits() {
    let mut d = key_shared();
    // slots: a 27058, key-0 63679, key-1 5536
    d.add_consumer(A, with(sticky(&[(27_058, 27_058)]), false))
        .unwrap();
    d.add_consumer(B, with(sticky(&[(60_000, 65_535)]), false))
        .unwrap();
    d.flow(A, 100);
    d.flow(B, 100);
    let log = [keyed(0, "key-1"), keyed(1, "a"), keyed(2, "key-0")];
    assert_eq!(drive(&mut d, 0, &log), [(1, 1, 0), (2, 2, 0)]);
    assert_eq!(d.stats(Ordinal(3)).in_replay, 1);
    let c = ConsumerKey(3);
    d.add_consumer(c, with(sticky(&[(0, 6000)]), false)).unwrap();
    d.flow(c, 1);
    assert_eq!(drive(&mut d, 0, &log), [(3, 0, 0)]);
}

#[test]
fn auto_split_by_ranges_follows_the_option() {
    let options = Options {
        key_shared: KeySharedOptions {
            consistent_hashing: false,
            ..KeySharedOptions::default()
        },
        ..Options::default()
    };
    let mut d = Dispatcher::key_shared(AckState::default(), options, Limits::default());
    join(&mut d, 2, 100);
    // The joiner took the lower half: a 27058, key-1 5536; the first kept key-0 63679.
    let log = [keyed(0, "a"), keyed(1, "key-0"), keyed(2, "key-1")];
    assert_eq!(drive(&mut d, 0, &log), [(2, 0, 0), (1, 1, 0), (2, 2, 0)]);
}

#[test]
fn consumers_must_agree_on_the_mode() {
    let mut d = key_shared();
    d.add_consumer(A, with(KeySharedMode::AutoSplit, false)).unwrap();
    let refused = d.add_consumer(B, with(sticky(&[(0, 1)]), false));
    assert!(matches!(refused, Err(AddConsumerError::ModeMismatch { .. })));
    let refused = d.add_consumer(B, with(KeySharedMode::AutoSplit, true));
    assert!(matches!(
        refused,
        Err(AddConsumerError::OrderMismatch { active: false })
    ));
    let refused = d.add_consumer(A, with(KeySharedMode::AutoSplit, false));
    assert_eq!(refused, Err(AddConsumerError::DuplicateKey(A)));
    d.remove_consumer(A);
    let refused = d.add_consumer(B, with(sticky(&[]), false));
    assert!(matches!(refused, Err(AddConsumerError::Assign(_))));
    assert!(d.is_empty());
    d.add_consumer(B, with(sticky(&[(0, 1)]), true)).unwrap();
    let refused = d.add_consumer(A, with(sticky(&[(1, 2)]), true));
    assert!(matches!(refused, Err(AddConsumerError::Assign(_))));
}
