//! Replicated subscriptions beside a model: clusters that send each other their logs, some of it twice, in any order of steps.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use pharos_types::{Ordinal, Position};
use proptest::prelude::*;

use crate::markers::ClusterPlaces;
use crate::{Marker, SnapshotStep, Snapshots, SnapshotsAhead};

const NAMES: [&str; 3] = ["east", "north", "west"];
const TIMEOUT: Duration = Duration::from_millis(50);

/// An entry: which message it is, or a marker and whom it is for; and the cluster that it came from.
#[derive(Clone)]
struct LoggedHere {
    what: What,
    from: Option<usize>,
}

#[derive(Clone)]
enum What {
    Message(u64),
    Marker(Marker, Option<usize>),
}

struct ClusterInTouch {
    log: Vec<LoggedHere>,
    /// Position up to which each other cluster was sent the log.
    sent: Vec<usize>,
    snapshots: Snapshots,
    ahead: SnapshotsAhead,
    /// The subscription has acknowledged all before this.
    acked_to: usize,
}

struct ClustersInTouch {
    clusters: Vec<ClusterInTouch>,
    messages: u64,
    ids: u64,
    now_ms: u64,
    /// Messages that consumers of any cluster acknowledged.
    acked: BTreeSet<u64>,
    updates: u64,
}

/// Step of the simulation.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Publish(usize),
    /// The next entries go from one to another.
    Send(usize, usize, usize),
    /// Repeats a send whose receipts were lost.
    Again(usize, usize, usize),
    /// The consumers acknowledge.
    Ack(usize, usize),
    Tick(usize),
    /// The broker dies: what is in memory alone is gone.
    Crash(usize),
    Pause,
}

fn position(index: usize) -> Position {
    Position::new(1, index as u64)
}

impl ClustersInTouch {
    fn new(clusters: usize) -> Self {
        let cluster = |_| ClusterInTouch {
            log: Vec::new(),
            sent: vec![0; clusters],
            snapshots: Snapshots::new(0),
            ahead: SnapshotsAhead::default(),
            acked_to: 0,
        };
        Self {
            clusters: (0..clusters).map(cluster).collect(),
            messages: 0,
            ids: 0,
            now_ms: 0,
            acked: BTreeSet::new(),
            updates: 0,
        }
    }

    fn write(&mut self, at: usize, marker: Marker, only: Option<usize>) {
        let what = What::Marker(marker, only);
        self.clusters[at].log.push(LoggedHere { what, from: None });
    }

