//! [`AckState`] beside a model that remembers every acknowledged entry and index by itself.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn o(ordinal: u64) -> Ordinal {
    Ordinal(ordinal)
}

#[test]
fn acks_in_order_own_no_heap() {
    let mut state = AckState::new(o(7));
    for ordinal in 7..100 {
        assert_eq!(state.ack(o(ordinal)), AckOutcome::Advanced);
        assert!(!state.has_holes());
    }
    assert_eq!(state.acked_to(), o(100));
    assert_eq!(state.ack(o(3)), AckOutcome::Unchanged);
    assert_eq!(state.backlog(o(130)), 30);
    assert_eq!(state.backlog(o(50)), 0);
}

#[test]
fn a_closed_hole_moves_over_the_run_behind_it() {
    let mut state = AckState::default();
    assert_eq!(state.ack(o(2)), AckOutcome::Recorded);
    assert_eq!(state.ack(o(1)), AckOutcome::Recorded);
    assert_eq!(state.ack(o(4)), AckOutcome::Recorded);
    assert_eq!(
        state.acked_ranges().collect::<Vec<_>>(),
        [(o(1), o(3)), (o(4), o(5))]
    );
    assert_eq!(state.next_unacked(o(1)), o(3));
    assert_eq!(state.backlog(o(6)), 3);
    assert_eq!(state.ack(o(0)), AckOutcome::Advanced);
    assert_eq!(state.acked_to(), o(3));
    assert_eq!(state.ack(o(3)), AckOutcome::Advanced);
    assert_eq!((state.acked_to(), state.has_holes()), (o(5), false));
}

#[test]
fn a_batch_is_done_when_no_index_remains() {
    let mut state = AckState::default();
    assert_eq!(state.ack_batch(o(0), &[0b1110]), AckOutcome::Partial);
    assert_eq!(state.ack_batch(o(0), &[0b1111]), AckOutcome::Unchanged);
    assert_eq!(state.ack_batch(o(0), &[0b1011]), AckOutcome::Partial);
    assert_eq!(state.remaining_batch(o(0)), Some([0b1010].as_slice()));
    assert_eq!(state.backlog(o(1)), 1);
    assert_eq!(state.ack_batch(o(0), &[0b0101, 0]), AckOutcome::Advanced);
    assert_eq!((state.acked_to(), state.has_holes()), (o(1), false));
    assert_eq!(state.ack_batch(o(3), &[]), AckOutcome::Recorded);
}

#[test]
fn a_cumulative_ack_inside_a_batch_leaves_the_rest_of_it() {
    let mut state = AckState::default();
    state.ack(o(4));
    state.ack_batch(o(2), &[0b11]);
    assert_eq!(state.ack_cumulative_batch(o(3), &[0b100]), AckOutcome::Advanced);
    assert_eq!(state.acked_to(), o(3));
    assert_eq!(state.remaining_batch(o(3)), Some([0b100].as_slice()));
    assert_eq!(state.remaining_batch(o(2)), None);
    assert_eq!(state.ack_cumulative(o(3)), AckOutcome::Advanced);
    assert_eq!((state.acked_to(), state.has_holes()), (o(5), false));
}

#[test]
fn an_oversized_batch_set_acknowledges_nothing() {
    let mut state = AckState::default();
    assert_eq!(
        state.ack_batch(o(0), &vec![0; BATCH_WORDS_MAX + 1]),
        AckOutcome::Unchanged
    );
    assert!(!state.is_acked(o(0)));
}

#[test]
fn what_does_not_fit_the_bounds_is_delivered_again() {
    let mut state = AckState::default();
    for index in 0..20_000 {
        state.ack(o(3 * index + 1));
        state.ack_batch(o(3 * index + 2), &[1]);
    }
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let kept = AckState::decode(&mut bytes.as_slice()).unwrap();
    assert_eq!(kept.acked_ranges().count(), RANGES_PERSISTED_MAX);
    assert_eq!(kept.partial_batches().count(), BATCHES_PERSISTED_MAX);
    assert!(kept.is_acked(o(1)) && kept.is_acked(o(29_998)) && !kept.is_acked(o(30_001)));
}

#[test]
fn the_end_of_the_number_range_does_not_overflow() {
    let mut state = AckState::new(o(u64::MAX - 1));
    assert_eq!(state.ack(o(u64::MAX)), AckOutcome::Unchanged);
    assert_eq!(state.ack_cumulative(o(u64::MAX)), AckOutcome::Unchanged);
    assert_eq!(state.ack(o(u64::MAX - 1)), AckOutcome::Advanced);
}

/// Ordinals the model covers, and indexes of each batch.
const SPAN: u64 = 40;
const INDEXES: u32 = 70;

/// The model: each entry's remaining indexes; absent = untouched, empty = acknowledged.
#[derive(Default, Debug)]
struct Model {
    acked: BTreeSet<u64>,
    partial: BTreeMap<u64, BTreeSet<u32>>,
}

impl Model {
    fn ack(&mut self, ordinal: u64) {
        self.acked.insert(ordinal);
        self.partial.remove(&ordinal);
    }

