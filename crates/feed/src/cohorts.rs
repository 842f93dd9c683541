//! Cohorts of a connection's stream consumers, by the next entry due to them; the foremost is kept apart from the
//! others.
//!
//! Nearly always all stream consumers are at the tail together, and each entry moves them one position on. So the
//! foremost cohort is kept where it costs no search and no allocation to move; those behind it are in a map.
//!
//! Always true: the map holds only positions below the foremost one, and no empty cohort.

use std::collections::BTreeMap;
use std::ops::Bound;

use pharos_types::Ordinal;
use smallvec::SmallVec;

/// A stream consumer's membership of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The stream consumer.
    pub(super) index: u32,
    /// Number of the membership; only a consumer's newest counts.
    pub(super) ticket: u32,
}

/// Members in the order in which they get the entry. Most connections have one consumer.
type Members = SmallVec<[Member; 2]>;

/// Stream consumers that are due the same entry.
#[derive(Debug, Default)]
pub(super) struct Cohort {
    /// Stream consumers at this position.
    pub(super) members: Members,
    /// Members before this index have had the entry.
    pub(super) at: usize,
    /// A read of this place was asked for.
    pub(super) waiting: bool,
}

impl Cohort {
    /// True if a stream consumer here has not had the entry.
    pub(super) fn has_next(&self) -> bool {
        self.at < self.members.len()
    }

    /// The next member to get the entry, who then has had it.
    pub(super) fn next(&mut self) -> Option<Member> {
        let member = self.members.get(self.at).copied()?;
        self.at += 1;
        Some(member)
    }
}

/// The cohorts of a group.
#[derive(Debug, Default)]
pub(super) struct Cohorts {
    /// Position of the foremost cohort; without meaning while it is empty.
    place: Ordinal,
    foremost: Cohort,
    behind: BTreeMap<Ordinal, Cohort>,
    /// Members of a cohort that is done, emptied: its memory is for the next.
    spare: Members,
}

impl Cohorts {
    /// Stands a member into the cohort of this place, at its end.
    pub(super) fn join(&mut self, place: Ordinal, member: Member) {
        self.at(place).members.push(member);
    }

    /// Takes a cohort out.
    pub(super) fn take(&mut self, place: Ordinal) -> Option<Cohort> {
        if place != self.place || self.foremost.members.is_empty() {
            return self.behind.remove(&place);
        }
        let next = Cohort {
            members: std::mem::take(&mut self.spare),
            ..Cohort::default()
        };
        Some(std::mem::replace(&mut self.foremost, next))
    }

    /// Puts a cohort back that was taken out. Those who joined its place meanwhile go behind.
    pub(super) fn put_back(&mut self, place: Ordinal, mut cohort: Cohort) {
        if cohort.members.is_empty() {
            return;
        }
        let here = self.at(place);
        cohort.members.extend_from_slice(&here.members);
        *here = cohort;
    }

    /// A cohort is done with: no stream consumer stands in it any more.
    pub(super) fn recycle(&mut self, mut cohort: Cohort) {
        cohort.members.clear();
        self.spare = cohort.members;
    }

    /// The cohort of this place, if a stream consumer stands there.
    pub(super) fn get_mut(&mut self, place: Ordinal) -> Option<&mut Cohort> {
        if place == self.place && !self.foremost.members.is_empty() {
            return Some(&mut self.foremost);
        }
        self.behind.get_mut(&place)
    }

    /// All places with their cohorts: those after `served` first, then from the lowest on.
    pub(super) fn in_turn(&self, served: Ordinal) -> impl Iterator<Item = (Ordinal, &Cohort)> {
        let foremost = |comes: bool| {
            (comes && !self.foremost.members.is_empty()).then_some((&self.place, &self.foremost))
        };
        let after = self.behind.range((Bound::Excluded(served), Bound::Unbounded));
        let before = self.behind.range(..=served);
        after
            .chain(foremost(self.place > served))
            .chain(before)
            .chain(foremost(self.place <= served))
            .map(|(place, cohort)| (*place, cohort))
    }

    /// The cohort of this place, made if there is none; the caller puts a stream consumer into it.
    fn at(&mut self, place: Ordinal) -> &mut Cohort {
        if self.foremost.members.is_empty() && self.behind.is_empty() {
            self.place = place;
        } else if self.foremost.members.is_empty() || place > self.place {
            return self.at_moving(place);
        }
        if place == self.place {
            &mut self.foremost
        } else {
            self.behind.entry(place).or_default()
        }
    }

