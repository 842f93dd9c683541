//! Which consumer of a Failover subscription is the active one.
//!
//! Every broker must choose alike from the same consumers, so that the partitions of a topic spread over them.
//!
//! Only consumers of the best priority level count, ordered by name; of consumers with one name the earlier joined comes first. A
//! partition chooses by its index; a topic that is no partition, or any topic with consistent hashing
//! (`activeConsumerFailoverConsistentHashing`), by a ring of the consumers' names on which the full topic name falls.
//!
//! Always true: a consumer joins, leaves and is chosen in time logarithmic in the number of consumers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pharos_types::hash::murmur3_32;
use pharos_types::steps::step;

use super::ranked::Ranked;
use super::types::ConsumerKey;

/// Points of a consumer on the ring.
const POINTS: u32 = 100;

/// Consumers by name, then in the order in which they joined: keys rise.
type Named = (Arc<str>, ConsumerKey);

/// Rule by which a topic chooses among consumers of one priority level.
#[derive(Clone, Copy, Debug)]
enum ActiveChoice {
    /// By the index of the partition.
    Index(usize),
    /// By the ring: the hash of the topic's name.
    Ring(u32),
}

/// The consumers of one priority level, in the shape in which their topic chooses.
#[derive(Debug)]
enum CandidateOrder {
    Index(Ranked<Named>),
    /// By how far above the topic the nearest of a consumer's points is. Where points collide the later consumer has it.
    Ring(BTreeSet<(u32, Reverse<Named>)>),
}

/// The consumers of a Failover subscription, of which one is to be active.
///
/// ```
/// use pharos_dispatch::{ConsumerKey, FailoverCandidates};
///
/// let mut candidates = FailoverCandidates::new("persistent://public/default/t", None, false);
/// assert_eq!(candidates.active(), None);
/// candidates.add(ConsumerKey(1), "a".into(), 1);
/// assert!(candidates.would_choose("b", 0), "a better priority level");
/// candidates.add(ConsumerKey(2), "b".into(), 0);
/// assert_eq!(candidates.active(), Some(ConsumerKey(2)));
/// ```
#[derive(Debug)]
pub struct FailoverCandidates {
    method: ActiveChoice,
    /// By priority level; 0 is best.
    levels: BTreeMap<i32, CandidateOrder>,
    /// The level and the place in it of each.
    members: HashMap<ConsumerKey, (i32, u32, Arc<str>)>,
}

impl FailoverCandidates {
    /// Of no consumer yet, on this topic.
    #[must_use]
    pub fn new(topic_name: &str, partition_index: Option<u32>, consistent_hashing: bool) -> Self {
        let method = match partition_index {
            Some(partition) if !consistent_hashing => ActiveChoice::Index(partition as usize),
            _ => ActiveChoice::Ring(murmur3_32(topic_name.as_bytes())),
        };
        Self {
            method,
            levels: BTreeMap::new(),
            members: HashMap::new(),
        }
    }

    /// Adds a consumer. Keys rise in the order in which consumers join.
    pub fn add(&mut self, key: ConsumerKey, name: Arc<str>, priority_level: i32) {
        self.remove(key);
        step();
        let distance = self.method.distance(&name);
        let level = self.levels.entry(priority_level).or_insert(match self.method {
            ActiveChoice::Index(_) => CandidateOrder::Index(Ranked::default()),
            ActiveChoice::Ring(_) => CandidateOrder::Ring(BTreeSet::new()),
        });
        let named = (Arc::clone(&name), key);
        match level {
            CandidateOrder::Index(ranked) => _ = ranked.insert(named),
            CandidateOrder::Ring(nearest) => _ = nearest.insert((distance, Reverse(named))),
        }
        self.members.insert(key, (priority_level, distance, name));
    }

    /// Removes a consumer, if it is here.
    pub fn remove(&mut self, key: ConsumerKey) {
        step();
        let Some((priority_level, distance, name)) = self.members.remove(&key) else {
            return;
        };
        let Some(level) = self.levels.get_mut(&priority_level) else {
            return;
        };
        let named = (name, key);
        let is_empty = match level {
            CandidateOrder::Index(ranked) => {
                ranked.remove(&named);
                ranked.len() == 0
            }
            CandidateOrder::Ring(nearest) => {
                nearest.remove(&(distance, Reverse(named)));
                nearest.is_empty()
            }
        };
        if is_empty {
            self.levels.remove(&priority_level);
        }
    }

    /// The consumer that is to be active; `None` when there is none. Ask again after each join and leave.
    #[must_use]
    pub fn active(&self) -> Option<ConsumerKey> {
        step();
        let (_, level) = self.levels.first_key_value()?;
        match (level, self.method) {
            (CandidateOrder::Index(ranked), ActiveChoice::Index(partition)) => {
                Some(ranked.get(partition % ranked.len().max(1))?.1)
            }
            (CandidateOrder::Ring(nearest), _) => {
                let (_, Reverse((_, key))) = nearest.first()?;
                Some(*key)
            }
            (CandidateOrder::Index(_), ActiveChoice::Ring(_)) => None,
        }
    }

