//! Each state machine against a model that knows all that happened and looks at it anew for every question.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::{Ordinal, SubscriptionName, TopicName, TxnEntry, TxnId, TxnOutcome};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn txn(least: u64) -> TxnId {
    TxnId { most: 1, least }
}

// ---- buffer ----------------------------------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
enum Said {
    Plain,
    Message(u64),
    End(u64, TxnOutcome),
}

fn said() -> impl Strategy<Value = Said> {
    let outcome = prop_oneof![Just(TxnOutcome::Committed), Just(TxnOutcome::Aborted)];
    prop_oneof![
        Just(Said::Plain),
        (0..6_u64).prop_map(Said::Message),
        (0..6_u64, outcome).prop_map(|(txn, outcome)| Said::End(txn, outcome)),
    ]
}

/// A log in which no transaction goes on after its end: each end begins another of its number.
fn log(said: &[Said]) -> Vec<Option<TxnEntry>> {
    let mut ended: BTreeMap<u64, u64> = BTreeMap::new();
    let mut log = Vec::new();
    for said in said {
        let of = |number: u64| txn(number + 10 * ended.get(&number).copied().unwrap_or(0));
        log.push(match *said {
            Said::Plain => None,
            Said::Message(number) => Some(TxnEntry::Message(of(number))),
            Said::End(number, outcome) => Some(TxnEntry::End(of(number), outcome)),
        });
        if let Said::End(number, _) = *said {
            *ended.entry(number).or_insert(0) += 1;
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn readers_get_what_is_committed_and_nothing_that_is_open_or_aborted(said in vec(said(), 0..60), from in 0..60_usize) {
        let log = log(&said);
        let mut buffer = TransactionBuffer::default();
        let mut stored = None;
        let mut readable_before = 0;
        for (at, entry) in log.iter().enumerate() {
            if at == from {
                stored = Some(buffer.encode_from(Ordinal(at as u64)));
            }
            if let Some(entry) = entry {
                buffer.on_entry(Ordinal(at as u64), *entry);
            }
            let so_far = &log[..=at];
            let is_ended = |id: TxnId| so_far.iter().flatten().any(|entry| matches!(entry, TxnEntry::End(ended, _) if *ended == id));
            let open = so_far.iter().position(|entry| matches!(entry, Some(TxnEntry::Message(id)) if !is_ended(*id)));
            prop_assert_eq!(buffer.readable_before().map(|at| at.0 as usize), open);
            let readable = open.unwrap_or(at + 1);
            prop_assert!(readable >= readable_before, "what was readable is not any more");
            readable_before = readable;
            for entry in so_far[..readable].iter().flatten() {
                if let TxnEntry::Message(id) = entry {
                    let is_aborted = so_far.contains(&Some(TxnEntry::End(*id, TxnOutcome::Aborted)));
                    prop_assert_eq!(buffer.is_aborted(*id), is_aborted);
                }
            }
        }
        // What is stored and what follows it in the log give the same again.
        if let Some(stored) = stored {
            let (mut again, place) = TransactionBuffer::decode_from(&stored).unwrap();
            let mut before = TransactionBuffer::default();
            for (at, entry) in log.iter().enumerate() {
                let Some(entry) = entry else { continue };
                let at = Ordinal(at as u64);
                if at < place {
                    before.on_entry(at, *entry);
                    if let TxnEntry::End(id, TxnOutcome::Aborted) = entry {
                        again.restore_aborted(*id, at);
                    }
                } else {
                    again.on_entry(at, *entry);
                }
            }
            prop_assert_eq!(again.open(), buffer.open());
            prop_assert_eq!(again.stats().aborted, buffer.stats().aborted);
        }
        // Trimmed with the log: all that lie wholly before a place go, no other.
        let first = Ordinal(from as u64);
        let gone: BTreeSet<TxnId> = buffer.trim(first).into_iter().collect();
        for (at, entry) in log.iter().enumerate() {
            if let Some(TxnEntry::End(id, TxnOutcome::Aborted)) = entry {
                prop_assert_eq!(gone.contains(id), at < from);
                prop_assert_eq!(buffer.is_aborted(*id), at >= from);
            }
        }
    }
}

// ---- coordinator -----------------------------------------------------------------------------------------------------

const LIMITS: CoordinatorLimits = CoordinatorLimits {
    active_max: 5,
    active_of_role_max: 0,
    timeout_max_ms: 1000,
};

fn topic(number: u64) -> TopicName {
    format!("t-{number}").parse().unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Begin { timeout_ms: u64 },
    Add { of: u64, topic: u64, is_stored: bool },
    End { of: u64, outcome: TxnOutcome },
    Forget { of: u64 },
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![Just(TxnOutcome::Committed), Just(TxnOutcome::Aborted)];
    prop_oneof![
        (0..1200_u64).prop_map(|timeout_ms| Step::Begin { timeout_ms }),
        (0..8_u64, 0..3_u64, any::<bool>()).prop_map(|(of, topic, is_stored)| Step::Add {
            of,
            topic,
            is_stored
        }),
        (0..8_u64, outcome).prop_map(|(of, outcome)| Step::End { of, outcome }),
        (0..8_u64).prop_map(|of| Step::Forget { of }),
        (0..500_u64).prop_map(Step::Wait),
        Just(Step::Restart),
    ]
}

#[derive(Debug, Clone)]
struct Model {
    status: TxnStatus,
    deadline_ms: u64,
    stored: BTreeSet<u64>,
    added: BTreeSet<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_coordinator_does_what_its_model_does(steps in vec(step(), 0..60)) {
        let mut coordinator = Coordinator::new(7, 0);
        let mut model: BTreeMap<TxnId, Model> = BTreeMap::new();
        let mut given: Vec<TxnId> = Vec::new();
        let mut now_ms = 0;
        for step in steps {
            let nth = |of: u64| given.get(given.len().saturating_sub(1 + of as usize)).copied();
            match step {
                Step::Begin { timeout_ms } => {
                    let begun = coordinator.begin(Some("me"), timeout_ms, now_ms, LIMITS);
                    let fits = timeout_ms <= LIMITS.timeout_max_ms && (model.len() as u64) < LIMITS.active_max;
                    prop_assert_eq!(begun.is_ok(), fits);
                    if let Ok(id) = begun {
                        prop_assert!(given.iter().all(|before| *before < id), "an id was given out twice");
                        prop_assert!(id.least < coordinator.reserved());
                        let timeout_ms = if timeout_ms == 0 { LIMITS.timeout_max_ms } else { timeout_ms };
                        model.insert(id, Model { status: TxnStatus::Open, deadline_ms: now_ms + timeout_ms, stored: BTreeSet::new(), added: BTreeSet::new() });
                        given.push(id);
                    }
                }
                Step::Add { of, topic: number, is_stored } => {
                    let Some(id) = nth(of) else { continue };
                    prop_assert!(coordinator.add(id, Some("other"), &[topic(number).into()], &[]).is_err());
                    let known = model.get_mut(&id).filter(|known| known.status == TxnStatus::Open);
                    let added = coordinator.add(id, Some("me"), &[topic(number).into()], &[]);
                    prop_assert_eq!(added.is_ok(), known.is_some());
                    if let Some(known) = known {
                        prop_assert_eq!(added, Ok(known.added.insert(number)));
                        if is_stored {
                            coordinator.on_added(id, &[topic(number).into()], &[]).unwrap();
                            known.stored.insert(number);
                        }
                    }
                }
                Step::End { of, outcome } => {
                    let Some(id) = nth(of) else { continue };
                    let to = match outcome { TxnOutcome::Committed => TxnStatus::Committing, TxnOutcome::Aborted => TxnStatus::Aborting };
                    let ended = coordinator.end(id, outcome);
                    match model.get_mut(&id) {
                        None => prop_assert_eq!(ended, Err(TxnError::NotFound(id))),
                        Some(known) if known.status == TxnStatus::Open => {
                            prop_assert_eq!(ended, Ok(true));
                            known.status = to;
                        }
                        Some(known) if known.status == to => prop_assert_eq!(ended, Ok(false)),
                        Some(_) => prop_assert!(ended.is_err(), "an end was turned into the other"),
                    }
                }
                Step::Forget { of } => {
                    let Some(id) = nth(of) else { continue };
                    if model.get(&id).is_some_and(|known| known.status != TxnStatus::Open) {
                        coordinator.forget(id);
                        model.remove(&id);
                    }
                }
                Step::Wait(ms) => now_ms += ms,
                Step::Restart => {
                    // What is stored is all that is left.
                    let mut again = Coordinator::new(7, coordinator.reserved());
                    for (id, transaction) in coordinator.all() {
                        again.restore(id.least, Transaction::decode(&transaction.encode()).unwrap());
                    }
                    for known in model.values_mut() {
                        known.stored.clone_from(&known.added);
                    }
                    coordinator = again;
                }
            }
            let due: BTreeSet<TxnId> = coordinator.overdue(now_ms, 100).into_iter().collect();
            let late = model.iter().filter(|(_, known)| known.status == TxnStatus::Open && known.deadline_ms <= now_ms);
            prop_assert_eq!(due, late.map(|(id, _)| *id).collect::<BTreeSet<_>>());
            let ending = model.iter().filter(|(_, known)| known.status != TxnStatus::Open).map(|(id, _)| *id);
            prop_assert_eq!(coordinator.ending(), ending.collect::<Vec<_>>());
            for id in &given {
                for number in 0..3 {
                    let may = model.get(id).is_some_and(|known| known.status == TxnStatus::Open && known.stored.contains(&number));
                    prop_assert_eq!(coordinator.may_publish(*id, &topic(number)), may);
                }
                let participants = coordinator.participants(*id).map(|all| all.topics.len());
                let ending = model.get(id).filter(|known| known.status != TxnStatus::Open);
                prop_assert_eq!(participants, ending.map(|known| known.added.len()));
            }
        }
    }
}

#[test]
fn what_is_over_is_not_found_and_coordinators_that_are_not_loaded_are_not_known() {
    let all = Coordinators::new(2);
    assert_eq!(all.standing(TxnId { most: 0, least: 0 }), Standing::Unknown);
    assert_eq!(all.standing(TxnId { most: 9, least: 0 }), Standing::Over);
    all.open(Coordinator::new(0, 0));
    let id = all.with(0, |one| one.begin(None, 5, 0, LIMITS)).unwrap().unwrap();
    assert_eq!(all.standing(id), Standing::Live);
    let name = SubscriptionName::new("s").unwrap();
    let of = (topic(1), name);
    assert!(!all.may_acknowledge(id, &of));
    all.with(0, |one| {
        let called = [(CalledTopic::from(of.0.clone()), of.1.clone())];
        one.add(id, None, &[], &called).unwrap();
        one.on_added(id, &[], &called).unwrap();
    });
    assert!(all.may_acknowledge(id, &of));
    all.with(0, |one| one.forget(id));
    assert_eq!(all.standing(id), Standing::Over);
}

#[test]
fn a_transaction_has_a_bounded_number_of_participants() {
    let mut coordinator = Coordinator::new(0, 0);
    let id = coordinator.begin(None, 5, 0, LIMITS).unwrap();
    let many: Vec<CalledTopic> = (0..10_000).map(|number| topic(number).into()).collect();
    coordinator.add(id, None, &many, &[]).unwrap();
    let one_more = coordinator.add(id, None, &[topic(10_000).into()], &[]);
    assert_eq!(one_more, Err(TxnError::TooManyParticipants(id)));
    assert_eq!(coordinator.get(id).unwrap().topics.len(), 10_000);
}

// ---- pending acknowledgements ----------------------------------------------------------------------------------------

const BATCH: u32 = 3;

#[derive(Debug, Default, Clone)]
struct Acked {
    /// Messages that are acknowledged plainly: entry, index.
    messages: BTreeSet<(u64, u32)>,
    words: BTreeMap<u64, Vec<i64>>,
}

impl Acked {
    fn new(messages: BTreeSet<(u64, u32)>) -> Self {
        let mut words = BTreeMap::new();
        for entry in messages.iter().map(|(entry, _)| *entry) {
            let left = (0..BATCH).filter(|index| !messages.contains(&(entry, *index)));
            words.insert(entry, vec![left.fold(0, |word, index| word | 1 << index)]);
        }
        Self { messages, words }
    }
}

impl Plain for Acked {
    fn is_acked(&self, ordinal: Ordinal) -> bool {
        (0..BATCH).all(|index| self.messages.contains(&(ordinal.0, index)))
    }

    fn remaining(&self, ordinal: Ordinal) -> Option<&[i64]> {
        self.words.get(&ordinal.0).map(Vec::as_slice)
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// Acknowledges the messages of an entry given by the bits.
    Ack(u64, u64, u8),
    End(u64),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_u64, 0..5_u64, 1..8_u8).prop_map(|(txn, entry, bits)| Act::Ack(txn, entry, bits)),
        1 => (0..4_u64).prop_map(Act::End),
        1 => Just(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each message of a batch of three is in one transaction at most, and in none when it was acknowledged plainly.
    #[test]
    fn a_message_counts_once(acts in vec(act(), 0..60), plain in proptest::collection::btree_set((0..5_u64, 0..BATCH), 0..6)) {
        let plain = Acked::new(plain);
        let mut pending = PendingAcks::default();
        let mut model: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        let mut stored: Vec<(u64, Vec<u8>)> = Vec::new();
        for act in acts {
            match act {
                Act::Ack(by, entry, bits) => {
                    let remaining = [i64::from(!bits & 7)];
                    let ack = AckIn::of_wire(Ordinal(entry), &remaining, BATCH);
                    prop_assert_eq!(ack.parts.is_whole(), bits == 7);
                    if bits != 7 {
                        prop_assert_eq!(&*ack.remaining(), &remaining[..]);
                    }
                    let messages: Vec<_> = (0..BATCH).filter(|index| bits & 1 << index != 0).map(|index| (entry, index)).collect();
                    // A whole entry is taken as a whole: what was acknowledged of it plainly does not stand in the way.
                    let is_free = messages.iter().all(|message| model.get(message).is_none_or(|other| *other == by))
                        && !plain.is_acked(Ordinal(entry))
                        && (bits == 7 || messages.iter().all(|message| !plain.messages.contains(message)));
                    let acked = pending.ack(txn(by), std::slice::from_ref(&ack), &plain);
                    prop_assert_eq!(acked.is_ok(), is_free, "{:?}", acked);
                    if is_free {
                        stored.push((by, AckIn::encode_all(&[ack], false)));
                        model.extend(messages.into_iter().map(|message| (message, by)));
                    }
                }
                Act::End(by) => {
                    pending.end(txn(by));
                    stored.retain(|(of, _)| *of != by);
                    model.retain(|_, of| *of != by);
                    prop_assert!(!pending.has(txn(by)));
                }
                Act::Restart => {
                    let mut again = PendingAcks::default();
                    for (by, bytes) in &stored {
                        let (acks, is_cumulative) = AckIn::decode_all(bytes).unwrap();
                        for ack in acks {
                            again.restore(txn(*by), &ack, is_cumulative);
                        }
                    }
                    prop_assert_eq!(&again, &pending);
                    pending = again;
                }
            }
            for by in 0..4 {
                let (acks, _) = pending.of(txn(by));
                let mut has = BTreeSet::new();
                for ack in acks {
                    let remaining = ack.remaining();
                    let word = remaining.first().copied().unwrap_or(0);
                    has.extend((0..BATCH).filter(|index| word & 1 << index == 0).map(|index| (ack.ordinal.0, index)));
                }
                let expected: BTreeSet<_> = model.iter().filter(|(_, of)| **of == by).map(|(message, _)| *message).collect();
                prop_assert_eq!(has, expected);
            }
        }
    }
}

#[test]
fn everything_up_to_an_entry_is_in_one_transaction() {
    let plain = Acked::default();
    let mut pending = PendingAcks::default();
    let upto = |ordinal| AckIn::whole(Ordinal(ordinal));
    pending.ack_cumulative(txn(1), &upto(4), &plain).unwrap();
    assert!(pending.ack_cumulative(txn(2), &upto(9), &plain).is_err());
    assert!(pending.ack_cumulative(txn(1), &upto(3), &plain).is_err());
    assert!(pending.ack(txn(2), &[upto(4)], &plain).is_err());
    pending.ack(txn(2), &[upto(5)], &plain).unwrap();
    assert!(pending.ack_cumulative(txn(1), &upto(5), &plain).is_err());
    assert_eq!(pending.withheld(), (Ordinal(5), vec![Ordinal(5)]));
    pending.end(txn(1));
    assert_eq!(pending.withheld(), (Ordinal(0), vec![Ordinal(5)]));
    assert_eq!(pending.transactions(), [txn(2)]);
}

#[test]
fn keys_say_what_they_name() {
    let id = TxnId {
        most: 3,
        least: u64::MAX,
    };
    assert_eq!(keys::aborted_of(&keys::aborted(id)), Some(id));
    let key = keys::pending(7, id, 9);
    assert_eq!(keys::parse_pending(&key), Some((7, id, 9)));
    assert!(key.starts_with(&keys::pending_in(7)) && key.starts_with(&keys::pending_of(7, id)));
    assert_eq!(keys::live_of(&keys::live(5)), Some(5));
    for key in [&b""[..], b"a", b"p123", b"t1"] {
        let known = keys::aborted_of(key).is_some() || keys::parse_pending(key).is_some();
        assert!(!known && keys::live_of(key).is_none());
    }
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    for bytes in [
        &[][..],
        &[9],
        &[0, 2],
        &[0, 0, 0, 0, 5],
        &[0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ] {
        assert!(Transaction::decode(bytes).is_err());
        assert!(TransactionBuffer::decode_from(bytes).is_err() || bytes.len() > 1);
        assert!(AckIn::decode_all(bytes).is_err() || bytes.len() > 2);
    }
}

#[test]
fn a_role_has_no_more_open_transactions_than_it_may() {
    let limits = CoordinatorLimits {
        active_of_role_max: 2,
        ..LIMITS
    };
    let mut coordinator = Coordinator::new(3, 0);
    let first = coordinator.begin(Some("a"), 0, 0, limits).unwrap();
    coordinator.begin(Some("a"), 0, 0, limits).unwrap();
    let refused = coordinator.begin(Some("a"), 0, 0, limits).unwrap_err();
    assert!(matches!(
        refused,
        TxnError::TooManyOfRole {
            coordinator: 3,
            limit: 2,
            ..
        }
    ));
    assert!(refused.to_string().contains("transactions.max_active_per_role"));
    // Others are not concerned.
    coordinator.begin(Some("b"), 0, 0, limits).unwrap();
    // It is what has not ended that counts, also after a restart.
    let mut again = Coordinator::new(3, coordinator.reserved());
    for (txn, transaction) in coordinator.all() {
        again.restore(txn.least, transaction.clone());
    }
    for coordinator in [&mut coordinator, &mut again] {
        assert!(coordinator.begin(Some("a"), 0, 0, limits).is_err());
        coordinator.end(first, TxnOutcome::Aborted).unwrap();
        assert!(coordinator.begin(Some("a"), 0, 0, limits).is_err());
        coordinator.forget(first);
        coordinator.begin(Some("a"), 0, 0, limits).unwrap();
    }
}
