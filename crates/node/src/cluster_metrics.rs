//! Metrics of a cluster's BookKeeper client and metadata store, under the names that Pulsar dashboards use.
//!
//! Pulsar exposes the BookKeeper client with `bookkeeperClientExposeStatsToPrometheus`; here it is always exposed, at
//! negligible cost.

use std::sync::Arc;

use pharos_bookkeeper::{Figures, Operation};
use pharos_broker_admin::{MetricFamily, MetricKind, MetricSample};
use pharos_metadata::Measured;
use pharos_runtime::Histogram;

use crate::storage_metrics::family;

fn name_of(operation: Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::Add => (
            "pulsar_managedLedger_client_bookkeeper_client_ADD_ENTRY",
            "Milliseconds from an append to its ack quorum.",
        ),
        Operation::Read => (
            "pulsar_managedLedger_client_bookkeeper_client_READ_ENTRY",
            "Milliseconds of a read of entries from bookies.",
        ),
        Operation::Create => (
            "pulsar_managedLedger_client_bookkeeper_client_LEDGER_CREATE",
            "Milliseconds of making a ledger.",
        ),
        Operation::Delete => (
            "pulsar_managedLedger_client_bookkeeper_client_LEDGER_DELETE",
            "Milliseconds of deleting a ledger.",
        ),
        Operation::Recover => (
            "pulsar_managedLedger_client_bookkeeper_client_LEDGER_RECOVER",
            "Milliseconds of fencing a ledger and sealing its end.",
        ),
    }
}

fn durations(labels: Vec<(&'static str, String)>, histogram: Histogram) -> MetricSample {
    MetricSample::Durations { labels, histogram }
}

/// Metrics of the BookKeeper client.
pub(crate) fn bookkeeper(figures: &Figures) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for it in &figures.operations {
        let (name, help) = name_of(it.operation);
        let success = |is: &str| vec![("success", is.to_owned())];
        families.push(MetricFamily {
            name,
            help,
            kind: MetricKind::Summary,
            samples: vec![
                durations(success("true"), it.succeeded.clone()),
                durations(success("false"), it.failed.clone()),
            ],
        });
    }
    families.extend([
        family(
            "pulsar_managedLedger_client_bookkeeper_client_NUM_ENSEMBLE_CHANGE",
            "Times that bookies of a ledger that is written were exchanged.",
            MetricKind::Counter,
            figures.ensemble_changes,
        ),
        family(
            "pharos_bookkeeper_refused_adds_total",
            "Entries that a bookie which was asked to store them did not, in time or at all.",
            MetricKind::Counter,
            figures.refused_adds,
        ),
        family(
            "pharos_bookkeeper_pending_bytes",
            "Bytes of entries that wait for their ack quorum.",
            MetricKind::Gauge,
            figures.pending_bytes,
        ),
    ]);
    families
}

/// Metrics of metadata stores, each with its name.
pub(crate) fn metadata(stores: &[(&'static str, &Arc<Measured>)]) -> [MetricFamily; 2] {
    let (mut latencies, mut bytes) = (Vec::new(), Vec::new());
    for (name, store) in stores {
        for (asked, latency) in store.latencies() {
            let status = if asked.is_ok { "success" } else { "fail" };
            let labels = vec![
                ("name", (*name).to_owned()),
                ("type", asked.kind.to_owned()),
                ("status", status.to_owned()),
            ];
            latencies.push(durations(labels, latency));
        }
        #[expect(clippy::cast_precision_loss, reason = "the page has floating point only")]
        bytes.push(MetricSample::Value {
            labels: vec![("name", (*name).to_owned())],
            value: store.put_bytes() as f64,
        });
    }
    [
        MetricFamily {
            name: "pulsar_metadata_store_ops_latency_ms",
            help: "Milliseconds of requests to the metadata store.",
            kind: MetricKind::MillisecondHistogram,
            samples: latencies,
        },
        MetricFamily {
            name: "pulsar_metadata_store_put_bytes_total",
            help: "Bytes of values put into the metadata store.",
            kind: MetricKind::Counter,
            samples: bytes,
        },
    ]
}

#[cfg(test)]
mod tests {
    use pharos_bookkeeper::OperationFigures;
    use pharos_metadata::{Expect, Memory, MetadataStore as _};

    use super::*;

    #[tokio::test]
    async fn what_is_counted_is_shown_under_the_names_of_pulsar() {
        let mut succeeded = Histogram::default();
        succeeded.record(2_000_000);
        let figures = Figures {
            operations: Operation::ALL
                .map(|operation| OperationFigures {
                    operation,
                    succeeded: succeeded.clone(),
                    failed: Histogram::default(),
                })
                .into(),
            ensemble_changes: 3,
            refused_adds: 4,
            pending_bytes: 5,
        };
        let shown = bookkeeper(&figures);
        assert_eq!(shown.len(), 8);
        for (family, operation) in shown.iter().zip(Operation::ALL) {
            assert!(family.name.ends_with(operation.as_str()), "{}", family.name);
            assert_eq!(family.samples.len(), 2);
        }
        let store = Arc::new(Measured::new(Arc::new(Memory::new())));
        assert!(store.put("a/b", "1234".into(), Expect::Any).await.is_ok());
        let [latencies, bytes] = metadata(&[("metadata-store", &store)]);
        assert_eq!(latencies.samples.len(), 6);
        assert!(
            matches!(&bytes.samples[..], [MetricSample::Value { value, .. }] if (value - 4.0).abs() < 1e-9)
        );
    }
}
