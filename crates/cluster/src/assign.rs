//! Assignment of a bundle without an owner: to the least loaded of the allowed brokers, whichever is asked.
//!
//! Another broker is notified by a note, as in a bundle transfer ([`handover`](crate::handover)). The loop of
//! [`run`](BundleOwnership::run) puts the note and removes it, when the bundle has an owner or has waited for too
//! long: a caller that goes away leaves none.

use pharos_metadata::{Expect, SessionWriteError, WriteError};
use pharos_runtime::clock;
use pharos_types::{NamespaceName, hash};
use std::collections::HashMap;
use std::time::Duration;

use crate::balance::{LoadedBroker, least_loaded};
use crate::bundles::PREFIX;
use crate::handover::{Handover, NOTES, TAKEN_MAX};
use crate::keys::Keys;
use crate::{BundleOwnership, Owner, OwnershipError};

/// Says which of some brokers may have bundles of a namespace; `None`: any of them. It must not wait.
pub type CandidatesOf = Box<dyn Fn(&NamespaceName, &[String]) -> Option<Vec<String>> + Send + Sync>;

/// Says which bundles are better at other brokers than a bundle, all as `<tenant>/<namespace>/<range>`; it must not wait.
pub type ApartFrom = Box<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// A bundle that another broker is to take.
pub(crate) struct Assigned {
    to: String,
    /// Time since which its note exists.
    noted_at: Option<clock::Nanos>,
}

/// Assignment of bundles without an owner.
pub(crate) struct Placing<'a>(pub(crate) &'a BundleOwnership);

