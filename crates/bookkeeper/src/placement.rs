//! Choice of the bookies for a ledger's new entries: copies of one entry are kept apart, as far as the bookies allow.
//!
//! ```text
//!  ensemble of 4, write quorum 2     racks  a b a b      entries 0: a b   1: b a   2: a b   3: b a
//! ```
//! Two positions of an ensemble share entries if they are fewer than a write quorum apart on the ring. Such
//! neighbours in one rack (or one region) are a conflict; the bookie with the fewest conflicts is chosen. Preferred
//! spreading yields to health; enforced spreading does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::metadata::BookieId;
use crate::quorum::Quorum;

/// Over what the copies of an entry are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Over bookies, wherever they stand.
    #[default]
    Bookies,
    /// Over racks.
    Racks,
    /// Over regions, and inside a region over racks.
    Regions,
}

/// Policy for the choice of bookies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Over what the copies of an entry are spread.
    pub spread: Spread,
    /// Minimum number of racks (or regions) with a copy of each entry, enforced if greater than 1: a ledger that
    /// cannot meet it is not created, and a bookie is not replaced by one that breaks it. A smaller write quorum
    /// takes its place.
    pub apart_min: usize,
    /// Bookies with more room on their disks get more of the ledgers.
    pub by_free_disk: bool,
}

/// Location of a bookie, as configured by an operator: `/region/rack`, or `/rack`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RackPath {
    region: Arc<str>,
    rack: Arc<str>,
}

impl RackPath {
    pub(crate) fn parse(path: &str) -> Self {
        let path = path.trim_matches('/');
        match path.rsplit_once('/') {
            Some((region, rack)) => Self::new(region, rack),
            None if path.is_empty() => Self::default(),
            None => Self::new("default-region", path),
        }
    }

    fn new(region: &str, rack: &str) -> Self {
        Self {
            region: region.into(),
            rack: rack.into(),
        }
    }

    /// True for the same rack of the same region.
    fn is_rack_of(&self, other: &Self) -> bool {
        self == other
    }
}

/// Location of bookies without a configured one.
impl Default for RackPath {
    fn default() -> Self {
        Self::new("default-region", "default-rack")
    }
}

/// A bookie that may be chosen.
#[derive(Clone, Debug)]
pub(crate) struct BookieOffer {
    pub(crate) bookie: BookieId,
    pub(crate) place: RackPath,
    pub(crate) is_quarantined: bool,
}

/// Conflicts of a bookie at a position: in its region, in its rack.
type Conflicts = (usize, usize);

impl PlacementOptions {
    /// Bookies for a new ensemble out of `candidates`, the most welcome first. `None`: there are too few, or they stand too close.
    pub(crate) fn ensemble(&self, quorum: Quorum, candidates: &[BookieOffer]) -> Option<Vec<BookieId>> {
        // Another first one may fit where the most welcome does not.
        (0..candidates.len().max(1)).find_map(|first| {
            let mut free: Vec<&BookieOffer> = candidates.iter().collect();
            free.rotate_left(first.min(candidates.len()));
            let mut chosen: Vec<Option<&BookieOffer>> = vec![None; quorum.ensemble()];
            for position in 0..quorum.ensemble() {
                let best = self.best(quorum, &chosen, position, &free, position > 0)?;
                if let Some(place) = chosen.get_mut(position) {
                    *place = Some(free.remove(best));
                }
            }
            let chosen: Vec<&BookieOffer> = chosen.into_iter().flatten().collect();
            let places: Vec<&RackPath> = chosen.iter().map(|candidate| &candidate.place).collect();
            self.is_enough(quorum, &places)
                .then(|| chosen.iter().map(|candidate| candidate.bookie.clone()).collect())
        })
    }

