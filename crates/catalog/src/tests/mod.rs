//! The catalog over the memory store; reopening on the same store stands for a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_admin_api::{ClusterData, TenantInfo};
use pharos_metadata::Memory;
use pharos_types::{NamespaceName, TopicName};

use super::*;
use crate::known::TOPIC_EVENTS;

mod carriers;
mod clusters;
mod ensure;
mod follow;
mod lists;
mod places;
mod schemas;
mod topics;

/// True if policies of single topics can be changed.
const CHANGES_TOPIC_POLICIES: bool = true;

/// A catalog on a store that outlives it.
struct Bench {
    store: Arc<Memory>,
    options: CatalogOptions,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut CatalogOptions)) -> Self {
        let mut options = CatalogOptions::default();
        change(&mut options);
        Self {
            store: Arc::new(Memory::new()),
            options,
        }
    }

    /// Opens, or opens again.
    async fn open(&self) -> Catalog {
        let store: Arc<dyn MetadataStore> = Arc::<Memory>::clone(&self.store);
        Catalog::open(store, self.options.clone()).await.unwrap()
    }
}

fn topic(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn namespace(text: &str) -> NamespaceName {
    text.parse().unwrap()
}

fn no_properties() -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// The same tests, with the facts where Pulsar's brokers store them.
#[path = "."]
#[expect(clippy::duplicate_mod, reason = "the same behaviour in both layouts")]
mod in_pulsar_layout {
    use pharos_ledger::memory::MemoryEngine;

    use super::*;
    use crate::PulsarFacts;

    mod clusters;
    mod ensure;
    mod follow;
    mod lists;
    mod schemas;
    mod topics;

    const CHANGES_TOPIC_POLICIES: bool = false;

    /// As the other [`Bench`](super::Bench).
    struct Bench {
        store: Arc<PulsarFacts>,
        options: CatalogOptions,
    }

    impl Bench {
        fn new() -> Self {
            Self::with(|_| {})
        }

        fn with(change: impl FnOnce(&mut CatalogOptions)) -> Self {
            let mut options = CatalogOptions::default();
            change(&mut options);
            let facts = PulsarFacts::new(Arc::new(Memory::new()), Arc::new(MemoryEngine::new()));
            Self {
                store: Arc::new(facts),
                options,
            }
        }

        async fn open(&self) -> Catalog {
            let store: Arc<dyn MetadataStore> = Arc::<PulsarFacts>::clone(&self.store);
            Catalog::open(store, self.options.clone()).await.unwrap()
        }
    }
}
