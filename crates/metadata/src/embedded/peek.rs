//! Reading the file of a store that nobody has open, without changing it.
//!
//! redb repairs a file that was not closed properly when it opens it. Here it does so in memory: what it would write
//! stays in pages over the file, which is opened for reading only.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadableDatabase, StorageBackend, TableError};

use super::{Embedded, FORMAT, FORMAT_KNOWN, ITEMS, STORE, reader};
use crate::{Fault, Item, OpenError};

/// What the overlay counts in, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Pages kept in memory while reading, in bytes.
const CACHE_BYTES: usize = 2 << 20;

impl Embedded {
    /// The keys that begin with `prefix` in the file `path`, with their values, in byte order. The file is not changed,
    /// also when whoever had it open died. Blocks for as long as reading it takes.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while a store has it open; `Fault` also when there is no such file or it is damaged.
    pub fn peek(path: &Path, prefix: &str) -> Result<Vec<Item>, OpenError> {
        let fault = |cause: &dyn std::fmt::Display| {
            OpenError::Fault(Fault::new(
                "read metadata store",
                format!("{}: {cause}", path.display()),
            ))
        };
        let file = File::open(path).map_err(|error| fault(&error))?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    path: path.display().to_string(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(fault(&error)),
        }
        let overlay = Overlay::new(file).map_err(|error| fault(&error))?;
        // A damaged file may trip the database over its own assertions.
        let read = catch_unwind(AssertUnwindSafe(|| read(overlay, prefix)));
        let (format, items) = match read {
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
        Ok(items)
    }
}

fn read(overlay: Overlay, prefix: &str) -> Result<(u64, Vec<Item>), redb::Error> {
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(overlay)?;
    let snapshot = database.begin_read()?;
    let store = match snapshot.open_table(STORE) {
        Ok(store) => store,
        // Nobody got as far as making its tables.
        Err(TableError::TableDoesNotExist(_)) => return Ok((FORMAT_KNOWN, Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let format = store.get(FORMAT)?.map_or(0, |fact| fact.value());
    let items = reader::scan(&snapshot.open_table(ITEMS)?, prefix)?;
    Ok((format, items))
}

/// A file that is only read, with pages in memory over it.
#[derive(Debug)]
struct Overlay {
    file: File,
    over: Mutex<Over>,
}

#[derive(Debug)]
struct Over {
    bytes: u64,
    /// How much of the file still counts: what is beyond was cut off once.
    file_bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let over = Over {
            bytes,
            file_bytes: bytes,
            pages: BTreeMap::new(),
        };
        Ok(Self {
            file,
            over: Mutex::new(over),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Over> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page as the file has it.
    fn page_below(&self, over: &Over, page: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE_BYTES as usize];
        let start = page * PAGE_BYTES;
        let there = over.file_bytes.saturating_sub(start).min(PAGE_BYTES) as usize;
        self.file.read_exact_at(&mut bytes[..there], start)?;
        Ok(bytes)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let over = self.lock();
        if offset + out.len() as u64 > over.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let (page, from) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let count = (PAGE_BYTES as usize - from).min(out.len() - done);
            let room = &mut out[done..done + count];
            match over.pages.get(&page) {
                Some(bytes) => room.copy_from_slice(&bytes[from..from + count]),
                None => room.copy_from_slice(&self.page_below(&over, page)?[from..from + count]),
            }
            done += count;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut over = self.lock();
        if len < over.bytes {
            over.file_bytes = over.file_bytes.min(len);
            let last = len / PAGE_BYTES;
            over.pages.split_off(&(last + 1));
            if let Some(page) = over.pages.get_mut(&last) {
                page[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        over.bytes = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut over = self.lock();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, from) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let count = (PAGE_BYTES as usize - from).min(data.len() - done);
            if !over.pages.contains_key(&page) {
                let below = self.page_below(&over, page)?;
                over.pages.insert(page, below);
            }
            if let Some(bytes) = over.pages.get_mut(&page) {
                bytes[from..from + count].copy_from_slice(&data[done..done + count]);
            }
            done += count;
        }
        over.bytes = over.bytes.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, MetadataStore, Options};

    fn put(store: &Embedded, key: &str) {
        let put = store.put(key, key.to_owned().into(), Expect::Any);
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(put)
            .unwrap();
    }

    fn names(found: Vec<Item>) -> Vec<String> {
        found.into_iter().map(|item| item.key).collect()
    }

    #[test]
    fn a_file_is_read_and_not_changed_also_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let (path, torn) = (dir.path().join("m.redb"), dir.path().join("torn.redb"));
        let store = Embedded::open(&path, &Options::default()).unwrap();
        for number in 0..300 {
            put(&store, &format!("a/{number}"));
        }
        put(&store, "b/1");
        assert!(matches!(
            Embedded::peek(&path, "b/"),
            Err(OpenError::InUse { .. })
        ));
        // What a killed process leaves.
        std::fs::copy(&path, &torn).unwrap();
        drop(store);
        for path in [&path, &torn] {
            let before = std::fs::read(path).unwrap();
            assert_eq!(names(Embedded::peek(path, "b/").unwrap()), ["b/1"]);
            assert_eq!(Embedded::peek(path, "a/").unwrap().len(), 300);
            assert!(std::fs::read(path).unwrap() == before);
        }
        std::fs::write(&torn, vec![7; 20_000]).unwrap();
        assert!(matches!(Embedded::peek(&torn, ""), Err(OpenError::Fault(_))));
        assert!(matches!(
            Embedded::peek(&dir.path().join("none"), ""),
            Err(OpenError::Fault(_))
        ));
    }
}
