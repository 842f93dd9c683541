//! Sets of entry ids, kept as ranges.

/// Disjoint half-open ranges in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(super) fn of(first: u64, end: u64) -> Self {
        let mut all = Self::default();
        all.add(first, end);
        all
    }

    /// Adds `first..end`. Cheap when ranges come in rising order.
    pub(super) fn add(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let from = self.0.partition_point(|known| known.1 < first);
        let to = self.0.partition_point(|known| known.0 <= end);
        let (mut low, mut high) = (first, end);
        if let Some(touched) = self.0.get(from..to).filter(|touched| !touched.is_empty()) {
            low = touched.first().map_or(low, |one| one.0.min(low));
            high = touched.last().map_or(high, |one| one.1.max(high));
        }
        self.0.splice(from..to.max(from), [(low, high)]);
    }

    /// Takes `first..end` out.
    pub(super) fn remove(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let from = self.0.partition_point(|known| known.1 <= first);
        let to = self.0.partition_point(|known| known.0 < end).max(from);
        let touched = self.0.get(from..to).unwrap_or_default();
        let mut left = Vec::new();
        if let Some(one) = touched.first().filter(|one| one.0 < first) {
            left.push((one.0, first));
        }
        if let Some(one) = touched.last().filter(|one| one.1 > end) {
            left.push((end, one.1));
        }
        self.0.splice(from..to, left);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn contains(&self, one: u64) -> bool {
        let at = self.0.partition_point(|known| known.1 <= one);
        self.0.get(at).is_some_and(|known| known.0 <= one)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(first, end)| end - first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_behave_like_a_set() {
        let mut ranges = Ranges::default();
        let mut set = std::collections::BTreeSet::new();
        let mut seed = 7u64;
        for round in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let first = (seed >> 33) % 60;
            let end = first + (seed >> 50) % 9;
            if round % 3 == 0 {
                ranges.remove(first, end);
                set.retain(|one| !(first..end).contains(one));
            } else {
                ranges.add(first, end);
                set.extend(first..end);
            }
            let found: Vec<u64> = ranges.iter().flat_map(|(first, end)| first..end).collect();
            assert!(found.iter().eq(&set), "{ranges:?}");
            assert_eq!(ranges.count(), set.len() as u64);
            assert_eq!(ranges.contains(first), set.contains(&first));
            assert!(ranges.0.windows(2).all(|two| two[0].1 < two[1].0), "{ranges:?}");
        }
    }
}
