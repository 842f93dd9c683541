//! Inspection of the metadata store of a stopped broker.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use pharos_metadata::{Beside, Embedded, Look};
use pharos_runtime::fs::{Fs as _, RealFs};
use pharos_storage::offline::{Item, Value as Field};
use serde_json::{Value, json};

use crate::broker::{metadata_dir, metadata_format_1, metadata_witness};
use crate::settings::Settings;

/// True if a file has the name of a metadata store file: a copy, or the witness beside the ledgers.
pub(super) fn is_file_of_it(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    matches!(name, Some("copy-1" | "copy-2" | "METADATA"))
}

/// Tells the parts of such a file. Changes nothing.
///
/// # Errors
/// A broker has the store open; the file cannot be read, or is neither.
pub(super) fn decode(path: &Path, records: bool, tell: &mut dyn FnMut(Item)) -> anyhow::Result<()> {
    let lock = path.with_file_name("LOCK");
    let _held = match lock.exists() {
        true => {
            let held = RealFs.lock(&lock);
            let held = held.with_context(|| format!("cannot lock {}", lock.display()))?;
            Some(held.with_context(|| format!("a broker has {} open", path.display()))?)
        }
        false => None,
    };
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_known = pharos_metadata::decode(&bytes, records, &mut |part| {
        let fields = part.fields.into_iter();
        tell(Item {
            kind: part.kind,
            byte_offset: part.byte_offset,
            bytes: part.bytes,
            whole: part.whole,
            fields: fields.map(|(name, text)| (name, field(name, text))).collect(),
        });
    });
    if !is_known {
        bail!(
            "{} has no header of a copy of the metadata, and is no witness",
            path.display()
        );
    }
    Ok(())
}

/// A member that is a number, as the other files have it.
fn field(name: &str, text: String) -> Field {
    match text.parse() {
        Ok(number) if !matches!(name, "key" | "store") => Field::Number(number),
        _ => Field::Text(text),
    }
}

/// The metadata store as a broker would find it.
#[derive(Debug)]
pub(super) enum Metadata {
    /// The store opens, with everything that was answered.
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

    /// Reason why a broker does not start on it. A new broker has neither ledgers nor metadata.
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
