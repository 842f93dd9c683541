//! Totals of topics that are no longer loaded: sums over all topics must not fall when one is unloaded.
//!
//! Owned by the shard that had the topics. One row per namespace; rows of deleted namespaces are merged.

use std::collections::HashMap;

use pharos_types::NamespaceName;

use super::{HomeStages, PastTotals, Topic};

/// The totals of topics that were let go.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// By namespace.
    pub namespaces: HashMap<NamespaceName, PastTotals>,
    /// Totals of namespaces that do not exist any more.
    pub gone: PastTotals,
    /// The stages that their messages went through.
    pub stages: HomeStages,
}

impl Past {
    /// Takes over what a topic counted. Its stream consumers have left.
    pub fn add(&mut self, topic: &Topic) {
        let state = topic.state.borrow();
        let counters = &state.stored.publishing.counters;
        let totals = PastTotals {
            messages_in: counters.messages_in,
            bytes_in: counters.bytes_in,
            messages_out: state.attached.sent.messages,
            bytes_out: state.attached.sent.bytes,
            throttled: state.stored.publishing.throttle.times,
            evictions: [
                state.stored.backlog.evictions.by_size,
                state.stored.backlog.evictions.by_age,
            ],
        };
        self.stages.merge(&state.stored.publishing.stages);
        let namespace = topic.cx.name.namespace();
        match self.namespaces.get_mut(namespace) {
            Some(sum) => sum.add(&totals),
            None => drop(self.namespaces.insert(namespace.clone(), totals)),
        }
    }

    /// Puts those together whose namespace is gone.
    pub fn keep(&mut self, exists: impl Fn(&NamespaceName) -> bool) {
        let gone = &mut self.gone;
        self.namespaces.retain(|namespace, totals| {
            let is_there = exists(namespace);
            if !is_there {
                gone.add(totals);
            }
            is_there
        });
    }
}
