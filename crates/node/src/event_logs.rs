//! The logs in which Pulsar's brokers keep policies of topics, for the catalog: managed ledgers as all others are.

use std::sync::Arc;

use bytes::Bytes;
use pharos_catalog::{EventLog, EventLogError, EventLogs, TakenEventLog};
use pharos_ledger::{FaultKind, LedgerEngine};
use pharos_managed_ledger::{
    AppendError, CloseError, ManagedLedger, OpenError, OpenMode, Options, storage_name,
};
use pharos_metadata::{BoxFuture, Fault, MetadataLayout, MetadataStore};
use pharos_runtime::clock;
use pharos_types::TopicName;

/// Opens them.
pub(crate) struct ManagedEventLogs {
    pub(crate) ledgers: Arc<dyn LedgerEngine>,
    pub(crate) metadata: Arc<dyn MetadataStore>,
}

impl EventLogs for ManagedEventLogs {
    fn open(&self, topic: &TopicName, may_create: bool) -> BoxFuture<'_, Result<TakenEventLog, Arc<Fault>>> {
        let options = Options {
            layout: MetadataLayout::Pulsar,
            ..Options::default()
        };
        let mode = match may_create {
            true => OpenMode::Create,
            false => OpenMode::Existing,
        };
        let name = storage_name(topic, options.layout);
        let (ledgers, metadata) = (Arc::clone(&self.ledgers), Arc::clone(&self.metadata));
        Box::pin(async move {
            let opened = ManagedLedger::open(&name, ledgers, metadata, options, mode, clock::wall_ms());
            match opened.await {
                Ok(ledger) => Ok(Some(Box::new(TakenLog(ledger)) as Box<dyn EventLog>)),
                Err(OpenError::NotFound(_)) => Ok(None),
                Err(error) => Err(fault(&error)),
            }
        })
    }
}

struct TakenLog(ManagedLedger);

impl EventLog for TakenLog {
    fn append(&mut self, entry: Bytes) -> BoxFuture<'_, Result<(u64, u64), EventLogError>> {
        let appended = self.0.append(entry);
        let mut durable = self.0.durable_watch();
        Box::pin(async move {
            let appended = appended.map_err(|error| match error {
                AppendError::Fenced => EventLogError::TakenOver,
                error => EventLogError::Failed(fault(&error)),
            })?;
            let reached = durable.reaches(appended.ordinal).await;
            reached.map_err(|error| match error.kind() {
                FaultKind::Fenced => EventLogError::TakenOver,
                _ => EventLogError::Failed(fault(&error)),
            })?;
            Ok((appended.position.ledger.0, appended.position.entry.0))
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let name = self.0.name().to_owned();
            match self.0.close().await {
                // Taken over by another one.
                Ok(()) | Err(CloseError::Ledger(pharos_ledger::AppendError::Fenced { .. })) => {}
                // Who opens it next recovers what this leaves open.
                Err(error) => {
                    let error = fault(&error);
                    tracing::warn!(log = name, %error, "a log of policies of topics was not closed");
                }
            }
        })
    }
}

/// An error and what it came of.
fn fault(error: &(dyn std::error::Error + 'static)) -> Arc<Fault> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let text: Vec<String> = causes.map(ToString::to_string).collect();
    Fault::new("append to a log of policies of topics", text.join(": "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use pharos_ledger::memory::MemoryEngine;
    use pharos_metadata::Memory;
    use pharos_types::{EntryId, LedgerId};

    use super::*;

    #[tokio::test]
    async fn a_log_has_one_writer_and_keeps_what_each_of_them_appended() {
        let (ledgers, metadata) = (Arc::new(MemoryEngine::new()), Arc::new(Memory::new()));
        let logs = ManagedEventLogs {
            ledgers: ledgers.clone(),
            metadata: metadata.clone(),
        };
        let topic: TopicName = "persistent://t/n/__change_events".parse().unwrap();
        assert!(logs.open(&topic, false).await.unwrap().is_none());
        let key = "managed-ledgers/t/n/persistent/__change_events";
        assert!(metadata.get(key).await.unwrap().is_none());

        let mut first = logs.open(&topic, true).await.unwrap().unwrap();
        let one = first.append(Bytes::from_static(b"one")).await.unwrap();
        let mut second = logs.open(&topic, false).await.unwrap().unwrap();
        let lost = first.append(Bytes::from_static(b"lost")).await;
        assert!(matches!(lost, Err(EventLogError::TakenOver)), "{lost:?}");
        first.close().await;
        let two = second.append(Bytes::from_static(b"two")).await.unwrap();
        assert!(one < two, "places rise");
        second.close().await;
        for ((ledger, entry), payload) in [(one, "one"), (two, "two")] {
            let found = ledgers.read(LedgerId(ledger), EntryId(entry), 10, 1 << 20).await;
            let found = found.unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].payload, payload);
        }
    }
}
