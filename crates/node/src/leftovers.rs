//! Deleting what a crash kept from being deleted, while the broker runs.
//!
//! Here and nowhere else, because here it is known that the engine is the embedded one: it belongs to this broker alone. Ledgers
//! of an engine that others use must not be told from garbage by what one broker's metadata says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pharos_broker_admin::{MetricFamily, MetricKind};
use pharos_ledger::LedgerEngine;
use pharos_managed_ledger::{CleanUpError, Leftovers};
use pharos_metadata::{MatchesLedgers, MetadataStore};
use pharos_storage::Storage;
use tokio::task::JoinSet;

use crate::storage_metrics::family;

/// A clean-up that failed is begun again after this, then after twice as long, and so on.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Results of clean-ups, for the metrics page.
#[derive(Debug, Default)]
pub(crate) struct CleanUpCounters {
    ledgers: AtomicU64,
    unnamed: AtomicU64,
}

impl CleanUpCounters {
    /// Metric families, one per counter.
    pub(crate) fn families(&self) -> [MetricFamily; 2] {
        [
            family(
                "pharos_storage_leftover_ledgers_deleted_total",
                "Ledgers of an earlier run that a crash had kept from being deleted, deleted since the start.",
                MetricKind::Counter,
                self.ledgers.load(Ordering::Relaxed),
            ),
            family(
                "pharos_storage_unnamed_ledgers",
                "Ledgers that no topic names and that stay, as of the start; pharos storage check lists them.",
                MetricKind::Gauge,
                self.unnamed.load(Ordering::Relaxed),
            ),
        ]
    }
}

/// Looks at what there is, before any topic is opened, and deletes the leftovers from `tasks`; never what `proof` does not cover.
///
/// # Errors
/// Engine or metadata cannot be read.
pub(crate) async fn begin(
    engine: Arc<Storage>,
    metadata: Arc<dyn MetadataStore>,
    proof: MatchesLedgers,
    tasks: &mut JoinSet<()>,
) -> Result<Arc<CleanUpCounters>, CleanUpError> {
    let mut left = Leftovers::find(&*engine, &*metadata, proof).await?;
    let counters = Arc::new(CleanUpCounters::default());
    let told = Arc::clone(&counters);
    tasks.spawn(async move {
        let mut pause = PAUSE_MIN;
        while let Err(error) = clean_up(&mut left, &*engine, &*metadata, &told).await {
            let error = anyhow::Error::new(error);
            tracing::warn!(
                error = format!("{error:#}"),
                ?pause,
                "deleting what an earlier run left is tried again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    });
    Ok(counters)
}

async fn clean_up(
    left: &mut Leftovers,
    engine: &dyn LedgerEngine,
    metadata: &dyn MetadataStore,
    counters: &CleanUpCounters,
) -> Result<(), CleanUpError> {
    let done = left.clean_up(engine, metadata).await?;
    counters.ledgers.store(done.ledgers, Ordering::Relaxed);
    counters.unnamed.store(done.unnamed, Ordering::Relaxed);
    if done.ledgers > 0 {
        tracing::info!(
            ledgers = done.ledgers,
            "deleted ledgers that an earlier run had given up"
        );
    }
    if done.unnamed > 0 {
        tracing::warn!(
            ledgers = done.unnamed,
            "there are ledgers that no topic names; they stay, pharos storage check lists them"
        );
    }
    Ok(())
}
