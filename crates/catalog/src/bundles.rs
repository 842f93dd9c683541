//! Bundles: the ranges of hashes into which a namespace's topics are divided, and how one is cut.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use pharos_types::NamespaceName;
use serde_json::{Value, json};

use super::namespaces::{BUNDLES_MAX, NamespaceError};
use super::{Catalog, Policies};

/// A range of hashes as it is written, `0x40000000_0x80000000`: the first hash, and the first of the next range. The last one has
/// its upper border as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleRange {
    low: String,
    high: String,
}

impl BundleRange {
    /// `None`: it is no range.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (low, high) = text.split_once('_')?;
        (number(low)? < number(high)?).then(|| Self {
            low: low.to_owned(),
            high: high.to_owned(),
        })
    }

    /// The first hash, and the first of the next range.
    #[must_use]
    pub fn hashes(&self) -> (u32, u32) {
        let of = |border: &str| number(border).unwrap_or_default();
        (of(&self.low), of(&self.high))
    }

    /// True if the range can be split at all of these: they rise, and each leaves hashes on both sides.
    #[must_use]
    pub fn can_be_cut_at(&self, borders: &[u32]) -> bool {
        let (low, high) = self.hashes();
        let inside = borders.iter().all(|border| low < *border && *border < high);
        inside && !borders.is_empty() && borders.windows(2).all(|pair| pair.first() < pair.last())
    }

    /// Returns the parts after the split.
    #[must_use]
    pub fn cut_at(&self, borders: &[u32]) -> Vec<Self> {
        let inner = borders.iter().map(|border| written(*border));
        let all: Vec<String> = std::iter::once(self.low.clone())
            .chain(inner)
            .chain([self.high.clone()])
            .collect();
        let part = |pair: &[String]| match pair {
            [low, high] => Some(Self {
                low: low.clone(),
                high: high.clone(),
            }),
            _ => None,
        };
        all.windows(2).filter_map(part).collect()
    }
}

impl fmt::Display for BundleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.low, self.high)
    }
}

fn number(border: &str) -> Option<u32> {
    u32::from_str_radix(border.strip_prefix("0x")?, 16).ok()
}

fn written(border: u32) -> String {
    format!("{border:#010x}")
}

/// Number of bundles of a namespace.
#[must_use]
pub fn count_bundles(policies: &Policies) -> usize {
    let borders = policies
        .get("bundles")
        .and_then(|bundles| bundles.get("boundaries")?.as_array());
    borders.map_or(0, |borders| borders.len().saturating_sub(1))
}

/// Puts further borders into a namespace's; whether the range was one of its bundles.
fn put_borders(policies: &mut Policies, range: &BundleRange, borders: &[u32]) -> bool {
    let known = policies
        .get("bundles")
        .and_then(|bundles| bundles.get("boundaries")?.as_array());
    let mut all: Vec<Value> = known.cloned().unwrap_or_default();
    let is_it =
        |pair: &[Value]| pair.first() == Some(&json!(range.low)) && pair.last() == Some(&json!(range.high));
    let Some(at) = all.windows(2).position(is_it) else {
        return false;
    };
    let inner = borders.iter().map(|border| json!(written(*border)));
    drop(all.splice(at + 1..at + 1, inner));
    let count = all.len() - 1;
    policies.set("bundles", json!({"boundaries": all, "numBundles": count}));
    true
}

impl BundleRange {
    /// Cuts it, a bundle of the namespace, at `borders`, for every broker that hears of it. The namespace has at most `bundles_max`
    /// bundles then, whatever brokers cut at the same time.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`, `Store`; `NoBundle`: the range is none of the namespace's, or not any more; `BadBorders`;
    /// `InvalidBundles`: there would be too many.
    pub async fn cut(
        &self,
        catalog: &Catalog,
        name: &NamespaceName,
        borders: &[u32],
        bundles_max: u32,
    ) -> Result<(), NamespaceError> {
        if !self.can_be_cut_at(borders) {
            return Err(NamespaceError::BadBorders(self.to_string()));
        }
        let bundles_max = usize::try_from(bundles_max.min(BUNDLES_MAX)).unwrap_or(usize::MAX);
        let (is_cut, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
        // It may be called again, with what another broker wrote.
        let change = catalog.namespaces().update_policies(name, |policies| {
            let full = count_bundles(policies) + borders.len() > bundles_max;
            is_full.store(full, Ordering::Relaxed);
            is_cut.store(!full && put_borders(policies, self, borders), Ordering::Relaxed);
        });
        change.await?;
        if is_full.load(Ordering::Relaxed) {
            return Err(NamespaceError::InvalidBundles);
        }
        match is_cut.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(NamespaceError::NoBundle(self.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> BundleRange {
        BundleRange::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_range_is_cut_inside() {
        let whole = range("0x40000000_0x80000000");
        let parts = whole.cut_at(&[0x5000_0000, 0x6000_0000]);
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        let expected = [
            "0x40000000_0x50000000",
            "0x50000000_0x60000000",
            "0x60000000_0x80000000",
        ];
        assert_eq!(parts, expected);
        for bad in [
            &[][..],
            &[0x4000_0000],
            &[0x8000_0000],
            &[0x6000_0000, 0x5000_0000],
            &[0x5000_0000, 0x5000_0000],
        ] {
            assert!(!whole.can_be_cut_at(bad), "{bad:x?}");
        }
        for text in ["0x0_", "0x10_0x10", "a_b", "0x20_0x10", ""] {
            assert_eq!(BundleRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn borders_are_put_between_those_of_the_bundle() {
        let mut policies = Policies::first(&["c"], 2);
        assert!(put_borders(
            &mut policies,
            &range("0x80000000_0xffffffff"),
            &[0xc000_0000]
        ));
        let expected = json!({
            "boundaries": ["0x00000000", "0x80000000", "0xc0000000", "0xffffffff"], "numBundles": 3,
        });
        assert_eq!(policies.get("bundles"), Some(&expected));
        assert!(!put_borders(
            &mut policies,
            &range("0x80000000_0xffffffff"),
            &[0xc000_0000]
        ));
        assert_eq!(policies.get("bundles"), Some(&expected));
    }
}