    /// True if a consumer that joins now would be the active one.
    #[must_use]
    pub fn would_choose(&self, name: &str, priority_level: i32) -> bool {
        step();
        let Some((&best, level)) = self.levels.first_key_value() else {
            return true;
        };
        if best != priority_level {
            return priority_level < best;
        }
        match (level, self.method) {
            (CandidateOrder::Index(ranked), ActiveChoice::Index(partition)) => {
                let place = ranked.count_before(|(other, _)| **other <= *name);
                place == partition % (ranked.len() + 1)
            }
            (CandidateOrder::Ring(nearest), _) => {
                nearest.first().is_none_or(|(distance, Reverse((other, _)))| {
                    let own = self.method.distance(name);
                    own < *distance || own == *distance && name >= &**other
                })
            }
            (CandidateOrder::Index(_), ActiveChoice::Ring(_)) => false,
        }
    }
}

impl ActiveChoice {
    /// How far above the topic the nearest point of a name is, going round at 2^31; 0 where there is no ring.
    fn distance(self, name: &str) -> u32 {
        let Self::Ring(topic) = self else { return 0 };
        let mut text = String::new();
        let distances = (0..POINTS).map(|point| {
            text.clear();
            text.push_str(name);
            text.push_str(&point.to_string());
            murmur3_32(text.as_bytes()).wrapping_sub(topic) & 0x7fff_ffff
        });
        distances.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(consumers: &[(&str, i32)], topic: &str, partition: Option<u32>, ring: bool) -> FailoverCandidates {
        let mut candidates = FailoverCandidates::new(topic, partition, ring);
        for ((name, priority_level), key) in consumers.iter().zip(0..) {
            candidates.add(ConsumerKey(key), (*name).into(), *priority_level);
        }
        candidates
    }

    /// The place among `consumers` of the one to be active, as the rules say it.
    fn model(
        consumers: &[(ConsumerKey, String, i32)],
        topic: &str,
        partition: Option<u32>,
        ring: bool,
    ) -> Option<ConsumerKey> {
        let best = consumers.iter().map(|(_, _, level)| *level).min()?;
        let mut sorted: Vec<_> = consumers.iter().filter(|(_, _, level)| *level == best).collect();
        sorted.sort_by_key(|(_, name, _)| name);
        if let Some(partition) = partition.filter(|_| !ring) {
            return Some(sorted[partition as usize % sorted.len()].0);
        }
        let topic = murmur3_32(topic.as_bytes());
        let points = sorted.iter().flat_map(|(key, name, _)| {
            (0..POINTS).map(move |point| {
                let at = murmur3_32(format!("{name}{point}").as_bytes());
                (at.wrapping_sub(topic) & 0x7fff_ffff, *key)
            })
        });
        // The last of equals.
        points.rev_min()
    }

    trait RevMin {
        fn rev_min(self) -> Option<ConsumerKey>;
    }

    impl<I: Iterator<Item = (u32, ConsumerKey)>> RevMin for I {
        fn rev_min(self) -> Option<ConsumerKey> {
            let mut nearest: Option<(u32, ConsumerKey)> = None;
            for (distance, key) in self {
                if nearest.is_none_or(|(other, _)| distance <= other) {
                    nearest = Some((distance, key));
                }
            }
            nearest.map(|(_, key)| key)
        }
    }

    #[test]
    fn none_is_active_among_none() {
        assert_eq!(of(&[], "t", Some(0), false).active(), None);
    }

    #[test]
    fn partitions_go_round_by_name_among_the_best() {
        let consumers = [("c", 0), ("z", 1), ("a", 0), ("b", 0)];
        let active = |partition| of(&consumers, "t", Some(partition), false).active();
        assert_eq!(
            [active(0), active(1), active(2), active(3)],
            [2, 3, 0, 2].map(|key| Some(ConsumerKey(key)))
        );
    }

    #[test]
    fn a_ring_moves_only_the_topics_of_who_left() {
        let mut seen = [0; 3];
        for topic in 0..300 {
            let topic = format!("persistent://public/default/t{topic}");
            let mut candidates = of(&[("c", 0), ("a", 0), ("b", 0)], &topic, Some(7), true);
            let before = candidates.active().unwrap();
            candidates.remove(ConsumerKey(2));
            seen[before.0 as usize] += 1;
            assert!(before.0 == 2 || Some(before) == candidates.active());
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }

    #[test]
    fn the_choice_follows_the_rules_as_consumers_come_and_go() {
        for (partition, ring) in [
            (None, false),
            (Some(3), false),
            (Some(1_000_003), false),
            (Some(3), true),
        ] {
            let topic = "persistent://public/default/t";
            let mut candidates = FailoverCandidates::new(topic, partition, ring);
            let mut present: Vec<(ConsumerKey, String, i32)> = Vec::new();
            let mut random: u32 = 5;
            for key in 0..300 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if random >> 30 == 0 && !present.is_empty() {
                    let gone = present.remove((random >> 8) as usize % present.len());
                    candidates.remove(gone.0);
                } else {
                    // Few names, so that many share one.
                    let (name, level) = (format!("c{}", (random >> 16) % 40), (random >> 12) as i32 % 2);
                    let newcomer = (ConsumerKey(key), name.clone(), level);
                    present.push(newcomer);
                    let is_chosen = model(&present, topic, partition, ring) == Some(ConsumerKey(key));
                    assert_eq!(candidates.would_choose(&name, level), is_chosen, "{present:?}");
                    candidates.add(ConsumerKey(key), name.into(), level);
                }
                assert_eq!(
                    candidates.active(),
                    model(&present, topic, partition, ring),
                    "{present:?}"
                );
            }
        }
    }
}
