//! Bundle split algorithms: the four that Pulsar has, under its names. Pure.

use std::fmt;

use crate::BundleRange;

/// Bundle split algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BundleDivision {
    /// In the middle of its hashes.
    #[default]
    Range,
    /// Split so that both parts have the same number of topics.
    Topics,
    /// Split so that both parts have the same message rate.
    Load,
    /// Split at the positions of the caller.
    Positions,
}

impl BundleDivision {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 4] = [Self::Range, Self::Topics, Self::Load, Self::Positions];

    /// Pulsar's name of it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Range => "range_equally_divide",
            Self::Topics => "topic_count_equally_divide",
            Self::Load => "flow_or_qps_equally_divide",
            Self::Positions => "specified_positions_divide",
        }
    }

    /// The one that Pulsar calls so.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|division| division.as_str() == name)
    }
}

impl fmt::Display for BundleDivision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl BundleRange {
    /// The hash in the middle.
    #[must_use]
    pub fn middle(&self) -> u32 {
        let (low, high) = self.hashes();
        low + (high - low).div_ceil(2)
    }
}

/// The border that parts what weighs something at a hash into halves, as nearly as the hashes allow. `None`: all of it is at one hash.
#[must_use]
pub fn middle_of(weights: impl IntoIterator<Item = (u32, f64)>) -> Option<u32> {
    let mut weights: Vec<(u32, f64)> = weights.into_iter().filter(|(_, weight)| *weight > 0.0).collect();
    weights.sort_unstable_by_key(|(hash, _)| *hash);
    let half = weights.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut before = 0.0;
    let mut best: Option<(f64, u32)> = None;
    for pair in weights.windows(2) {
        let [(left, weight), (right, _)] = pair else {
            continue;
        };
        before += weight;
        let far = (before - half).abs();
        if left < right && best.is_none_or(|(least, _)| far < least) {
            best = Some((far, left + (right - left).div_ceil(2)));
        }
    }
    best.map(|(_, border)| border)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_parts_what_is_there_into_halves() {
        assert_eq!(middle_of([]), None);
        assert_eq!(middle_of([(7, 1.0)]), None);
        assert_eq!(middle_of([(7, 1.0), (7, 5.0)]), None);
        // The left one is below the border, the right one is not.
        assert_eq!(middle_of([(7, 1.0), (8, 1.0)]), Some(8));
        assert_eq!(middle_of([(40, 1.0), (10, 1.0), (30, 1.0), (20, 1.0)]), Some(25));
        assert_eq!(middle_of([(10, 9.0), (20, 1.0), (30, 1.0)]), Some(15));
        assert_eq!(middle_of([(10, 1.0), (20, 1.0), (30, 9.0)]), Some(25));
        // What carries nothing does not count.
        assert_eq!(middle_of([(10, 0.0), (20, 1.0), (30, 1.0)]), Some(25));
    }

    #[test]
    fn the_middle_of_a_range_is_inside_of_it() {
        let range = |text| BundleRange::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(range("0x40000000_0x80000000").middle(), 0x6000_0000);
        assert_eq!(range("0x00000000_0xffffffff").middle(), 0x8000_0000);
        assert!(!range("0x00000001_0x00000002").can_be_cut_at(&[2]));
    }

    #[test]
    fn ways_have_the_names_of_pulsar() {
        for division in BundleDivision::ALL {
            assert_eq!(BundleDivision::parse(division.as_str()), Some(division));
        }
        assert_eq!(BundleDivision::parse("odd"), None);
    }
}
