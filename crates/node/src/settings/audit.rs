//! Settings of the audit log.

use std::path::PathBuf;

use pharos_auth::AuditLevel;

use super::ByteSize;

/// Where the audit log is, and what is kept in it.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditSettings {
    /// Whether there is one.
    pub enabled: bool,
    /// The file; `None`: in the data directory.
    pub file: Option<PathBuf>,
    /// Which decisions are kept.
    pub level: AuditLevel,
    /// Size of a full file.
    pub max_size: ByteSize,
    /// Full files that are kept.
    pub max_files: u32,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            file: None,
            level: AuditLevel::Changes,
            max_size: ByteSize::mib(64),
            max_files: 10,
        }
    }
}

impl AuditSettings {
    /// What does not go together.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.max_files == 0 {
            faults.push("audit.max_files must not be 0".to_owned());
        }
        if self.max_size < ByteSize::kib(64) {
            faults.push("audit.max_size must be 64KiB or more".to_owned());
        }
        faults
    }
}