    fn others(&self, at: usize) -> Vec<&'static str> {
        let others = (0..self.clusters.len()).filter(|other| *other != at);
        others.map(|other| NAMES[other]).collect()
    }

    fn step(&mut self, step: Happening) {
        self.now_ms += 1;
        let count = self.clusters.len();
        match step {
            Happening::Publish(at) => {
                let at = at % count;
                let what = What::Message(self.messages);
                self.messages += 1;
                self.clusters[at].log.push(LoggedHere { what, from: None });
                let now_ms = self.now_ms;
                self.clusters[at].snapshots.on_data(now_ms);
            }
            Happening::Send(from, to, entries) => {
                let (from, to) = (from % count, to % count);
                for _ in 0..entries {
                    self.send(from, to);
                }
            }
            Happening::Again(from, to, entries) => {
                let (from, to) = (from % count, to % count);
                let sent = &mut self.clusters[from].sent[to];
                *sent = sent.saturating_sub(entries);
            }
            Happening::Ack(at, entries) => {
                let cluster = &mut self.clusters[at % count];
                let to = (cluster.acked_to + entries).min(cluster.log.len());
                for entry in &cluster.log[cluster.acked_to..to] {
                    if let What::Message(message) = entry.what {
                        self.acked.insert(message);
                    }
                }
                cluster.acked_to = to;
            }
            Happening::Tick(at) => self.tick(at % count),
            Happening::Crash(at) => {
                let now_ms = self.now_ms;
                let cluster = &mut self.clusters[at % count];
                cluster.snapshots = Snapshots::new(now_ms);
                cluster.ahead = SnapshotsAhead::default();
                // What the log has of them is read again.
                for (index, entry) in cluster.log.iter().enumerate().skip(cluster.acked_to) {
                    if let What::Marker(Marker::Snapshot { local, clusters, .. }, _) = &entry.what {
                        assert!(local.entry.0 < index as u64);
                        cluster
                            .ahead
                            .keep(Ordinal(local.entry.0), Rc::new(clusters.clone()), 5);
                    }
                }
            }
            Happening::Pause => self.now_ms += 60,
        }
    }

    fn send(&mut self, from: usize, to: usize) {
        let next = self.clusters[from].sent[to];
        if from == to || next >= self.clusters[from].log.len() {
            return;
        }
        self.clusters[from].sent[to] += 1;
        let entry = self.clusters[from].log[next].clone();
        if entry.from.is_some() || matches!(entry.what, What::Marker(_, Some(only)) if only != to) {
            return;
        }
        let index = self.clusters[to].log.len();
        let what = entry.what;
        self.clusters[to].log.push(LoggedHere {
            what: what.clone(),
            from: Some(from),
        });
        match what {
            What::Message(_) => {
                let now_ms = self.now_ms;
                self.clusters[to].snapshots.on_data(now_ms);
            }
            What::Marker(marker, _) => self.hear(to, from, index, marker),
        }
    }

    fn hear(&mut self, at: usize, from: usize, index: usize, marker: Marker) {
        match marker {
            Marker::Request { id } => {
                let cluster = NAMES[at].to_owned();
                let position = position(index);
                self.write(
                    at,
                    Marker::Response {
                        id,
                        cluster,
                        position,
                    },
                    Some(from),
                );
            }
            Marker::Response {
                id,
                cluster,
                position: place,
            } => match self.clusters[at].snapshots.on_response(&id, &cluster, place) {
                Some(SnapshotStep::Ask(id)) => self.write(at, Marker::Request { id }, None),
                Some(SnapshotStep::Done { id, places }) => {
                    let local = position(index);
                    let clusters = places.clone();
                    self.write(at, Marker::Snapshot { id, local, clusters }, Some(at));
                    self.clusters[at]
                        .ahead
                        .keep(Ordinal(index as u64), Rc::new(places), 5);
                }
                None => {}
            },
            Marker::Update { clusters, .. } => {
                let Some(place) = clusters.get(NAMES[at]) else {
                    return;
                };
                let to = place.entry.0 as usize + 1;
                let cluster = &mut self.clusters[at];
                for entry in cluster.log.iter().take(to).skip(cluster.acked_to) {
                    if let What::Message(message) = entry.what {
                        assert!(self.acked.contains(&message), "{message} was not acknowledged");
                    }
                }
                self.updates += u64::from(to > cluster.acked_to);
                cluster.acked_to = cluster.acked_to.max(to);
            }
            Marker::Snapshot { .. } => panic!("it stays where it was made"),
        }
    }

    fn tick(&mut self, at: usize) {
        let acked_to = Ordinal(self.clusters[at].acked_to as u64);
        if let Some(places) = self.clusters[at].ahead.take_passed(acked_to) {
            let marker = Marker::Update {
                subscription: "s".to_owned(),
                clusters: ClusterPlaces::clone(&places),
            };
            self.write(at, marker, None);
        }
        let now_ms = self.now_ms;
        if self.clusters[at].snapshots.is_due(now_ms, TIMEOUT) {
            self.ids += 1;
            let id = self.ids.to_string();
            let others = self.others(at);
            self.clusters[at].snapshots.begin(id.clone(), others, now_ms);
            self.write(at, Marker::Request { id }, None);
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Happening>> {
    let at = || 0..3_usize;
    let step = prop_oneof![
        4 => at().prop_map(Happening::Publish),
        8 => (at(), 1..3_usize, 1..4_usize).prop_map(|(from, by, entries)| Happening::Send(from, from + by, entries)),
        1 => (at(), at(), 1..6_usize).prop_map(|(from, to, entries)| Happening::Again(from, to, entries)),
        // Mostly at one of them, as applications do.
        5 => (1..8_usize).prop_map(|entries| Happening::Ack(0, entries)),
        1 => (at(), 1..8_usize).prop_map(|(at, entries)| Happening::Ack(at, entries)),
        2 => Just(Happening::Tick(0)),
        1 => at().prop_map(Happening::Tick),
        1 => at().prop_map(Happening::Crash),
        1 => Just(Happening::Pause),
    ];
    prop::collection::vec(step, 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_subscription_passes_what_was_not_acknowledged(count in 2..=3_usize, steps in steps()) {
        let mut world = ClustersInTouch::new(count);
        for step in steps {
            world.step(step);
        }
    }
}

#[test]
fn subscriptions_follow_once_everything_went_its_way() {
    for count in 2..=3 {
        let mut world = ClustersInTouch::new(count);
        let exchange = |world: &mut ClustersInTouch| {
            for from in 0..count {
                for to in 0..count {
                    world.step(Happening::Send(from, to, 100));
                }
            }
        };
        for at in 0..count {
            world.step(Happening::Publish(at));
        }
        for _ in 0..6 {
            exchange(&mut world);
            world.step(Happening::Ack(0, 100));
            world.step(Happening::Tick(0));
        }
        exchange(&mut world);
        for cluster in &world.clusters {
            let left = &cluster.log[cluster.acked_to..];
            assert!(left.iter().all(|entry| matches!(entry.what, What::Marker(..))));
        }
        assert_eq!(world.updates, count as u64 - 1);
        // Without further messages nothing more is written.
        let length = world.clusters[0].log.len();
        world.step(Happening::Ack(0, 100));
        world.step(Happening::Tick(0));
        world.step(Happening::Pause);
        world.step(Happening::Tick(0));
        assert_eq!(world.clusters[0].log.len(), length);
    }
}

#[test]
fn an_answer_that_comes_again_is_none_to_the_second_question() {
    let mut snapshots = Snapshots::new(0);
    snapshots.begin("a".to_owned(), ["west", "north"], 1);
    let place = |entry| Position::new(1, entry);
    assert_eq!(snapshots.on_response("a", "west", place(1)), None);
    assert_eq!(snapshots.on_response("b", "north", place(2)), None);
    let step = snapshots.on_response("a", "north", place(2));
    let Some(SnapshotStep::Ask(second)) = step else {
        panic!("{step:?}");
    };
    for cluster in ["west", "north"] {
        assert_eq!(snapshots.on_response("a", cluster, place(8)), None);
    }
    assert_eq!(snapshots.on_response(&second, "north", place(9)), None);
    let places = BTreeMap::from([("north".into(), place(2)), ("west".into(), place(1))]);
    let id = "a".to_owned();
    assert_eq!(
        snapshots.on_response(&second, "west", place(9)),
        Some(SnapshotStep::Done { id, places })
    );
    assert!(!snapshots.is_due(2, TIMEOUT));
    snapshots.on_data(2);
    assert!(snapshots.is_due(2, TIMEOUT));
}

#[test]
fn one_without_answers_is_given_up_in_time() {
    let mut snapshots = Snapshots::new(0);
    assert!(snapshots.is_due(0, TIMEOUT));
    snapshots.begin("a".to_owned(), ["west"], 0);
    assert!(!snapshots.is_due(49, TIMEOUT));
    assert!(snapshots.is_due(50, TIMEOUT));
    assert_eq!(snapshots.on_response("a", "west", Position::new(1, 1)), None);
}

#[test]
fn of_too_many_the_ones_that_are_close_together_go() {
    let mut ahead = SnapshotsAhead::default();
    let place = |at| Rc::new(ClusterPlaces::from([("west".into(), Position::new(1, at))]));
    for at in [10, 20, 21, 40, 41, 80] {
        ahead.keep(Ordinal(at), place(at), 4);
    }
    assert_eq!(ahead.len(), 4);
    assert_eq!(ahead.take_passed(Ordinal(9)), None);
    assert_eq!(ahead.take_passed(Ordinal(10)), Some(place(10)));
    // What was read late of what is passed is none.
    ahead.keep(Ordinal(5), place(5), 4);
    assert_eq!(ahead.take_passed(Ordinal(10)), None);
    assert_eq!(ahead.take_passed(Ordinal(1_000)), Some(place(80)));
    assert!(ahead.is_empty());
}
