//! The policy that says on how many bookies messages are kept.

use std::sync::Arc;
use std::time::Duration;

use pharos_admin_api::{BookieAffinityGroupData, PersistencePolicies};
use pharos_ledger::{Affinity, Replication};
use serde_json::{Value, json};

use super::value::{PolicyValue, ToJson, millis};

/// Number of copies of a message, and the interval at which positions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// Interval at which positions are stored. The broker alone decides it.
    pub cursor_flush_interval: Duration,
    /// The bookies of a ledger; `None`: this broker keeps one copy on this machine.
    pub replication: Option<Replication>,
}

/// Bookies that a ledger can be spread over.
pub(super) const ENSEMBLE_MAX: usize = 64;

/// Returns the replication of a policy, if it is possible.
fn replication_of(policy: &PersistencePolicies) -> Option<Replication> {
    let count = |count: i32| usize::try_from(count).unwrap_or(0);
    let said = Replication {
        ensemble: count(policy.bookkeeper_ensemble),
        write_quorum: count(policy.bookkeeper_write_quorum),
        ack_quorum: count(policy.bookkeeper_ack_quorum),
    };
    let sizes = [1, said.ack_quorum, said.write_quorum, said.ensemble, ENSEMBLE_MAX];
    sizes.is_sorted().then_some(said)
}

impl Persistence {
    /// Stored positions a second, as the policy counts them.
    #[must_use]
    pub fn flushes_per_s(self) -> f64 {
        1000.0 / millis(self.cursor_flush_interval).max(1) as f64
    }

    /// True if copies can be kept as the policy requires, as far as this broker knows without a request to bookies.
    pub(super) fn can_keep(self, policy: &PersistencePolicies) -> bool {
        match self.replication {
            Some(_) => replication_of(policy).is_some(),
            None => replication_of(policy).is_some_and(|said| said.ensemble == 1),
        }
    }
}

impl PolicyValue for Persistence {
    type Json = PersistencePolicies;

    fn from_json(said: PersistencePolicies, broker: &Self) -> Self {
        let own = broker.replication;
        Self {
            replication: own.map(|own| replication_of(&said).unwrap_or(own)),
            ..*broker
        }
    }
}

impl ToJson for Persistence {
    fn to_json(&self) -> Option<Value> {
        let (ensemble, write, ack) = self.replication.map_or((1, 1, 1), |copies| {
            (copies.ensemble, copies.write_quorum, copies.ack_quorum)
        });
        Some(json!({
            "bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack,
            "managedLedgerMaxMarkDeleteRate": self.flushes_per_s(),
        }))
    }
}

/// The groups of bookies that keep a topic's entries; `None`: any bookie does.
pub type BookieAffinity = Option<Arc<Affinity>>;

/// The groups that a policy names.
#[must_use]
pub fn affinity_of(policy: &BookieAffinityGroupData) -> BookieAffinity {
    let groups = |names: &Option<String>| {
        let names = names.iter().flat_map(|names| names.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let said = Affinity {
        primary: groups(&policy.bookkeeper_affinity_group_primary),
        secondary: groups(&policy.bookkeeper_affinity_group_secondary),
    };
    (said != Affinity::default()).then(|| Arc::new(said))
}

impl PolicyValue for BookieAffinity {
    type Json = BookieAffinityGroupData;

    fn from_json(said: BookieAffinityGroupData, _: &Self) -> Self {
        affinity_of(&said)
    }
}

impl ToJson for BookieAffinity {
    fn to_json(&self) -> Option<Value> {
        let affinity = self.as_ref()?;
        let names = |groups: &[String]| (!groups.is_empty()).then(|| groups.join(","));
        Some(json!(BookieAffinityGroupData {
            bookkeeper_affinity_group_primary: names(&affinity.primary),
            bookkeeper_affinity_group_secondary: names(&affinity.secondary),
        }))
    }
}
