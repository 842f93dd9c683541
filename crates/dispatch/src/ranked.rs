//! A sorted set that finds the item at a place, and the place of an item, in logarithmic time.
//!
//! A weight-balanced tree: every node knows how many items are below it. Neither side of a node weighs more than three times
//! the other, so a search looks at a few nodes for each doubling of the set, whatever the order in which items came.

use std::cmp::Ordering;
use std::ops::{Deref, DerefMut};

use pharos_types::steps::step;

/// The most that one side of a node may weigh, as a multiple of the other.
const WEIGHT_RATIO_MAX: usize = 3;
/// A side that is too heavy is turned twice when its inner half weighs at least this multiple of the outer.
const INNER_RATIO: usize = 2;

#[derive(Debug)]
struct RankedNode<T> {
    item: T,
    len: usize,
    left: Tree<T>,
    right: Tree<T>,
}

/// A subtree.
#[derive(Debug)]
struct Tree<T>(Option<Box<RankedNode<T>>>);

/// The set.
#[derive(Debug)]
pub(super) struct Ranked<T>(Tree<T>);

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self(Tree(None))
    }
}

impl<T> Deref for Tree<T> {
    type Target = Option<Box<RankedNode<T>>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> DerefMut for Tree<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T> RankedNode<T> {
    fn count(&mut self) {
        self.len = self.left.len() + self.right.len() + 1;
    }
}

impl<T> Tree<T> {
    fn len(&self) -> usize {
        self.as_ref().map_or(0, |node| node.len)
    }

    fn weight(&self) -> usize {
        self.len() + 1
    }

    /// The right child becomes the root.
    fn turn_left(&mut self) {
        if let Some(mut root) = self.take()
            && let Some(mut right) = root.right.take()
        {
            root.right = Tree(right.left.take());
            root.count();
            right.left = Tree(Some(root));
            right.count();
            *self = Tree(Some(right));
        }
    }

    /// The left child becomes the root.
    fn turn_right(&mut self) {
        if let Some(mut root) = self.take()
            && let Some(mut left) = root.left.take()
        {
            root.left = Tree(left.right.take());
            root.count();
            left.right = Tree(Some(root));
            left.count();
            *self = Tree(Some(left));
        }
    }

    /// Makes good what one insertion or removal below did to the balance of this node.
    fn balance(&mut self) {
        let Some(node) = self.as_deref_mut() else {
            return;
        };
        node.count();
        let (left, right) = (node.left.weight(), node.right.weight());
        if right > WEIGHT_RATIO_MAX * left {
            if let Some(child) = node.right.as_deref()
                && child.left.weight() >= INNER_RATIO * child.right.weight()
            {
                node.right.turn_right();
            }
            self.turn_left();
        } else if left > WEIGHT_RATIO_MAX * right {
            if let Some(child) = node.left.as_deref()
                && child.right.weight() >= INNER_RATIO * child.left.weight()
            {
                node.left.turn_left();
            }
            self.turn_right();
        }
    }

    fn pop_first(&mut self) -> Option<T> {
        step();
        let node = self.as_deref_mut()?;
        if let Some(first) = node.left.pop_first() {
            self.balance();
            return Some(first);
        }
        let RankedNode { item, right, .. } = *self.take()?;
        *self = right;
        Some(item)
    }

    /// Takes the root out.
    fn take_root(&mut self) {
        let Some(mut root) = self.take() else { return };
        if let Some(next) = root.right.pop_first() {
            root.item = next;
            *self = Tree(Some(root));
            self.balance();
        } else {
            *self = Tree(root.left.take());
        }
    }
}

impl<T: Ord> Tree<T> {
    fn insert(&mut self, item: T) -> bool {
        step();
        let Some(node) = self.as_deref_mut() else {
            *self = Tree(Some(Box::new(RankedNode {
                item,
                len: 1,
                left: Tree(None),
                right: Tree(None),
            })));
            return true;
        };
        let is_new = match item.cmp(&node.item) {
            Ordering::Less => node.left.insert(item),
            Ordering::Equal => false,
            Ordering::Greater => node.right.insert(item),
        };
        self.balance();
        is_new
    }

    fn remove(&mut self, item: &T) -> bool {
        step();
        let Some(node) = self.as_deref_mut() else {
            return false;
        };
        let was_there = match item.cmp(&node.item) {
            Ordering::Less => node.left.remove(item),
            Ordering::Greater => node.right.remove(item),
            Ordering::Equal => {
                self.take_root();
                return true;
            }
        };
        self.balance();
        was_there
    }
}

impl<T: Ord> Ranked<T> {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an item. Returns false if it was there.
    pub(super) fn insert(&mut self, item: T) -> bool {
        self.0.insert(item)
    }

    /// Removes an item. Returns whether it was there.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        self.0.remove(item)
    }

    /// The item at a place of the sorted order, from 0.
    pub(super) fn get(&self, mut place: usize) -> Option<&T> {
        let mut tree = &self.0;
        while let Some(node) = tree.as_deref() {
            step();
            let before = node.left.len();
            match place.cmp(&before) {
                Ordering::Less => tree = &node.left,
                Ordering::Equal => return Some(&node.item),
                Ordering::Greater => {
                    place -= before + 1;
                    tree = &node.right;
                }
            }
        }
        None
    }

    /// Number of items for which `is_before` holds: those at the front of the sorted order.
    pub(super) fn count_before(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let (mut tree, mut count) = (&self.0, 0);
        while let Some(node) = tree.as_deref() {
            step();
            if is_before(&node.item) {
                count += node.left.len() + 1;
                tree = &node.right;
            } else {
                tree = &node.left;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pharos_types::steps;

    use super::*;

    fn check<T>(tree: &Tree<T>) -> usize {
        let Some(node) = tree.as_deref() else { return 0 };
        let (left, right) = (check(&node.left), check(&node.right));
        assert_eq!(node.len, left + right + 1);
        assert!(left < WEIGHT_RATIO_MAX * (right + 1) + 1 && right < WEIGHT_RATIO_MAX * (left + 1) + 1);
        node.len
    }

    #[test]
    fn it_does_what_a_sorted_list_does() {
        let (mut ranked, mut model) = (Ranked::default(), BTreeSet::new());
        let mut random: u32 = 7;
        for round in 0..4_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let item = (random >> 16) % 512;
            match (random >> 8) % 5 < if round < 2_000 { 3 } else { 2 } {
                true => assert_eq!(ranked.insert(item), model.insert(item)),
                false => assert_eq!(ranked.remove(&item), model.remove(&item)),
            }
            assert_eq!(check(&ranked.0), model.len());
            assert_eq!(
                ranked.count_before(|other| *other < item),
                model.range(..item).count()
            );
            let place = (random >> 4) as usize % 512;
            assert_eq!(ranked.get(place), model.iter().nth(place));
        }
    }

    #[test]
    fn sorted_arrivals_do_not_unbalance_it() {
        let mut ranked = Ranked::default();
        for item in 0..10_000 {
            ranked.insert(item);
        }
        let before = steps::taken();
        assert_eq!(ranked.get(9_999), Some(&9_999));
        assert!(ranked.remove(&0) && ranked.insert(0));
        assert!(steps::taken() - before < 120, "{}", steps::taken() - before);
    }
}