    /// As `at`, where the foremost may become another.
    fn at_moving(&mut self, place: Ordinal) -> &mut Cohort {
        let highest = self.behind.last_key_value().map(|(highest, _)| *highest);
        if self.foremost.members.is_empty() {
            if highest.is_some_and(|highest| place <= highest) {
                return self.behind.entry(place).or_default();
            }
        } else {
            let old = std::mem::take(&mut self.foremost);
            self.behind.insert(self.place, old);
        }
        self.place = place;
        &mut self.foremost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(index: u32) -> Member {
        Member { index, ticket: index }
    }

    fn places(cohorts: &Cohorts, served: u64) -> Vec<(u64, Vec<u32>)> {
        cohorts
            .in_turn(Ordinal(served))
            .map(|(place, cohort)| {
                (
                    place.0,
                    cohort.members.iter().map(|member| member.index).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn all_move_on_together_and_one_stays_behind() {
        let mut cohorts = Cohorts::default();
        for index in 0..3 {
            cohorts.join(Ordinal(5), member(index));
        }
        let mut cohort = cohorts.take(Ordinal(5)).expect("three members");
        assert!(cohorts.take(Ordinal(5)).is_none());
        cohorts.join(Ordinal(6), cohort.next().expect("the first"));
        cohorts.put_back(Ordinal(5), cohort);
        assert_eq!(places(&cohorts, 4), [(5, vec![0, 1, 2]), (6, vec![0])]);
        assert_eq!(places(&cohorts, 5), [(6, vec![0]), (5, vec![0, 1, 2])]);
        let mut cohort = cohorts.take(Ordinal(5)).expect("put back");
        assert_eq!(cohort.next(), Some(member(1)));
        cohorts.join(Ordinal(6), member(1));
        cohorts.recycle(cohort);
        assert_eq!(places(&cohorts, 5), [(6, vec![0, 1])]);
    }

    #[test]
    fn turns_go_round_all_places_whichever_joined_first() {
        for order in [[3, 7, 9], [9, 7, 3], [7, 9, 3], [3, 9, 7]] {
            let mut cohorts = Cohorts::default();
            for place in order {
                cohorts.join(Ordinal(place), member(place as u32));
            }
            let turns = |served| {
                places(&cohorts, served)
                    .iter()
                    .map(|(place, _)| *place)
                    .collect::<Vec<_>>()
            };
            assert_eq!(turns(0), [3, 7, 9]);
            assert_eq!(turns(3), [7, 9, 3]);
            assert_eq!(turns(8), [9, 3, 7]);
            assert_eq!(turns(9), [3, 7, 9]);
        }
    }

    #[test]
    fn who_joins_a_cohort_that_is_out_goes_behind() {
        let mut cohorts = Cohorts::default();
        cohorts.join(Ordinal(5), member(0));
        let cohort = cohorts.take(Ordinal(5)).expect("one member");
        cohorts.join(Ordinal(4), member(2));
        cohorts.join(Ordinal(5), member(1));
        cohorts.put_back(Ordinal(5), cohort);
        assert_eq!(places(&cohorts, 0), [(4, vec![2]), (5, vec![0, 1])]);
        assert!(cohorts.get_mut(Ordinal(6)).is_none());
        cohorts.get_mut(Ordinal(5)).expect("there").waiting = true;
        assert!(cohorts.take(Ordinal(5)).expect("there").waiting);
    }

    #[test]
    fn the_same_as_a_map_whatever_happens() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut cohorts = Cohorts::default();
        let mut model: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for index in 0..20_000 {
            let place = random(6);
            if random(3) > 0 {
                cohorts.join(Ordinal(place), member(index));
                model.entry(place).or_default().push(index);
            } else {
                let taken = cohorts.take(Ordinal(place));
                let indexes = taken
                    .as_ref()
                    .map(|cohort| cohort.members.iter().map(|member| member.index).collect());
                assert_eq!(indexes, model.remove(&place));
                match taken {
                    Some(cohort) if random(2) == 0 => {
                        model.insert(place, indexes.unwrap_or_default());
                        cohorts.put_back(Ordinal(place), cohort);
                    }
                    Some(cohort) => cohorts.recycle(cohort),
                    None => {}
                }
            }
            let served = random(7);
            let after = model.range(served + 1..).chain(model.range(..=served));
            let expected: Vec<_> = after.map(|(place, members)| (*place, members.clone())).collect();
            assert_eq!(places(&cohorts, served), expected);
        }
    }
}
