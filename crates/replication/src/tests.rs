//! The window beside a model of two clusters and a line between them that breaks, with sources that crash.

use std::collections::VecDeque;

use pharos_types::Ordinal;
use proptest::prelude::*;

use super::*;

#[test]
fn names_are_pulsar_s() {
    assert_eq!(cursor_name("west"), "pulsar.repl.west");
    assert_eq!(cluster_of_cursor("pulsar.repl.west"), Some("west"));
    assert_eq!(cluster_of_cursor("pulsar.replwest"), None);
    assert_eq!(producer_name("east", "west"), "pulsar.repl.east-->west");
    assert_eq!(cluster_of_producer("pulsar.repl.east-->west"), Some("east"));
    assert_eq!(cluster_of_producer("pulsar.repl.east"), None);
    assert_eq!(cluster_of_producer("mine-->west"), None);
}

fn window(from: u64, entries_max: usize) -> SendWindow<()> {
    SendWindow::new(Ordinal(from), entries_max)
}

fn state(window: &SendWindow<()>) -> (u64, u64, usize) {
    (window.acked().0, window.next().0, window.on_their_way())
}

#[test]
fn what_is_passed_is_done_with_what_was_sent_before_it() {
    let mut window = window(5, 10);
    window.on_passed(Ordinal(7));
    assert_eq!(state(&window), (7, 7, 0));
    window.on_sent(Ordinal(7), SentAs::Sequence(1), 1, 10, ());
    window.on_passed(Ordinal(9));
    window.on_sent(Ordinal(12), SentAs::Sequence(1), 2, 20, ());
    assert_eq!(state(&window), (7, 13, 2));
    let arrived = window.on_answer(1, 0).unwrap();
    assert_eq!((arrived.messages, arrived.bytes), (1, 10));
    assert_eq!(window.acked(), Ordinal(12), "what lies between was passed");
    window.on_answer(1, 0).unwrap();
    assert_eq!(state(&window), (13, 13, 0));
}

#[test]
fn an_answer_to_something_else_changes_nothing() {
    let mut window = window(0, 10);
    assert!(window.on_answer(0, 0).is_err());
    window.on_sent(Ordinal(0), SentAs::Source(3, 4), 1, 1, ());
    assert!(window.on_answer(3, 5).is_err());
    assert!(window.on_answer(4, 3).is_err());
    assert_eq!(state(&window), (0, 1, 1));
    window.on_answer(3, 4).unwrap();
    assert_eq!(state(&window), (1, 1, 0));
}

#[test]
fn the_window_has_an_end() {
    let mut window = window(0, 2);
    for at in 0..2 {
        assert_eq!(window.room(), 2 - usize::try_from(at).unwrap());
        window.on_sent(Ordinal(at), SentAs::Sequence(at), 1, 1, ());
    }
    assert_eq!(window.room(), 0);
    window.begin_again(Ordinal(0));
    assert_eq!((window.room(), window.next()), (2, Ordinal(0)));
    window.begin_again(Ordinal(9));
    assert_eq!(state(&window), (9, 9, 0), "the cursor was moved");
}

#[test]
fn after_a_refusal_entries_go_one_by_one_until_it_is_passed() {
    let mut window = window(0, 10);
    for at in 0..3 {
        window.on_sent(Ordinal(at), SentAs::Sequence(at), 1, 1, ());
    }
    window.be_careful();
    window.begin_again(Ordinal(0));
    for at in 0..3 {
        assert_eq!(window.room(), 1);
        window.on_sent(Ordinal(at), SentAs::Sequence(at), 1, 1, ());
        assert_eq!(window.room(), if at < 2 { 0 } else { 9 });
        if at < 2 {
            window.on_answer(at, 0).unwrap();
        }
    }
}