    /// A bookie of `candidates` for `position` of an ensemble whose other members stand at `places`.
    pub(crate) fn replacement(
        &self,
        quorum: Quorum,
        places: &[RackPath],
        position: usize,
        candidates: &[BookieOffer],
    ) -> Option<BookieId> {
        let others: Vec<BookieOffer> = places.iter().map(|place| candidate_at(place.clone())).collect();
        let mut ensemble: Vec<Option<&BookieOffer>> = others.iter().map(Some).collect();
        *ensemble.get_mut(position)? = None;
        let mut free: Vec<&BookieOffer> = candidates.iter().collect();
        while let Some(best) = self.best(quorum, &ensemble, position, &free, true) {
            let chosen = free.remove(best);
            let mut changed: Vec<&RackPath> = places.iter().collect();
            *changed.get_mut(position)? = &chosen.place;
            if self.is_enough(quorum, &changed) {
                return Some(chosen.bookie.clone());
            }
        }
        None
    }

    /// The index of the one that fits best; of equals the first.
    fn best(
        &self,
        quorum: Quorum,
        ensemble: &[Option<&BookieOffer>],
        position: usize,
        free: &[&BookieOffer],
        looks_around: bool,
    ) -> Option<usize> {
        let cost = |candidate: &BookieOffer| {
            let conflicts = self.conflicts(quorum, ensemble, position, &candidate.place);
            let conflicts = if looks_around { conflicts } else { (0, 0) };
            match self.is_enforced() {
                true => (conflicts, usize::from(candidate.is_quarantined), (0, 0)),
                false => ((0, 0), usize::from(candidate.is_quarantined), conflicts),
            }
        };
        let costs = free.iter().map(|candidate| cost(candidate)).enumerate();
        costs.min_by_key(|(_, cost)| *cost).map(|(index, _)| index)
    }

    fn is_enforced(&self) -> bool {
        self.apart_min > 1 && self.spread != Spread::Bookies
    }

    fn conflicts(
        &self,
        quorum: Quorum,
        ensemble: &[Option<&BookieOffer>],
        position: usize,
        place: &RackPath,
    ) -> Conflicts {
        let size = ensemble.len();
        let shares = |other: usize| {
            let steps = position.abs_diff(other);
            other != position && steps.min(size - steps) < quorum.write()
        };
        let neighbours = ensemble.iter().enumerate();
        let neighbours = neighbours.filter(|(other, _)| shares(*other));
        let mut conflicts = (0, 0);
        for neighbour in neighbours.filter_map(|(_, neighbour)| *neighbour) {
            if self.spread == Spread::Regions {
                conflicts.0 += usize::from(neighbour.place.region == place.region);
            }
            if self.spread != Spread::Bookies {
                conflicts.1 += usize::from(neighbour.place.is_rack_of(place));
            }
        }
        conflicts
    }

    /// True if the copies of every entry are as far apart as is enforced.
    fn is_enough(&self, quorum: Quorum, places: &[&RackPath]) -> bool {
        if !self.is_enforced() {
            return true;
        }
        let wanted = self.apart_min.min(quorum.write());
        (0..places.len()).all(|first| {
            let copies = quorum.write_set(pharos_types::EntryId(first as u64));
            let places = copies.filter_map(|position| places.get(position));
            let apart: BTreeSet<(&str, &str)> = match self.spread {
                Spread::Regions => places.map(|place| (&*place.region, "")).collect(),
                Spread::Bookies | Spread::Racks => {
                    places.map(|place| (&*place.region, &*place.rack)).collect()
                }
            };
            apart.len() >= wanted
        })
    }
}

