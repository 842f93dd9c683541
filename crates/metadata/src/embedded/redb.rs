//! Reading a store of format 1: one redb database.
//!
//! It is read into memory and opened there, so that whatever redb repairs or changes stays there as well. All its pages are
//! checked, which redb does only when it is asked; a damaged file may trip it over its own assertions, which is caught.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use pharos_runtime::fs::{Fs, OpenHow};
use redb::backends::InMemoryBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable as _, StorageBackend as _, StorageError,
    TableDefinition, TableError,
};

use super::format::{COUNT_MAX, Record, get_u64};
use crate::{Fault, OpenError};

/// Key → version (8 bytes, big-endian) and value.
const ITEMS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("items");
/// Facts about the store itself.
const STORE: TableDefinition<'static, &str, u64> = TableDefinition::new("store");
/// In [`STORE`]: the layout of these two tables.
const FORMAT: &str = "format";
/// In [`STORE`]: the last version given out.
const REVISION: &str = "revision";
/// The layout that is read here.
const FORMAT_KNOWN: u64 = 1;

/// Pages that redb keeps for itself while reading, in bytes.
const CACHE_BYTES: usize = 2 << 20;

/// In the header of a redb file: a byte with bits for which of two slots counts, and whether the file was not closed.
const FLAGS_AT: usize = 9;
const SECOND_COUNTS: u8 = 1;
const NOT_CLOSED: u8 = 2;
/// Offsets of the transaction ids in the two slots.
const TRANSACTION_AT: [usize; 2] = [64 + 104, 192 + 104];

/// All that a store of format 1 holds.
pub(super) struct Old {
    pub(super) revision: u64,
    /// Without checksums, which it does not have.
    pub(super) records: Vec<Record>,
}

/// Reads the content of the file; `None` if its tables were never created. The file is not changed.
pub(super) fn read(fs: &dyn Fs, path: &Path) -> Result<Option<Old>, OpenError> {
    let bytes = content(fs, path).map_err(|error| OpenError::io("read", path, &error))?;
    let fault = |cause: &dyn std::fmt::Display| {
        OpenError::Fault(Fault::new(
            "read metadata store of an older release",
            format!("{}: {cause}", path.display()),
        ))
    };
    if goes_back(&bytes) {
        return Err(fault(
            &"the file is damaged: its header names an older state than it has",
        ));
    }
    let read = catch_unwind(AssertUnwindSafe(|| read_database(&bytes)));
    let (format, old) = match read {
        Ok(read) => read.map_err(|error| fault(&error))?,
        Err(_) => return Err(fault(&"the file is damaged")),
    };
    if format != FORMAT_KNOWN {
        return Err(OpenError::UnknownFormat {
            path: path.display().to_string(),
            found: format,
            known: FORMAT_KNOWN,
        });
    }
    Ok(old)
}

fn content(fs: &dyn Fs, path: &Path) -> io::Result<Vec<u8>> {
    let file = fs.open(path, OpenHow::READ)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// True if a closed file names the older of its two slots, a state that no commit leaves behind.
fn goes_back(bytes: &[u8]) -> bool {
    let Some(flags) = bytes.get(FLAGS_AT) else {
        return false;
    };
    let [first, second] = TRANSACTION_AT.map(|at| get_u64(bytes, at).unwrap_or(0));
    let (counts, other) = match flags & SECOND_COUNTS {
        0 => (first, second),
        _ => (second, first),
    };
    flags & NOT_CLOSED == 0 && counts < other
}

fn read_database(bytes: &[u8]) -> Result<(u64, Option<Old>), redb::Error> {
    let backend = InMemoryBackend::new();
    backend.set_len(bytes.len() as u64)?;
    backend.write(0, bytes)?;
    let mut database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(backend)?;
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => return Err(damaged("its pages do not agree with their checksums")),
        Err(DatabaseError::Storage(error)) => return Err(error.into()),
        Err(error) => return Err(error.into()),
    }
    let snapshot = database.begin_read()?;
    let store = match snapshot.open_table(STORE) {
        Ok(store) => store,
        Err(TableError::TableDoesNotExist(_)) => return Ok((FORMAT_KNOWN, None)),
        Err(error) => return Err(error.into()),
    };
    let fact = |key| store.get(key).map(|fact| fact.map_or(0, |fact| fact.value()));
    let (format, revision) = (fact(FORMAT)?, fact(REVISION)?);
    let mut records = Vec::new();
    for item in snapshot.open_table(ITEMS)?.iter()? {
        let (key, value) = item?;
        records.push(record(key.value(), value.value())?);
    }
    if revision > COUNT_MAX || records.iter().any(|record| record.version > revision) {
        return Err(damaged("a version is higher than any that was given out"));
    }
    Ok((format, Some(Old { revision, records })))
}

fn record(key: &str, item: &[u8]) -> Result<Record, redb::Error> {
    let Some((version, value)) = item.split_first_chunk::<8>() else {
        return Err(damaged("an item has no version"));
    };
    Ok(Record {
        key: key.to_owned(),
        value: Some(Bytes::copy_from_slice(value)),
        version: u64::from_be_bytes(*version),
        crc: 0,
    })
}

fn damaged(what: &str) -> redb::Error {
    StorageError::Corrupted(what.to_owned()).into()
}
