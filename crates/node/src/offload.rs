//! Tiered storage: from settings to an offloader, and what it says of itself for the metrics page.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use pharos_broker::OffloadLimits;
use pharos_broker_admin::{MetricFamily, MetricKind, MetricSample};
use pharos_ledger::offload::{LedgerOffloader as _, OffloadPolicy, OffloadTarget, ReadFirst};
use pharos_offload::{Encryption, Offloader, Options, Stats, drivers};
use pharos_runtime::Histogram;

use crate::settings::{ByteSize, OffloadSettings, ReadPriority, ServerSideEncryption};

/// Starts the offloader. There always is one, also without a driver: what was offloaded earlier must be readable, and
/// namespaces may name drivers of their own.
///
/// # Errors
/// The driver is not known, lacks a setting, or the system refuses a thread.
pub(crate) fn start(settings: &OffloadSettings) -> anyhow::Result<Arc<Offloader>> {
    let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
    let options = Options {
        block_bytes: bytes(settings.max_block_size),
        read_bytes: settings.read_buffer_size.0,
        uploads_max: settings.max_threads as usize,
        reads_max: settings.read_threads as usize,
        buffer_bytes_max: bytes(settings.read_cache_size),
        folders_in: folder(settings)?,
        encryption: match settings.s3_server_side_encryption {
            ServerSideEncryption::Bucket => Encryption::Bucket,
            ServerSideEncryption::S3 => Encryption::S3,
            ServerSideEncryption::Kms => Encryption::Kms {
                key_id: settings.s3_kms_key_id.clone(),
            },
        },
        ..Options::default()
    };
    let offloader = Offloader::start(options).context("cannot start the threads of tiered storage")?;
    if let Some(target) = target(settings) {
        offloader.check_target(&target).context("tiered storage")?;
    }
    Ok(Arc::new(offloader))
}

/// Offload policy from the settings, where policies have no value.
pub(crate) fn policy(settings: &OffloadSettings) -> OffloadPolicy {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OffloadPolicy {
        target: target(settings),
        bytes_kept: settings.threshold_size.as_option().map(|size| size.0),
        age_ms_max: settings.threshold_time.as_option().copied().map(millis),
        deletion_lag_ms: settings.deletion_lag.as_option().copied().map(millis),
        read_first: match settings.read_priority {
            ReadPriority::Tiered => ReadFirst::Tiered,
            ReadPriority::Bookkeeper => ReadFirst::Local,
        },
    }
}

/// Lower limits of policies.
pub(crate) fn limits(settings: &OffloadSettings) -> OffloadLimits {
    OffloadLimits {
        block_bytes: settings.max_block_size.0,
        read_bytes: settings.read_buffer_size.0,
    }
}

fn target(settings: &OffloadSettings) -> Option<OffloadTarget> {
    if settings.driver.is_empty() {
        return None;
    }
    let facts = match settings.driver.eq_ignore_ascii_case(drivers::FILESYSTEM) {
        true => vec![(drivers::URI, &settings.filesystem_uri)],
        false => vec![
            (drivers::BUCKET, &settings.s3_bucket),
            (drivers::REGION, &settings.s3_region),
            (drivers::ENDPOINT, &settings.s3_endpoint),
        ],
    };
    let said = facts.into_iter().filter(|(_, value)| !value.is_empty());
    Some(OffloadTarget {
        driver: settings.driver.clone(),
        facts: said.map(|(key, value)| (key.to_owned(), value.clone())).collect(),
    })
}

/// The folder in which, or below which, policies may name folders.
fn folder(settings: &OffloadSettings) -> anyhow::Result<Option<PathBuf>> {
    if settings.filesystem_uri.is_empty() {
        return Ok(None);
    }
    let folder = OffloadTarget {
        driver: drivers::FILESYSTEM.to_owned(),
        facts: [(drivers::URI.to_owned(), settings.filesystem_uri.clone())].into(),
    };
    let path = drivers::folder_of(&folder).context("offload.filesystem_uri")?;
    Ok(Some(path))
}

/// The families of the metrics page, by Pulsar's names where there are any.
pub(crate) fn families(stats: Stats) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge};
    #[rustfmt::skip]
    let rows: [(&'static str, &'static str, MetricKind, u64); 12] = [
        ("brk_ledgeroffloader_offload_error", "Attempts to offload a ledger that failed.", Counter, stats.offload_errors),
        ("brk_ledgeroffloader_offload_bytes", "Bytes written to object stores.", Counter, stats.offloaded_bytes),
        ("brk_ledgeroffloader_read_offload_error", "Fetches that failed or brought damaged bytes.", Counter, stats.read_errors),
        ("brk_ledgeroffloader_read_offload_bytes", "Bytes fetched from object stores.", Counter, stats.read_bytes),
        ("brk_ledgeroffloader_write_storage_error", "Writes that an object store did not carry out.", Counter, stats.write_errors),
        ("pharos_offload_ledgers_total", "Ledgers that were offloaded.", Counter, stats.offloaded),
        ("pharos_offload_running", "Ledgers that are being offloaded.", Gauge, stats.uploading),
        ("pharos_offload_read_entries_total", "Entries read from object stores.", Counter, stats.entries_read),
        ("pharos_offload_read_entries_bytes_total", "Their bytes.", Counter, stats.entries_read_bytes),
        ("pharos_offload_read_buffer_hits_total", "Reads that needed no fetch.", Counter, stats.buffer_hits),
        ("pharos_offload_read_buffer_bytes", "Fetched bytes kept for the next read.", Gauge, stats.buffered_bytes),
        ("pharos_offload_delete_errors_total", "Deletions of offloaded ledgers that failed.", Counter, stats.delete_errors),
    ];
    let mut families: Vec<_> = rows
        .into_iter()
        .map(|(name, help, kind, value)| family(name, help, kind, vec![sample(value, Vec::new())]))
        .collect();
    let deletions = [("succeed", stats.deleted), ("failed", stats.delete_errors)];
    let deletions = deletions.map(|(status, count)| sample(count, vec![("status", status.to_owned())]));
    let name = "brk_ledgeroffloader_delete_offload_ops";
    families.push(family(
        name,
        "Deletions of offloaded ledgers.",
        Counter,
        deletions.into(),
    ));
    #[rustfmt::skip]
    let latencies = [
        ("brk_ledgeroffloader_read_ledger_latency", "Time to read from a ledger that is being offloaded.", stats.ledger_latency),
        ("brk_ledgeroffloader_read_offload_index_latency", "Time to fetch an index.", stats.index_latency),
        ("brk_ledgeroffloader_read_offload_data_latency", "Time to fetch entries.", stats.data_latency),
    ];
    families.extend(latencies.map(|(name, help, histogram)| summary(name, help, histogram)));
    families
}

fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<MetricSample>,
) -> MetricFamily {
    MetricFamily {
        name,
        help,
        kind,
        samples,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the page has floating point only")]
fn sample(value: u64, labels: Vec<(&'static str, String)>) -> MetricSample {
    MetricSample::Value {
        labels,
        value: value as f64,
    }
}

fn summary(name: &'static str, help: &'static str, histogram: Histogram) -> MetricFamily {
    let durations = MetricSample::Durations {
        labels: Vec::new(),
        histogram,
    };
    family(name, help, MetricKind::Histogram, vec![durations])
}