fn candidate_at(place: RackPath) -> BookieOffer {
    BookieOffer {
        bookie: BookieId::new(""),
        place,
        is_quarantined: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name@/region/rack`, and `!` in front of those in quarantine.
    fn candidates(text: &str) -> Vec<BookieOffer> {
        let one = |word: &str| {
            let (name, place) = word.trim_start_matches('!').split_once('@').unwrap();
            BookieOffer {
                bookie: BookieId::new(name),
                place: RackPath::parse(place),
                is_quarantined: word.starts_with('!'),
            }
        };
        text.split(' ').map(one).collect()
    }

    fn options(spread: Spread, apart_min: usize) -> PlacementOptions {
        PlacementOptions {
            spread,
            apart_min,
            by_free_disk: false,
        }
    }

    fn chosen(options: &PlacementOptions, quorum: (usize, usize, usize), text: &str) -> Option<String> {
        let quorum = Quorum::new(quorum.0, quorum.1, quorum.2).unwrap();
        let ensemble = options.ensemble(quorum, &candidates(text))?;
        let names: Vec<_> = ensemble.iter().map(BookieId::as_str).collect();
        Some(names.join(" "))
    }

    #[test]
    fn places_are_read_as_operators_write_them() {
        assert_eq!(RackPath::parse("/r1/a"), RackPath::new("r1", "a"));
        assert_eq!(RackPath::parse("a"), RackPath::parse("/a"));
        assert_eq!(RackPath::parse(""), RackPath::default());
    }

    #[test]
    fn copies_of_an_entry_are_in_different_racks() {
        let racks = options(Spread::Racks, 0);
        let bookies = "a1@/a a2@/a b1@/b b2@/b";
        assert_eq!(chosen(&racks, (2, 2, 2), bookies).unwrap(), "a1 b1");
        // Each write set of a striped ledger.
        assert_eq!(chosen(&racks, (4, 2, 2), bookies).unwrap(), "a1 b1 a2 b2");
        // Without racks the order is all there is.
        assert_eq!(
            chosen(&options(Spread::Bookies, 2), (2, 2, 2), bookies).unwrap(),
            "a1 a2"
        );
        // As far as it goes.
        assert_eq!(chosen(&racks, (3, 3, 2), bookies).unwrap(), "a1 b1 a2");
        assert_eq!(chosen(&racks, (5, 2, 2), bookies), None);
    }

    #[test]
    fn copies_of_an_entry_are_in_different_regions_and_then_racks() {
        let regions = options(Spread::Regions, 0);
        let bookies = "1@/x/a 2@/x/a 3@/x/b 4@/y/a 5@/y/b";
        assert_eq!(chosen(&regions, (2, 2, 2), bookies).unwrap(), "1 4");
        assert_eq!(chosen(&regions, (3, 3, 2), bookies).unwrap(), "1 4 3");
    }

    #[test]
    fn what_is_enforced_is_refused_where_it_is_impossible() {
        let two = options(Spread::Racks, 2);
        assert_eq!(chosen(&two, (2, 2, 2), "1@/a 2@/a 3@/a"), None);
        assert_eq!(chosen(&two, (2, 2, 2), "1@/a 2@/a 3@/b").unwrap(), "1 3");
        assert_eq!(chosen(&two, (3, 3, 2), "1@/a 2@/a 3@/b").unwrap(), "1 3 2");
        // Around a ring of three there are always two neighbours in one of two racks.
        assert_eq!(chosen(&two, (3, 2, 2), "1@/a 2@/a 3@/b 4@/b"), None);
        // One copy is in one rack.
        assert_eq!(chosen(&two, (2, 1, 1), "1@/a 2@/a").unwrap(), "1 2");
    }

    #[test]
    fn health_comes_before_what_is_preferred_and_after_what_is_enforced() {
        let bookies = "1@/a 2@/a !3@/b";
        assert_eq!(
            chosen(&options(Spread::Racks, 0), (2, 2, 2), bookies).unwrap(),
            "1 2"
        );
        assert_eq!(
            chosen(&options(Spread::Racks, 2), (2, 2, 2), bookies).unwrap(),
            "1 3"
        );
    }

    #[test]
    fn a_bookie_is_exchanged_for_one_apart_from_its_neighbours() {
        let quorum = Quorum::new(3, 2, 2).unwrap();
        let places = ["/a", "/b", "/c"].map(RackPath::parse);
        let of = |options: &PlacementOptions, text| {
            let replacement = options.replacement(quorum, &places, 1, &candidates(text));
            replacement.map(|bookie| bookie.to_string())
        };
        let racks = options(Spread::Racks, 0);
        assert_eq!(of(&racks, "1@/a 2@/c 3@/b").unwrap(), "3");
        assert_eq!(of(&racks, "1@/a 2@/c !3@/b").unwrap(), "1");
        let two = options(Spread::Racks, 2);
        assert_eq!(of(&two, "1@/a 2@/c !3@/b").unwrap(), "3");
        assert_eq!(of(&two, "1@/a 2@/c"), None);
    }
}
