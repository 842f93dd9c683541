//! The state machine by itself, and beside a log with producers that send again.

use proptest::prelude::*;

use super::*;

fn started() -> SequenceIds {
    let mut ids = SequenceIds::replaying(SequenceLimits::default(), Ordinal(0), []);
    ids.end_replay(Ordinal(0), []);
    ids
}

fn store(ids: &mut SequenceIds, name: &str, highest: u64) {
    ids.on_pushed(name, highest);
    ids.on_persisted(name, highest);
}

#[test]
fn a_send_is_new_unknown_or_a_duplicate() {
    let mut ids = started();
    assert_eq!(ids.check("p", 0), Verdict::Accept);
    ids.on_pushed("p", 4);
    assert_eq!(ids.check("p", 0), Verdict::Undecidable);
    assert_eq!(ids.check("p", 4), Verdict::Undecidable);
    assert_eq!(ids.check("p", 5), Verdict::Accept);
    assert_eq!(ids.check("q", 0), Verdict::Accept, "another name");
    assert!(!ids.is_settled("p"));
    ids.on_persisted("p", 4);
    assert!(ids.is_settled("p"));
    assert_eq!((ids.last("p"), ids.last("q")), (Some(4), None));
    assert_eq!(ids.check("p", 4), Verdict::Duplicate);
    ids.on_pushed("p", 9);
    assert_eq!(ids.check("p", 4), Verdict::Duplicate);
    assert_eq!(ids.check("p", 5), Verdict::Undecidable);
}

#[test]
fn what_failed_is_taken_when_it_comes_again() {
    let mut ids = started();
    store(&mut ids, "p", 1);
    ids.on_pushed("p", 3);
    ids.on_pushed("q", 0);
    ids.take_back();
    assert_eq!(ids.check("p", 1), Verdict::Duplicate);
    assert_eq!(ids.check("p", 2), Verdict::Accept);
    assert_eq!(ids.check("q", 0), Verdict::Accept);
    assert_eq!(ids.len(), 1);
}

#[test]
fn a_snapshot_is_due_after_so_many_entries_and_counts_what_is_durable() {
    let limits = SequenceLimits {
        entries_max: 3,
        ..SequenceLimits::default()
    };
    let mut ids = SequenceIds::replaying(limits, Ordinal(0), []);
    ids.end_replay(Ordinal(0), []);
    store(&mut ids, "p", 0);
    ids.on_pushed("q", 7);
    ids.on_durable(Ordinal(1), 1);
    assert!(ids.has_news() && !ids.is_due());
    ids.on_durable(Ordinal(3), 2);
    assert!(ids.is_due());
    let snapshot = ids.snapshot();
    let persisted = BTreeMap::from([("p".to_owned(), 0)]);
    let position = Ordinal(3);
    assert_eq!(snapshot, Snapshot { position, persisted });
    assert!(!ids.is_due() && !ids.has_news());
}

#[test]
fn the_last_number_in_the_log_holds_not_the_highest() {
    let mut ids = SequenceIds::replaying(SequenceLimits::default(), Ordinal(5), [("p", 100), ("q", 3)]);
    assert_eq!(ids.replay_next(), Some(Ordinal(5)));
    ids.on_replayed(Ordinal(5), Some(("p", 2)));
    ids.on_replayed(Ordinal(6), None);
    assert_eq!(ids.replay_next(), Some(Ordinal(7)));
    assert_eq!(ids.snapshot().position, Ordinal(7), "also on the way");
    ids.end_replay(Ordinal(7), []);
    assert_eq!(ids.check("p", 3), Verdict::Accept);
    assert_eq!(ids.check("p", 2), Verdict::Duplicate);
    assert_eq!(ids.check("q", 3), Verdict::Duplicate);
    assert_eq!(ids.replay_next(), None);
}