    fn ack_batch(&mut self, ordinal: u64, remaining: &[i64]) {
        if self.acked.contains(&ordinal) {
            return;
        }
        let left = self
            .partial
            .entry(ordinal)
            .or_insert_with(|| (0..INDEXES).collect());
        left.retain(|&index| {
            remaining
                .get(index as usize / 64)
                .is_some_and(|word| word >> (index % 64) & 1 == 1)
        });
        if left.is_empty() {
            self.ack(ordinal);
        }
    }

    fn acked_to(&self) -> u64 {
        (0..).find(|ordinal| !self.acked.contains(ordinal)).unwrap()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ack(u64),
    Batch(u64, Vec<i64>),
    Cumulative(u64),
    CumulativeBatch(u64, Vec<i64>),
    Raise(u64),
    Clamp(u64),
    Reset(u64),
}

fn words() -> impl Strategy<Value = Vec<i64>> {
    // Within the model's 70 indexes, so that both sides speak about the same batch.
    (any::<i64>(), 0i64..64, 0usize..3)
        .prop_map(|(low, high, count)| [low & (low >> 7), high].into_iter().take(count).collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SPAN).prop_map(Step::Ack),
        8 => ((0..SPAN), words()).prop_map(|(at, words)| Step::Batch(at, words)),
        1 => (0..SPAN).prop_map(Step::Cumulative),
        1 => ((0..SPAN), words()).prop_map(|(at, words)| Step::CumulativeBatch(at, words)),
        1 => (0..SPAN).prop_map(Step::Raise),
        1 => (0..SPAN).prop_map(Step::Clamp),
        1 => (0..SPAN).prop_map(Step::Reset),
    ]
}

fn apply(state: &mut AckState, model: &mut Model, step: &Step) {
    let before = state.clone();
    let outcome = match step {
        Step::Ack(at) => {
            model.ack(*at);
            state.ack(o(*at))
        }
        Step::Batch(at, words) => {
            model.ack_batch(*at, words);
            state.ack_batch(o(*at), words)
        }
        Step::Cumulative(at) => {
            (0..=*at).for_each(|at| model.ack(at));
            state.ack_cumulative(o(*at))
        }
        Step::CumulativeBatch(at, words) => {
            (0..*at).for_each(|at| model.ack(at));
            model.ack_batch(*at, words);
            state.ack_cumulative_batch(o(*at), words)
        }
        Step::Raise(to) => {
            (0..*to).for_each(|at| model.ack(at));
            assert_eq!(state.raise_to(o(*to)), before != *state);
            return;
        }
        Step::Clamp(end) => {
            model.acked.retain(|at| at < end);
            model.partial.retain(|at, _| at < end);
            assert_eq!(state.clamp_to(o(*end)), before != *state);
            return;
        }
        Step::Reset(to) => {
            *model = Model {
                acked: (0..*to).collect(),
                ..Model::default()
            };
            state.reset(o(*to));
            return;
        }
    };
    assert_eq!(outcome.advanced(), before.acked_to() != state.acked_to());
    assert_eq!(outcome.changed(), before != *state);
}

fn check(state: &AckState, model: &Model) {
    assert_eq!(state.acked_to().0, model.acked_to());
    for at in 0..SPAN + 2 {
        assert_eq!(state.is_acked(o(at)), model.acked.contains(&at), "entry {at}");
        let next = (at..).find(|at| !model.acked.contains(at)).unwrap();
        assert_eq!(state.next_unacked(o(at)), o(next));
        let backlog = (0..at).filter(|at| !model.acked.contains(at)).count() as u64;
        assert_eq!(state.backlog(o(at)), backlog, "backlog to {at}");
        let remaining = state.remaining_batch(o(at)).map(|words| {
            let is_set = |index: &u32| {
                words
                    .get(*index as usize / 64)
                    .is_some_and(|word| word >> (index % 64) & 1 == 1)
            };
            (0..INDEXES).filter(is_set).collect::<BTreeSet<_>>()
        });
        assert_eq!(remaining.as_ref(), model.partial.get(&at), "batch {at}");
    }
    assert_eq!(
        state.has_holes(),
        !model.partial.is_empty() || model.acked.len() as u64 > model.acked_to()
    );
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let mut input = bytes.as_slice();
    assert_eq!(AckState::decode(&mut input).as_ref(), Ok(state));
    assert!(input.is_empty());
    for cut in 0..bytes.len() {
        assert!(AckState::decode(&mut &bytes[..cut]).is_err());
    }
}

proptest! {
    #[test]
    fn it_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut state, mut model) = (AckState::default(), Model::default());
        for step in &steps {
            apply(&mut state, &mut model, step);
        }
        check(&state, &model);
    }

    #[test]
    fn decoding_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut input = bytes.as_slice();
        if let Ok(state) = AckState::decode(&mut input) {
            let mut again = Vec::new();
            state.encode(&mut again);
            assert_eq!(AckState::decode(&mut again.as_slice()), Ok(state));
        }
    }

    #[test]
    fn decoding_small_garbage_never_panics(bytes in proptest::collection::vec(0u8..4, 0..40)) {
        let _ = AckState::decode(&mut bytes.as_slice());
    }
}
