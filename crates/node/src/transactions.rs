//! Transaction coordinators of a broker.

use std::sync::Arc;

use anyhow::Context as _;
use pharos_broker::Broker;
use pharos_coordinators::{CoordinatorLimits, Transactions, stored_coordinators};
use pharos_metadata::MetadataStore;

use crate::settings::{Engine, Settings};

/// Transaction coordinators, or the error that clients receive instead.
pub(crate) type Offered = Result<Arc<Transactions>, &'static str>;

/// As Pulsar says it.
const OFF: &str = "Transactions are not enabled.";
const NOT_IN_A_CLUSTER: &str = "Transactions are not supported by a cluster of brokers over bookies.";

/// Number of coordinators: those that clients may use, and those of an earlier run, which may have transactions to
/// end.
pub(crate) async fn coordinators(settings: &Settings, metadata: &dyn MetadataStore) -> anyhow::Result<u32> {
    if settings.cluster.engine == Engine::BookKeeper {
        return Ok(0);
    }
    let stored = stored_coordinators(metadata)
        .await
        .map_err(anyhow::Error::msg)
        .context("cannot tell which transaction coordinators there are")?;
    Ok(stored.max(serving(settings)))
}

/// Opens them.
pub(crate) async fn open(settings: &Settings, broker: &Broker) -> anyhow::Result<Arc<Transactions>> {
    let settings_of = &settings.transactions;
    let limits = CoordinatorLimits {
        active_max: u64::from(settings_of.max_active_per_coordinator),
        active_of_role_max: u64::from(settings_of.max_active_per_role),
        timeout_max_ms: u64::try_from(settings_of.max_timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let opened = Transactions::open(broker, serving(settings), limits).await;
    opened.context("cannot open the transaction coordinators")
}

/// Transaction coordinators offered to clients.
pub(crate) fn offered(settings: &Settings, transactions: &Arc<Transactions>) -> Offered {
    if settings.cluster.engine == Engine::BookKeeper {
        return Err(NOT_IN_A_CLUSTER);
    }
    match settings.transactions.enabled {
        true => Ok(transactions.clone()),
        false => Err(OFF),
    }
}

fn serving(settings: &Settings) -> u32 {
    match settings.transactions.enabled {
        true => settings.transactions.coordinators,
        false => 0,
    }
}
