//! Which consumer of a Failover subscription is the active one.
//!
//! Every broker must choose alike from the same consumers, so that the partitions of a topic spread over them.

use pharos_types::hash::murmur3_32;

/// Points of a consumer on the ring.
const POINTS: u32 = 100;

/// A consumer that may become active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name; decides among equals.
    pub name: &'a str,
    /// 0 is best.
    pub priority_level: i32,
}

/// The index in `consumers` of the one that is to be active; `None` when there is none. Ask again after each join and leave.
///
/// Only consumers of the best priority level count, ordered by name. A partition chooses by its index; a topic that is no
/// partition, or any topic with `consistent_hashing` (`activeConsumerFailoverConsistentHashing`), by a ring of the
/// consumers' names on which the full topic name falls.
#[must_use]
pub fn pick_active(
    consumers: &[Candidate<'_>],
    topic_name: &str,
    partition_index: Option<u32>,
    consistent_hashing: bool,
) -> Option<usize> {
    let best = consumers.iter().map(|consumer| consumer.priority_level).min()?;
    let mut candidates: Vec<usize> = (0..consumers.len())
        .filter(|&index| consumers[index].priority_level == best)
        .collect();
    // Stable, so that of consumers with one name the earlier joined comes first.
    candidates.sort_by_key(|&index| consumers[index].name);
    let place = match partition_index {
        Some(partition) if !consistent_hashing => partition as usize % candidates.len(),
        _ => on_ring(candidates.iter().map(|&index| consumers[index].name), topic_name)?,
    };
    candidates.get(place).copied()
}

/// The place among `names` of the one whose point is the next at or above the hash of the topic, going round.
fn on_ring<'a>(names: impl Iterator<Item = &'a str>, topic_name: &str) -> Option<usize> {
    let topic = murmur3_32(topic_name.as_bytes());
    let mut next: Option<(u32, usize)> = None;
    let mut text = String::new();
    for (place, name) in names.enumerate() {
        for point in 0..POINTS {
            text.clear();
            text.push_str(name);
            text.push_str(&point.to_string());
            // How far above the topic the point is, going round at 2^31. Where points collide the later consumer has it.
            let distance = murmur3_32(text.as_bytes()).wrapping_sub(topic) & 0x7fff_ffff;
            if next.is_none_or(|(nearest, _)| distance <= nearest) {
                next = Some((distance, place));
            }
        }
    }
    next.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates<'a>(of: &[(&'a str, i32)]) -> Vec<Candidate<'a>> {
        let candidate = |&(name, priority_level)| Candidate { name, priority_level };
        of.iter().map(candidate).collect()
    }

    #[test]
    fn none_is_active_among_none() {
        assert_eq!(pick_active(&[], "t", Some(0), false), None);
    }

    #[test]
    fn partitions_go_round_by_name_among_the_best() {
        let of = candidates(&[("c", 0), ("z", 1), ("a", 0), ("b", 0)]);
        let active = |partition| pick_active(&of, "t", Some(partition), false);
        assert_eq!(
            [active(0), active(1), active(2), active(3)],
            [Some(2), Some(3), Some(0), Some(2)]
        );
    }

    #[test]
    fn a_ring_moves_only_the_topics_of_who_left() {
        let three = candidates(&[("c", 0), ("a", 0), ("b", 0)]);
        let two = candidates(&[("c", 0), ("a", 0)]);
        let mut seen = [0; 3];
        for topic in 0..300 {
            let topic = format!("persistent://public/default/t{topic}");
            let before = pick_active(&three, &topic, None, false).unwrap();
            let after = pick_active(&two, &topic, Some(7), true).unwrap();
            seen[before] += 1;
            assert!(before == 2 || before == after);
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }
}