impl Placing<'_> {
    /// Returns those of `brokers` that may have a bundle `<tenant>/<namespace>/<range>`; if it has an anti-affinity
    /// to others, those that have none of them, if there are any.
    pub(crate) fn allowed(&self, bundle: &str, brokers: &[String]) -> Vec<String> {
        let named = self.named(bundle, brokers);
        let free = self.free_of(bundle, &named);
        if free.is_empty() { named } else { free }
    }

    /// Returns those of `brokers` that have none of the bundles to which `bundle` has an anti-affinity.
    fn free_of(&self, bundle: &str, brokers: &[String]) -> Vec<String> {
        let others = self.0.apart_from.get().map(|of| of(bundle)).unwrap_or_default();
        if others.is_empty() {
            return brokers.to_vec();
        }
        let state = self.0.lock();
        let has_one = |id: &String| {
            others.iter().any(|other| {
                let key = format!("{PREFIX}{other}");
                let is_ours = state.ours.contains_key(&key) && self.0.id() == Some(id);
                let is_its = state
                    .others
                    .get(&key)
                    .is_some_and(|owner| owner.broker_id() == id);
                // On its way there.
                is_ours
                    || is_its
                    || state
                        .assigned
                        .get(&key)
                        .is_some_and(|assigned| assigned.to == *id)
            })
        };
        brokers.iter().filter(|id| !has_one(id)).cloned().collect()
    }

    /// Returns those of `brokers` that may have a bundle by the isolation rules.
    fn named(&self, bundle: &str, brokers: &[String]) -> Vec<String> {
        let namespace = bundle
            .rsplit_once('/')
            .and_then(|(namespace, _)| namespace.parse().ok());
        let named = match (self.0.candidates.get(), namespace) {
            (Some(candidates), Some(namespace)) => candidates(&namespace, brokers),
            _ => None,
        };
        named.unwrap_or_else(|| brokers.to_vec())
    }

    /// Gets a bundle an owner, if it has none. A part of one of our bundles is to be ours: it is cut.
    pub(crate) async fn place_bundle(&self, key: String) -> Result<Owner, OwnershipError> {
        let is_part = self.0.lock().ours.keys().any(|whole| is_part_of(&key, whole));
        if is_part {
            return Keys(self.0).take(key).await;
        }
        self.place(key).await
    }

    /// Gets a bundle an owner, if it has none.
    pub(crate) async fn place(&self, key: String) -> Result<Owner, OwnershipError> {
        let to = self.other_for(&key)?;
        self.place_at(key, to).await
    }

    /// The broker that is to take a bundle; `None`: this one, or it has an owner.
    fn other_for(&self, key: &str) -> Result<Option<String>, OwnershipError> {
        if self.0.owner_of_key(key) != Owner::Unowned {
            return Ok(None);
        }
        self.least_for(key)
    }

    /// Gets a bundle an owner, if it has none: the broker that is named, or this one.
    async fn place_at(&self, key: String, to: Option<String>) -> Result<Owner, OwnershipError> {
        let Some(to) = to else {
            return Keys(self.0).take(key).await;
        };
        let mut changes = self.0.changes.subscribe();
        self.0
            .lock()
            .assigned
            .entry(key.clone())
            .or_insert(Assigned { to, noted_at: None });
        self.0.wanted.notify_one();
        let owned = async {
            loop {
                changes.mark_unchanged();
                match self.0.owner_of_key(&key) {
                    Owner::Unowned => {}
                    owner => return Some(owner),
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        let owner = tokio::time::timeout(TAKEN_MAX, owned).await;
        let late = OwnershipError::NotReady("the broker that is to have the bundle has not taken it");
        owner.ok().flatten().ok_or(late)
    }

    /// Gets a bundle an owner that is not this broker, if it has none and there is another that may have it. `turn`: bundles that are dealt
    /// together come to all brokers in turn, this one last.
    pub(crate) async fn place_apart(&self, key: String, turn: u32) -> Result<Owner, OwnershipError> {
        match self.0.owner_of_key(&key) {
            Owner::Unowned => {}
            owner => return Ok(owner),
        }
        let to = self.apart(&key, turn);
        self.place_at(key, to).await
    }

    /// The broker that `turn` comes to; `None`: this one.
    fn apart(&self, key: &str, turn: u32) -> Option<String> {
        let us = self.0.id()?;
        let mut others: Vec<String> = self.0.lock().brokers.iter().cloned().collect();
        others.retain(|id| id != us);
        let bundle = key.strip_prefix(PREFIX).unwrap_or(key);
        let named = self.named(bundle, &others);
        let free = self.free_of(bundle, &named);
        // Where all have one, this broker is one of them.
        let all = named.len() + 1;
        let (mut others, places) = match free.len() {
            0 => (named, all),
            places => (free, places),
        };
        // Each topic begins with another one, so that many topics come to all of them.
        let of_topic = key.rsplit_once('/').map_or(key, |(_, bundle)| bundle);
        let of_topic = of_topic.splitn(3, '_').last().unwrap_or(of_topic);
        others.sort_by_cached_key(|id| hash::bundle_hash(&format!("{id} {of_topic}")));
        let place = usize::try_from(turn.saturating_sub(1)).unwrap_or(0) % places;
        others.into_iter().nth(place)
    }

    /// Puts notes for what others are to take, and takes away those that are done.
    pub(crate) async fn note_assigned(&self) {
        let (begun, done) = {
            let state = self.0.lock();
            let is_over = |at: clock::Nanos| Duration::from_nanos(clock::now().since(at)) >= TAKEN_MAX;
            let mut begun = Vec::new();
            let mut done = Vec::new();
            for (key, assigned) in &state.assigned {
                let is_owned = state.ours.contains_key(key) || state.others.contains_key(key);
                match assigned.noted_at {
                    None => begun.push((key.clone(), assigned.to.clone())),
                    Some(at) if is_owned || is_over(at) => done.push(key.clone()),
                    Some(_) => {}
                }
            }
            (begun, done)
        };
        for key in done {
            self.0.lock().assigned.remove(&key);
            Handover(self.0)
                .end(key.strip_prefix(PREFIX).unwrap_or(&key))
                .await;
        }
        let session = self.0.lock().session.clone();
        for (key, to) in begun {
            let note = format!("{NOTES}{}", key.strip_prefix(PREFIX).unwrap_or(&key));
            let put = match &session {
                Some(session) => session.put(&note, to.into(), Expect::Absent).await.map(drop),
                None => continue,
            };
            let mut state = self.0.lock();
            match put {
                Ok(()) => {
                    if let Some(assigned) = state.assigned.get_mut(&key) {
                        assigned.noted_at = Some(clock::now());
                    }
                }
                Err(error) => {
                    state.assigned.remove(&key);
                    // Another broker that was asked is at it.
                    if !matches!(error, SessionWriteError::Write(WriteError::Conflict { .. })) {
                        tracing::warn!(key, %error, "a bundle is not given to the broker that is to have it");
                    }
                }
            }
        }
    }

    /// The other broker that should have a bundle by what all of them carry; `None`: this one.
    pub(crate) fn least_for(&self, key: &str) -> Result<Option<String>, OwnershipError> {
        let Some(us) = self.0.id() else {
            return Ok(None);
        };
        let mut brokers: Vec<String> = self.0.lock().brokers.iter().cloned().collect();
        if !brokers.iter().any(|broker| broker == us) {
            brokers.push(us.to_owned());
        }
        let allowed = self.allowed(key.strip_prefix(PREFIX).unwrap_or(key), &brokers);
        let options = self.0.lock().loads.options;
        if !options.enabled && allowed.iter().any(|broker| broker == us) {
            return Ok(None);
        }
        let state = self.0.lock();
        let mut bundles: HashMap<&str, usize> = [(us, state.ours.len())].into();
        for other in state.others.values() {
            *bundles.entry(other.broker_id()).or_default() += 1;
        }
        // Those that are on their way count as there.
        for (key, assigned) in &state.assigned {
            if !state.others.contains_key(key) {
                *bundles.entry(&assigned.to).or_default() += 1;
            }
        }
        let mut candidates = Vec::new();
        for id in &allowed {
            candidates.push(LoadedBroker {
                id,
                bundles: bundles.get(id.as_str()).copied().unwrap_or_default(),
                report: state.loads.reports.get(id),
            });
        }
        let least = least_loaded(&candidates, us, &options);
        let none = OwnershipError::NotReady("no broker is there that may have the bundle");
        let least = least.ok_or(none)?;
        Ok((least != us).then(|| least.to_owned()))
    }
}

/// True if a bundle is inside another one of its namespace.
fn is_part_of(key: &str, whole: &str) -> bool {
    let (Some((of, part)), Some((namespace, whole))) = (key.rsplit_once('/'), whole.rsplit_once('/')) else {
        return false;
    };
    // The borders of all bundles are written with as many digits.
    match (part.split_once('_'), whole.split_once('_')) {
        (Some((low, high)), Some((from, to))) => of == namespace && from <= low && high <= to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_part_of;

    #[test]
    fn a_part_of_a_bundle_is_of_its_namespace_and_inside() {
        let whole = "namespace/t/n/0x40000000_0x80000000";
        let is = |key: &str| is_part_of(key, whole);
        assert!(is("namespace/t/n/0x40000000_0x60000000"));
        assert!(is("namespace/t/n/0x60000000_0x80000000"));
        assert!(!is("namespace/t/n/0x60000000_0x80000001"));
        assert!(!is("namespace/t/n/0x00000000_0x60000000"));
        assert!(!is("namespace/t/o/0x40000000_0x60000000"));
        assert!(!is(""));
    }
}
