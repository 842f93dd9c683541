//! The attached producers of a topic, found by key and by name, and counted by what limits and access modes ask.
//!
//! Always true: the counts equal what a walk over the producers would give, so that no newcomer needs one.

use std::collections::HashMap;
use std::rc::Rc;

use pharos_feed::ids::{IdMap, ProducerKey};
use pharos_types::steps::{step, walk};

use super::hosts::{Hosts, host};
use super::producers::Producer;

/// The attached producers of a topic.
#[derive(Default)]
pub(super) struct AttachedProducers {
    by_key: IdMap<ProducerKey, Producer>,
    by_name: HashMap<Rc<str>, ProducerKey>,
    /// Producers with exclusive access.
    exclusive: usize,
    /// Producers of other clusters' replicators, which have no limit.
    replicators: usize,
    /// Addresses of all others.
    hosts: Hosts,
}

/// Number of producers that stay beside a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Others {
    /// All.
    pub(super) all: usize,
    /// Those with exclusive access.
    pub(super) exclusive: usize,
    /// Those that count for limits: all but replicators.
    pub(super) limited: usize,
    /// Of these, those of the newcomer's address.
    pub(super) of_host: usize,
}

impl AttachedProducers {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Producers of other clusters' replicators.
    pub(super) fn replicators(&self) -> usize {
        self.replicators
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Producer> {
        walk(self.by_key.values())
    }

    pub(super) fn get_mut(&mut self, key: ProducerKey) -> Option<&mut Producer> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Producer> {
        step();
        self.by_key.get(self.by_name.get(name)?)
    }

    /// Counts those that stay beside a newcomer from `address` that takes the place of `replaced`.
    pub(super) fn beside(&self, replaced: Option<ProducerKey>, address: &str) -> Others {
        step();
        let replaced = replaced.and_then(|key| self.by_key.get(&key));
        let is_limited = replaced.is_some_and(|producer| !producer.is_replicator());
        let is_exclusive = replaced.is_some_and(|producer| producer.access_mode.is_exclusive());
        let is_of_host =
            is_limited && replaced.is_some_and(|producer| host(&producer.info.address) == host(address));
        Others {
            all: self.len() - usize::from(replaced.is_some()),
            exclusive: self.exclusive - usize::from(is_exclusive),
            limited: self.len() - self.replicators - usize::from(is_limited),
            of_host: self.hosts.of(address) - usize::from(is_of_host),
        }
    }

    pub(super) fn insert(&mut self, producer: Producer) {
        self.remove(producer.key);
        self.by_name.insert(Rc::clone(&producer.name), producer.key);
        self.exclusive += usize::from(producer.access_mode.is_exclusive());
        match producer.is_replicator() {
            true => self.replicators += 1,
            false => self.hosts.add(&producer.info.address),
        }
        self.by_key.insert(producer.key, producer);
    }

    pub(super) fn remove(&mut self, key: ProducerKey) -> Option<Producer> {
        step();
        let producer = self.by_key.remove(&key)?;
        // A name that the broker gave may be one that a client chose: the newest of a name is found by it.
        if self.by_name.get(&producer.name) == Some(&key) {
            self.by_name.remove(&producer.name);
        }
        self.exclusive -= usize::from(producer.access_mode.is_exclusive());
        match producer.is_replicator() {
            true => self.replicators -= 1,
            false => self.hosts.remove(&producer.info.address),
        }
        if self.by_key.is_empty() {
            // Most topics have few, and then none for long.
            self.by_key.shrink_to_fit();
            self.by_name.shrink_to_fit();
        }
        Some(producer)
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Producer> + use<> {
        std::mem::take(self).by_key.into_values()
    }
}
