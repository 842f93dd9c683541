//! What a look at the metadata store of a stopped broker shows.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pharos_metadata::{Embedded, Look, OpenError};
use pharos_runtime::fs::RealFs;
use serde_json::{Value, json};

use crate::broker::{metadata_dir, metadata_format_1};

/// The metadata store as a broker would find it.
#[derive(Debug)]
pub(super) enum Metadata {
    /// It opens, with all that was answered.
    Whole(Look),
    /// There is none in this directory.
    Missing(PathBuf),
    /// A broker refuses to start on it.
    Refused(String),
}

impl Metadata {
    /// Reads it; nothing is changed. The caller has the ledgers locked, so no broker has it open.
    pub(super) fn look(data_dir: &Path) -> Self {
        let dir = metadata_dir(data_dir);
        match Embedded::look(&RealFs, &dir, Some(&metadata_format_1(data_dir))) {
            Ok(Some(look)) => Self::Whole(look),
            Ok(None) => Self::Missing(dir),
            Err(error @ OpenError::Damaged { .. }) => Self::Refused(error.to_string()),
            Err(error) => Self::Refused(format!("{:#}", anyhow::Error::new(error))),
        }
    }

    /// Why a broker does not start on it. A new one has neither ledgers nor metadata.
    pub(super) fn refusal(&self, has_ledgers: bool) -> Option<String> {
        match self {
            Self::Whole(_) => None,
            Self::Missing(_) if !has_ledgers => None,
            Self::Missing(dir) => Some(format!(
                "{}: the metadata store is missing beside ledgers; put it back",
                dir.display()
            )),
            Self::Refused(error) => Some(error.clone()),
        }
    }

    /// Lines of the report: what does not open first, then what the other copy makes good.
    pub(super) fn in_text(&self, has_ledgers: bool) -> String {
        let mut out = String::new();
        if let Some(refusal) = self.refusal(has_ledgers) {
            let _ = writeln!(out, "does not open  {refusal}");
        }
        if let Self::Whole(look) = self {
            for flaw in &look.flaws {
                let (file, at, what) = (flaw.file.display(), flaw.byte_offset, &flaw.what);
                let _ = writeln!(
                    out,
                    "harmless       {file} at {at}: {what}; the other copy has everything; the next start puts it right"
                );
            }
        }
        out
    }

    pub(super) fn in_json(&self, has_ledgers: bool) -> Value {
        let look = match self {
            Self::Whole(look) => Some(look),
            Self::Missing(_) | Self::Refused(_) => None,
        };
        let flaws = look.map(|look| &look.flaws).into_iter().flatten().map(|flaw| {
            json!({
                "effect": "harmless", "remedy": "start", "file": flaw.file, "byte_offset": flaw.byte_offset,
                "what": flaw.what, "by_crash": flaw.by_crash,
            })
        });
        json!({
            "refusal": self.refusal(has_ledgers),
            "findings": flaws.collect::<Vec<_>>(),
            "keys": look.map(|look| look.items.len()),
            "store": look.map(|look| format!("{:016x}", look.store_id)),
            "format_1": look.map(|look| look.format_1),
        })
    }
}