/// Step of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An entry comes; whether it is for there.
    Append(bool),
    /// The next entry is read and sent, or passed.
    Send,
    /// The first of what is on the line is stored over there.
    Store,
    /// The first answer is heard.
    Hear,
    /// The line breaks: what is on it is lost, in both directions.
    Break,
    /// The place is stored.
    Keep,
    /// The source crashes: it begins at the place that is stored.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(Step::Append),
        6 => Just(Step::Send),
        5 => Just(Step::Store),
        4 => Just(Step::Hear),
        1 => Just(Step::Break),
        1 => Just(Step::Keep),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Two clusters. An entry is known by its place in the log.
struct World {
    log: Vec<bool>,
    window: SendWindow<()>,
    entries_max: usize,
    kept: Ordinal,
    line: VecDeque<u64>,
    answers: VecDeque<u64>,
    there: Vec<u64>,
    dedup: bool,
}

impl World {
    fn new(entries_max: usize, dedup: bool) -> Self {
        Self {
            log: Vec::new(),
            window: window(0, entries_max),
            entries_max,
            kept: Ordinal(0),
            line: VecDeque::new(),
            answers: VecDeque::new(),
            there: Vec::new(),
            dedup,
        }
    }

    fn send(&mut self) -> bool {
        let at = self.window.next();
        let index = usize::try_from(at.0).unwrap();
        let Some(is_for_there) = self.log.get(index) else {
            return false;
        };
        if !is_for_there {
            self.window.on_passed(at.plus(1));
        } else if self.window.room() > 0 {
            self.window.on_sent(at, SentAs::Source(0, at.0), 1, 1, ());
            self.line.push_back(at.0);
        } else {
            return false;
        }
        true
    }

    fn store(&mut self) -> bool {
        let Some(at) = self.line.pop_front() else {
            return false;
        };
        let is_known = self.there.iter().max().is_some_and(|last| at <= *last);
        if !(self.dedup && is_known) {
            self.there.push(at);
        }
        self.answers.push_back(at);
        true
    }

    fn hear(&mut self) -> bool {
        let Some(at) = self.answers.pop_front() else {
            return false;
        };
        self.window.on_answer(0, at).unwrap();
        true
    }

    fn cut(&mut self) {
        self.line.clear();
        self.answers.clear();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(is_for_there) => self.log.push(is_for_there),
            Step::Send => _ = self.send(),
            Step::Store => _ = self.store(),
            Step::Hear => _ = self.hear(),
            Step::Break => {
                self.cut();
                let acked = self.window.acked();
                self.window.begin_again(acked);
                assert_eq!(self.window.next(), acked);
            }
            Step::Keep => self.kept = self.window.acked(),
            Step::Crash => {
                self.cut();
                self.window = window(self.kept.0, self.entries_max);
            }
        }
    }

    fn check(&self) {
        assert!(self.window.acked() <= self.window.next());
        assert!(self.window.on_their_way() <= self.entries_max);
        for (at, is_for_there) in (0..self.window.acked().0).zip(&self.log) {
            assert!(
                !is_for_there || self.there.contains(&at),
                "{at} is done and not there"
            );
        }
    }

    /// No more breaks.
    fn finish(&mut self) {
        while self.send() || self.store() || self.hear() {}
    }
}

proptest! {
    #[test]
    fn everything_arrives_in_order_whatever_breaks(
        steps in steps(),
        entries_max in 1_usize..8,
        dedup: bool,
    ) {
        let mut world = World::new(entries_max, dedup);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.finish();
        world.check();
        let expected: Vec<u64> = (0..).zip(&world.log).filter(|(_, is_for_there)| **is_for_there).map(|(at, _)| at).collect();
        let mut first: Vec<u64> = Vec::new();
        for at in &world.there {
            match first.last() {
                // Some of it again, and from there on all of it.
                Some(last) if at <= last => prop_assert!(first.contains(at)),
                _ => first.push(*at),
            }
        }
        prop_assert_eq!(&first, &expected);
        if dedup {
            prop_assert_eq!(&world.there, &expected);
        }
        prop_assert_eq!(world.window.acked(), Ordinal(world.log.len() as u64));
    }
}
