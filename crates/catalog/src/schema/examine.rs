//! Parsing and comparison of schemas: inline for small ones, else on a separate thread.
//!
//! A shard has clients that wait while it works. Definitions of common size take microseconds; those of half a
//! megabyte take a tenth of a second, so they leave the shard, and run one at a time so that a client with many of
//! them takes one core at most.

use pharos_runtime::run_blocking;

use super::SchemaCompatibilityStrategy;
use super::compat::check_compatible;
use super::history::History;
use super::registry::{SchemaError, Schemas, refusal};
use super::types::{SchemaInfo, SchemaVersion};
use super::validate::validate;

/// Definitions of so many bytes together are looked at where they are asked about.
const AT_ONCE_BYTES_MAX: usize = 32 << 10;

impl Schemas<'_> {
    /// Runs `work`, which looks at definitions of `bytes` together.
    ///
    /// Cancel safety: work that was begun on another thread goes on; its result is dropped.
    async fn examine<T: Send + 'static>(
        self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, SchemaError> + Send + 'static,
    ) -> Result<T, SchemaError> {
        if bytes <= AT_ONCE_BYTES_MAX {
            return work();
        }
        let _turn = self.catalog.inner.schemas.turn().await;
        match run_blocking(work).await {
            Some(outcome) => outcome,
            None => Err(refusal("the schemas could not be compared")),
        }
    }

    /// Validates `schema` and finds the version of `history` that says the same.
    pub(super) async fn look_up(
        self,
        history: std::sync::Arc<History>,
        schema: &SchemaInfo,
    ) -> Result<Option<SchemaVersion>, SchemaError> {
        let schema = schema.clone();
        self.examine(schema.bytes() + history.live_bytes(), move || {
            validate(&schema)?;
            Ok(history.find(&schema).map(|entry| entry.version))
        })
        .await
    }

    /// Validates `schema` and decides whether it may follow the versions of `history`.
    pub(super) async fn check_follows(
        self,
        history: std::sync::Arc<History>,
        schema: &SchemaInfo,
        strategy: SchemaCompatibilityStrategy,
    ) -> Result<(), SchemaError> {
        let schema = schema.clone();
        self.examine(schema.bytes() + history.live_bytes(), move || {
            validate(&schema)?;
            let live = history.live().iter().map(|entry| &entry.schema);
            check_compatible(strategy, live, &schema)?;
            Ok(())
        })
        .await
    }
}
