//! The subscriptions of a topic, by name, and what is asked about all of them for each newcomer or each entry.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;

use pharos_types::SubscriptionName;
use pharos_types::steps::{step, walk};

use super::subscription::{Body, Subscription};

/// The subscriptions of a topic. Reads as the map that it holds.
#[derive(Default)]
pub(crate) struct Subscriptions {
    /// Boxed: most topics have one, and a table has room for three.
    by_name: HashMap<SubscriptionName, Box<Subscription>>,
    /// Number of durable ones; a subscription never changes in this.
    durable: usize,
    /// Those that a dispatcher may have work for: all whose body is one, and maybe some whose body was one.
    dispatched: HashSet<SubscriptionName>,
}

impl Deref for Subscriptions {
    type Target = HashMap<SubscriptionName, Box<Subscription>>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl Subscriptions {
    /// Number of durable ones.
    pub(super) fn durable(&self) -> usize {
        step();
        self.durable
    }

    pub(super) fn get_mut(&mut self, name: &SubscriptionName) -> Option<&mut Box<Subscription>> {
        self.by_name.get_mut(name)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Subscription> {
        walk(self.by_name.values()).map(|subscription| &**subscription)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SubscriptionName> {
        walk(self.by_name.keys())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SubscriptionName, &Subscription)> {
        walk(self.by_name.iter()).map(|(name, subscription)| (name, &**subscription))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Box<Subscription>> {
        walk(self.by_name.values_mut())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&SubscriptionName, &mut Box<Subscription>)> {
        walk(self.by_name.iter_mut())
    }

    pub(super) fn insert(&mut self, name: SubscriptionName, subscription: Box<Subscription>) {
        self.remove(&name);
        self.durable += usize::from(subscription.is_durable());
        self.by_name.insert(name, subscription);
    }

    pub(super) fn remove(&mut self, name: &SubscriptionName) -> Option<Box<Subscription>> {
        step();
        self.dispatched.remove(name);
        let gone = self.by_name.remove(name)?;
        self.durable -= usize::from(gone.is_durable());
        Some(gone)
    }

    /// A subscription has got a dispatcher, or has rested.
    pub(super) fn note_body(&mut self, name: &SubscriptionName) {
        step();
        let is_dispatched = |subscription: &Subscription| matches!(subscription.body, Body::Dispatched(_));
        if self
            .by_name
            .get(name)
            .is_some_and(|subscription| is_dispatched(subscription))
        {
            if !self.dispatched.contains(name) {
                self.dispatched.insert(name.clone());
            }
        } else {
            self.dispatched.remove(name);
        }
    }

    /// The names of those with a dispatcher.
    pub(super) fn dispatched(&self) -> Vec<SubscriptionName> {
        walk(self.dispatched.iter()).cloned().collect()
    }
}
