//! The audit log: from settings to an open file, and what it says of itself for the metrics page.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use pharos_audit::{Audit, AuditOptions, AuditStats};
use pharos_broker_admin::{MetricFamily, MetricKind, MetricSample};
use pharos_runtime::fs::RealFs;

use crate::settings::Settings;
use crate::storage_metrics::family;

/// Lines that wait to be written; docs/security.md tells how many.
const QUEUE_MAX: usize = 8192;

/// Opens the log, where there is to be one. A log that cannot be opened is no start: it would be missed when it is needed.
///
/// # Errors
/// The file cannot be opened, or not be kept from others.
pub(crate) fn start(settings: &Settings) -> anyhow::Result<Option<Arc<Audit>>> {
    let audit = &settings.audit;
    if !audit.enabled {
        return Ok(None);
    }
    let in_data = || settings.data_dir.join("audit").join("audit.log");
    let options = AuditOptions {
        file: audit.file.clone().unwrap_or_else(in_data),
        level: audit.level,
        bytes_max: audit.max_size.0,
        files_max: audit.max_files,
        queue_max: QUEUE_MAX,
    };
    let opened = || {
        let log = Audit::start(Arc::new(RealFs), &options)?;
        keep_to_the_owner(&options.file)?;
        std::io::Result::Ok(log)
    };
    let log = opened().with_context(|| format!("audit.file: cannot write {}", options.file.display()))?;
    Ok(Some(Arc::new(log)))
}

/// New files are the owner's alone; one that was there may be open to others.
fn keep_to_the_owner(file: &Path) -> std::io::Result<()> {
    let found = fs::metadata(file)?;
    if found.is_file() && found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(file, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Counters of written and lost audit records.
#[expect(clippy::cast_precision_loss, reason = "the page has floating point only")]
pub(crate) fn families(stats: AuditStats) -> Vec<MetricFamily> {
    let lost = |reason: &str, count: u64| MetricSample::Value {
        labels: vec![("reason", reason.to_owned())],
        value: count as f64,
    };
    vec![
        family(
            "pharos_audit_records_total",
            "Decisions written to the audit log.",
            MetricKind::Counter,
            stats.written,
        ),
        MetricFamily {
            name: "pharos_audit_records_lost_total",
            help: "Decisions that are missing in the audit log, because its writer did not keep up or its file could not be written.",
            kind: MetricKind::Counter,
            samples: vec![
                lost("queue_full", stats.lost_queue_full),
                lost("write_failed", stats.lost_write_failed),
            ],
        },
    ]
}
