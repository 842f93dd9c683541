//! Taking over a store of format 1.
//!
//! The old file is only read, with all checksums; both copies are durable before it gets another name. A crash before that
//! finds both, of the same revision, and the name is changed then.

use std::path::{Path, PathBuf};

use pharos_runtime::fs::Fs;

use super::format::record_crc;
use super::new_store;
use super::recover::Recovered;
use super::redb;
use crate::{Fault, OpenError};

/// Returns the state to start from: the one found, or the store of format 1; `None` if there is neither.
pub(super) fn take_over(
    fs: &dyn Fs,
    format_1: Option<&Path>,
    found: Option<Recovered>,
) -> Result<Option<Recovered>, OpenError> {
    let old = match format_1 {
        Some(file) if exists(fs, file)? => redb::read(fs, file)?,
        _ => return Ok(found),
    };
    let Some(old) = old else {
        return Ok(found);
    };
    let file = format_1.unwrap_or(Path::new(""));
    if let Some(found) = found {
        if found.state.revision == old.revision {
            return Ok(Some(found));
        }
        let what = format!(
            "{} has revision {}, what was taken over from it has {}: an older release has written to it since; \
             move away one of the two, whichever is not wanted",
            file.display(),
            old.revision,
            found.state.revision
        );
        return Err(OpenError::Fault(Fault::new("take over metadata store", what)));
    }
    let mut new = new_store();
    for mut record in old.records {
        record.crc = record_crc(new.store_id, &record.key, record.value.as_deref(), record.version);
        new.state.apply(record);
    }
    new.state.revision = old.revision;
    Ok(Some(new))
}

/// Gives the old file another name, when both copies are durable.
pub(super) fn finish(fs: &dyn Fs, file: &Path) -> Result<(), OpenError> {
    if !exists(fs, file)? {
        return Ok(());
    }
    let io = |error| OpenError::io("rename", file, &error);
    fs.rename(file, &file.with_extension("redb.migrated"))
        .map_err(io)?;
    fs.sync_dir(&parent(file)).map_err(io)
}

fn exists(fs: &dyn Fs, file: &Path) -> Result<bool, OpenError> {
    let names = fs.list(&parent(file));
    let names = names.map_err(|error| OpenError::io("list", &parent(file), &error))?;
    Ok(file
        .file_name()
        .is_some_and(|name| names.iter().any(|found| name == found.as_str())))
}

fn parent(file: &Path) -> PathBuf {
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("."),
    }
}