#[test]
fn what_is_sent_during_a_replay_is_noted_and_not_judged() {
    let mut ids = SequenceIds::replaying(SequenceLimits::default(), Ordinal(0), []);
    ids.on_replayed(Ordinal(0), Some(("p", 100)));
    ids.on_replayed(Ordinal(1), Some(("fresh", 50)));
    ids.on_replayed(Ordinal(2), Some(("pending", 4)));
    ids.on_replayed(Ordinal(3), Some(("gone", 6)));
    assert_eq!(ids.check("p", 3), Verdict::Accept);
    store(&mut ids, "p", 3);
    ids.on_durable(Ordinal(6), 1);
    ids.on_pushed("pending", 5);
    let early = ids.snapshot();
    assert_eq!((early.position, early.persisted["p"]), (Ordinal(4), 100));
    ids.end_replay(Ordinal(4), ["fresh"]);
    assert_eq!(
        ids.last("p"),
        Some(3),
        "it began anew, and that is later in the log"
    );
    assert_eq!(ids.check("p", 4), Verdict::Accept);
    assert_eq!(ids.check("fresh", 0), Verdict::Accept);
    assert_eq!(ids.check("pending", 5), Verdict::Undecidable);
    assert_eq!(ids.check("pending", 4), Verdict::Duplicate);
    assert_eq!(ids.check("gone", 6), Verdict::Duplicate);
    assert_eq!(ids.snapshot().position, Ordinal(6));
}

#[test]
fn places_of_another_cluster_come_back_with_the_log() {
    let mut ids = started();
    ids.on_source_pushed("east", (3, 8));
    assert_eq!(ids.check_source("east", (3, 8)), Verdict::Undecidable);
    ids.on_source_persisted("east", (3, 8));
    ids.on_durable(Ordinal(1), 1);
    let snapshot = ids.snapshot();
    let stored = snapshot.persisted.iter();
    let stored = stored.map(|(name, last)| (name.as_str(), *last));
    let mut again = SequenceIds::replaying(SequenceLimits::default(), snapshot.position, stored);
    again.on_replayed(Ordinal(1), None);
    again.on_source_replayed("east", (3, 9));
    again.on_replayed(Ordinal(2), Some(("p", 4)));
    let on_the_way = again.snapshot();
    assert_eq!(on_the_way.persisted["pulsar.repl.east_EID"], 9);
    again.end_replay(Ordinal(3), []);
    assert_eq!(again.check_source("east", (3, 9)), Verdict::Duplicate);
    assert_eq!(again.check_source("east", (3, 10)), Verdict::Accept);
    assert_eq!(again.check_source("west", (3, 9)), Verdict::Accept);
    assert_eq!((again.last("p"), again.len()), (Some(4), 1));
}

#[test]
fn a_name_without_a_producer_is_forgotten_in_time() {
    let limits = SequenceLimits {
        gone_ms_max: 100,
        ..SequenceLimits::default()
    };
    let mut ids = SequenceIds::replaying(limits, Ordinal(0), []);
    ids.end_replay(Ordinal(0), []);
    for name in ["here", "gone", "pending"] {
        store(&mut ids, name, 1);
    }
    ids.on_pushed("pending", 2);
    ids.forget_gone(1_000, |name| name == "here");
    ids.forget_gone(1_100, |name| name == "here");
    assert_eq!(ids.len(), 3);
    ids.forget_gone(1_101, |name| name == "here");
    assert_eq!((ids.len(), ids.last("gone")), (2, None));
}

#[test]
fn names_have_an_end_and_the_longest_gone_go_first() {
    let limits = SequenceLimits {
        names_max: 2,
        ..SequenceLimits::default()
    };
    let mut ids = SequenceIds::replaying(limits, Ordinal(0), []);
    ids.end_replay(Ordinal(0), []);
    for (now_ms, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        store(&mut ids, name, 1);
        ids.forget_gone(now_ms, |name| name == "a");
    }
    let mut left: Vec<String> = ids.snapshot().persisted.into_keys().collect();
    left.sort_unstable();
    assert_eq!(left, ["a", "d"]);
    let mut ids = SequenceIds::replaying(limits, Ordinal(0), []);
    for at in 0..100 {
        ids.on_replayed(Ordinal(at), Some((&format!("p{at}"), 1)));
    }
    let left = ids.snapshot().persisted;
    assert!(left.len() <= 4 && left.contains_key("p99"), "{left:?}");
}

