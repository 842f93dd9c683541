//! What a look at the metadata store of a stopped broker shows.

use std::fmt::Write as _;

use pharos_metadata::{Beside, Embedded, Look};
use pharos_runtime::fs::RealFs;
use serde_json::{Value, json};

use crate::broker::{metadata_dir, metadata_format_1, metadata_witness};
use crate::settings::Settings;

/// The metadata store as a broker would find it.
#[derive(Debug)]
pub(super) enum Metadata {
    /// It opens, with all that was answered.
    Whole(Look),
    /// There is none.
    Missing,
    /// A broker refuses to start on it.
    Refused(String),
}

impl Metadata {
    /// Reads it; nothing is changed. The caller has the ledgers locked, so no broker has it open. With `has_ledgers` it is
    /// also asked whether it is the one of these ledgers.
    pub(super) fn look(settings: &Settings, has_ledgers: Option<bool>) -> Self {
        let dir = metadata_dir(&settings.data_dir);
        let beside = has_ledgers.map(|has_ledgers| Beside {
            witness: metadata_witness(settings),
            has_ledgers,
            next_ledger: 0,
            accept: false,
        });
        let format_1 = metadata_format_1(&settings.data_dir);
        match Embedded::look(&RealFs, &dir, Some(&format_1), beside.as_ref()) {
            Ok(Some(look)) => Self::Whole(look),
            Ok(None) => Self::Missing,
            Err(error) => Self::Refused(format!("{:#}", anyhow::Error::new(error))),
        }
    }

    /// Why a broker does not start on it. A new one has neither ledgers nor metadata.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Whole(_) | Self::Missing => None,
            Self::Refused(error) => Some(error),
        }
    }

    /// Lines of the report: what does not open first, then what the other copy makes good.
    pub(super) fn in_text(&self) -> String {
        let mut out = String::new();
        if let Some(refusal) = self.refusal() {
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

    pub(super) fn in_json(&self) -> Value {
        let look = match self {
            Self::Whole(look) => Some(look),
            Self::Missing | Self::Refused(_) => None,
        };
        let flaws = look.map(|look| &look.flaws).into_iter().flatten().map(|flaw| {
            json!({
                "effect": "harmless", "remedy": "start", "file": flaw.file, "byte_offset": flaw.byte_offset,
                "what": flaw.what, "by_crash": flaw.by_crash,
            })
        });
        json!({
            "refusal": self.refusal(),
            "findings": flaws.collect::<Vec<_>>(),
            "keys": look.map(|look| look.items.len()),
            "store": look.map(|look| format!("{:016x}", look.store_id)),
            "format_1": look.map(|look| look.format_1),
        })
    }
}
