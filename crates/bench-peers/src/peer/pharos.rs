//! This broker, with the settings it has by itself.

use std::path::Path;
use std::process::Command;

use pharos_bench::load::http_get;

use super::{Launch, Ports, words};
use crate::spec::{Durability, Load};

/// Source of its settings.
pub(super) const SOURCE: &str = "\
Its own defaults; `storage.sync` is the level of durability. With `retention_s` what is acknowledged is kept so long, and ledgers, which
are deleted as a whole, are closed as often.";

/// Returns the version that the binary reports.
pub(super) fn version(pharos: &Path) -> Option<String> {
    let output = Command::new(pharos).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(super) fn launch(pharos: &Path, load: &Load, home: &Path, ports: Ports) -> Launch {
    let sync = match load.durability {
        Durability::Synced => "sync",
        Durability::System => "async",
    };
    Launch {
        command: words(&[
            &pharos.to_string_lossy(),
            "serve",
            "--config",
            &home.join("pharos.toml").to_string_lossy(),
            "--data-dir",
            &home.join("data").to_string_lossy(),
            "--pulsar-listen",
            &format!("127.0.0.1:{}", ports.main),
            "--http-listen",
            &format!("127.0.0.1:{}", ports.other),
        ]),
        settings: Some((
            "pharos.toml",
            format!("[storage]\nsync = \"{sync}\"\n{}", retention(load)),
        )),
        before: None,
    }
}

fn retention(load: &Load) -> String {
    match load.retention_s {
        0 => String::new(),
        kept => format!(
            "
[ledger]
default_retention_time = \"{kept}s\"
default_retention_size = \"unlimited\"
max_rollover_time = \"{kept}s\"
min_rollover_time = \"{}s\"
retention_check_interval = \"{kept}s\"
",
            kept.div_ceil(2)
        ),
    }
}

pub(super) fn is_ready(ports: Ports) -> bool {
    let base = format!("http://127.0.0.1:{}", ports.other);
    http_get(&base, "/admin/v2/brokers/ready").is_ok()
}