#[test]
fn long_names_are_bounded_by_their_bytes() {
    let limits = SequenceLimits {
        bytes_max: 3 * 112,
        ..SequenceLimits::default()
    };
    let mut ids = SequenceIds::replaying(limits, Ordinal(0), []);
    ids.end_replay(Ordinal(0), []);
    for number in 0..10 {
        store(&mut ids, &format!("{number:0100}"), 1);
    }
    ids.forget_gone(1, |_| false);
    assert_eq!(ids.len(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    /// A producer sends so many messages in one entry.
    Send(usize, u64),
    /// Appended entries are durable, except for so many at the end.
    Durable(usize),
    /// A producer loses its connection: once what it pushed is settled, it sends all that has no receipt again.
    Reconnect(usize),
    Snapshot,
    /// The log takes no more: what is not durable is gone, producers connect again.
    Fail,
    /// The broker ends, and starts from the last snapshot.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 1..4u64).prop_map(|(who, count)| Step::Send(who, count)),
        3 => (0..4usize).prop_map(Step::Durable),
        3 => (0..3usize).prop_map(Step::Reconnect),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Fail),
        1 => Just(Step::Crash),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A log, and clients that send again until they have a receipt.
struct World {
    ids: SequenceIds,
    /// Producer, first number, last number.
    log: Vec<(usize, u64, u64)>,
    durable: usize,
    snapshot: Snapshot,
    next: [u64; 3],
    /// Entries without a receipt.
    unanswered: [Vec<(u64, u64)>; 3],
}

impl World {
    fn new() -> Self {
        Self {
            ids: started(),
            log: Vec::new(),
            durable: 0,
            snapshot: Snapshot::default(),
            next: [0; 3],
            unanswered: Default::default(),
        }
    }

    /// True if the send was judged.
    fn send(&mut self, who: usize, (first, last): (u64, u64)) -> bool {
        match self.ids.check(NAMES[who], first) {
            Verdict::Accept => {
                self.log.push((who, first, last));
                self.ids.on_pushed(NAMES[who], last);
            }
            Verdict::Duplicate => {
                assert!(self.log[..self.durable].contains(&(who, first, last)));
                self.unanswered[who].retain(|sent| *sent != (first, last));
            }
            Verdict::Undecidable => return false,
        }
        true
    }

    fn durable(&mut self, to: usize) {
        for (who, first, last) in self.log[self.durable..to].iter().copied() {
            self.ids.on_persisted(NAMES[who], last);
            self.unanswered[who].retain(|sent| *sent != (first, last));
        }
        let entries = to - self.durable;
        self.durable = to;
        self.ids.on_durable(Ordinal(to as u64), entries as u64);
    }

    fn resend(&mut self, who: usize) {
        for sent in self.unanswered[who].clone() {
            if !self.send(who, sent) {
                return;
            }
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Send(who, count) => {
                let sent = (self.next[who], self.next[who] + count - 1);
                self.next[who] += count;
                self.unanswered[who].push(sent);
                assert!(self.send(who, sent), "what is sent for the first time is new");
            }
            Step::Durable(before_end) => {
                let to = self.log.len().saturating_sub(before_end).max(self.durable);
                self.durable(to);
            }
            Step::Reconnect(who) => {
                if self.ids.is_settled(NAMES[who]) {
                    // A receipt got lost: the last durable entry is sent again too.
                    let of = |entry: &&(usize, u64, u64)| entry.0 == who;
                    if let Some((_, first, last)) = self.log.iter().rfind(of).copied() {
                        assert_eq!(self.ids.check(NAMES[who], first), Verdict::Duplicate);
                        assert_eq!(self.ids.last(NAMES[who]), Some(last.cast_signed()));
                    }
                    self.resend(who);
                }
            }
            Step::Snapshot => self.snapshot = self.ids.snapshot(),
            Step::Fail => {
                self.log.truncate(self.durable);
                self.ids.take_back();
                (0..3).for_each(|who| self.resend(who));
            }
            Step::Crash => {
                self.log.truncate(self.durable);
                let stored = &self.snapshot;
                let numbers = stored.persisted.iter().map(|(name, last)| (name.as_str(), *last));
                self.ids = SequenceIds::replaying(SequenceLimits::default(), stored.position, numbers);
                for at in stored.position.0..self.durable as u64 {
                    let (who, _, last) = self.log[usize::try_from(at).unwrap()];
                    self.ids.on_replayed(Ordinal(at), Some((NAMES[who], last)));
                }
                self.ids.end_replay(Ordinal(self.durable as u64), []);
                (0..3).for_each(|who| self.resend(who));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_is_stored_twice_and_nothing_is_lost(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
        }
        let end = world.log.len();
        world.durable(end);
        (0..3).for_each(|who| world.resend(who));
        let end = world.log.len();
        world.durable(end);
        for who in 0..3 {
            let mut next = 0;
            for (_, first, last) in world.log.iter().filter(|entry| entry.0 == who) {
                prop_assert_eq!(*first, next, "each once, in order");
                next = last + 1;
            }
            prop_assert_eq!(next, world.next[who]);
            prop_assert!(world.unanswered[who].is_empty());
        }
    }
}
