//! The store in one file of the data directory: a redb database behind two plain threads.
//!
//! ```text
//!  put, delete ─► bounded queue ─► metadata-write: drain, one transaction, one durable commit ─► answer all, tell watches
//!  get, list, scan ─► bounded queue ─► metadata-read: one snapshot per drained group ─► answer
//! ```
//!
//! Group commit makes ten thousand topic creations cost tens of commits, not ten thousand. Reads have their own thread
//! because a shard must not wait for a device, and because a scan must not delay a commit.
//!
//! Owned by `node`, which shuts it down last. Always true: an answer `Ok` follows the durable commit; a failed commit
//! fails everyone in its group and is final: later writes fail with the same fault until restart, reads go on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition};
use tokio::sync::{Semaphore, mpsc, oneshot};

mod peek;
mod reader;
mod writer;

use reader::{Read, Reader};
use writer::{Change, Write, Writer};

use crate::key::{check_read, check_write};
use crate::watch::Watchers;
use crate::{
    BoxFuture, Expect, Fault, Item, MetadataStore, OpenError, ReadError, Version, Versioned, Watch,
    WriteError,
};

/// Key → version (8 bytes, big-endian) and value.
const ITEMS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("items");
/// Facts about the store itself.
const STORE: TableDefinition<'static, &str, u64> = TableDefinition::new("store");
/// In [`STORE`]: the layout of these two tables.
const FORMAT: &str = "format";
/// In [`STORE`]: the last version given out.
const REVISION: &str = "revision";
/// The layout this release writes.
const FORMAT_KNOWN: u64 = 1;

/// Operations that may wait for each thread.
const QUEUE: usize = 4_096;
/// Bytes of keys and values that may wait for the write thread.
const QUEUE_BYTES: usize = 16 << 20;

/// How the store keeps its file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pages kept in memory, in bytes. Default 2 MiB: infos are small and read once per topic load.
    pub cache_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 2 << 20 }
    }
}

/// A [`MetadataStore`] in one file. Dropping it finishes what is queued, like `shutdown`, but blocks.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    /// `None` after shutdown. Locks are held to clone or take a sender only.
    writes: Mutex<Option<mpsc::Sender<Write>>>,
    reads: Mutex<Option<mpsc::Sender<Read>>>,
    /// Bounds the bytes that wait for the write thread.
    write_bytes: Arc<Semaphore>,
    watchers: Arc<Watchers>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens or creates the store in the file `path`, whose directory must exist. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when someone has it open; [`OpenError::UnknownFormat`] for another release's file.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let name = || path.display().to_string();
        let fault = |what: &'static str, cause: &dyn std::fmt::Display| {
            OpenError::Fault(Fault::new(what, format!("{}: {cause}", path.display())))
        };
        let is_new = !path.exists();
        let database = Database::builder()
            .set_cache_size(options.cache_bytes)
            .create(path);
        let database = database.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path: name() },
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == std::io::ErrorKind::WouldBlock =>
            {
                OpenError::InUse { path: name() }
            }
            other => fault("open metadata store", &other),
        })?;
        if is_new {
            sync_directory(path).map_err(|error| fault("sync directory of metadata store", &error))?;
        }
        let (format, revision) = prepare(&database).map_err(|error| fault("read metadata store", &error))?;
        if format != FORMAT_KNOWN {
            return Err(OpenError::UnknownFormat {
                path: name(),
                found: format,
                known: FORMAT_KNOWN,
            });
        }
        Self::start(path, database, revision).map_err(|error| fault("start metadata threads", &error))
    }

    fn start(path: &Path, database: Database, revision: u64) -> std::io::Result<Self> {
        let database = Arc::new(database);
        let watchers = Arc::new(Watchers::new());
        let (writes, write_queue) = mpsc::channel(QUEUE);
        let (reads, read_queue) = mpsc::channel(QUEUE);
        let reader = Reader::new(Arc::clone(&database), read_queue);
        let writer = Writer::new(database, write_queue, Arc::clone(&watchers), revision);
        let thread = |name: &str| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(512 << 10)
        };
        let threads = vec![
            thread("metadata-read").spawn(move || reader.run())?,
            thread("metadata-write").spawn(move || writer.run())?,
        ];
        Ok(Self {
            path: path.to_owned(),
            writes: Mutex::new(Some(writes)),
            reads: Mutex::new(Some(reads)),
            write_bytes: Arc::new(Semaphore::new(QUEUE_BYTES)),
            watchers,
            threads: Mutex::new(threads),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues one change and waits for its group's commit.
    async fn write(
        &self,
        key: String,
        change: Change,
        expect: Expect,
    ) -> Result<(Version, bool), WriteError> {
        let value_bytes = match &change {
            Change::Put(value) => value.as_ref(),
            Change::Delete => &[],
        };
        check_write(&key, value_bytes)?;
        // Both bounds are far below u32 and below the semaphore's size.
        let weight = (key.len() + value_bytes.len() + 64) as u32;
        let permit = Arc::clone(&self.write_bytes).acquire_many_owned(weight).await;
        let permit = permit.map_err(|_| WriteError::Fault(ended()))?;
        let writes = sender(&self.writes).ok_or_else(|| WriteError::Fault(ended()))?;
        let (answer, answered) = oneshot::channel();
        let write = Write {
            key,
            change,
            expect,
            answer,
            _permit: permit,
        };
        writes.send(write).await.map_err(|_| WriteError::Fault(ended()))?;
        answered.await.map_err(|_| WriteError::Fault(ended()))?
    }

    /// Queues one read and waits for its answer.
    async fn read<T>(
        &self,
        read: impl FnOnce(oneshot::Sender<Result<T, ReadError>>) -> Read,
    ) -> Result<T, ReadError> {
        let reads = sender(&self.reads).ok_or_else(|| ReadError::Fault(ended()))?;
        let (answer, answered) = oneshot::channel();
        reads
            .send(read(answer))
            .await
            .map_err(|_| ReadError::Fault(ended()))?;
        answered.await.map_err(|_| ReadError::Fault(ended()))?
    }

    /// Closes the queues; the threads finish them and end.
    fn close_queues(&self) -> Vec<JoinHandle<()>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        join(self.close_queues());
        self.watchers.end();
    }
}

impl MetadataStore for Embedded {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_read(&key)?;
            self.read(|answer| Read::Get { key, answer }).await
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(self.write(key, Change::Put(value), expect).await?.0) })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(self.write(key, Change::Delete, expect).await?.1) })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(self.read(move |answer| Read::List { prefix, answer }))
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(self.read(move |answer| Read::Scan { prefix, answer }))
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.watchers.watch(prefix)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let threads = self.close_queues();
            if threads.is_empty() {
                return;
            }
            // The last commit and the close of the file block: a thread of its own waits for them.
            let (done, all_done) = oneshot::channel();
            let waiter = std::thread::Builder::new().name("metadata-stop".to_owned());
            let waiter = waiter.spawn(move || {
                join(threads);
                let _ = done.send(());
            });
            match waiter {
                Ok(_) => all_done.await.unwrap_or_default(),
                Err(error) => tracing::error!(%error, "cannot wait for the metadata threads"),
            }
            self.watchers.end();
        })
    }
}

fn sender<T>(slot: &Mutex<Option<mpsc::Sender<T>>>) -> Option<mpsc::Sender<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a metadata thread panicked");
        }
    }
}

fn ended() -> Arc<Fault> {
    Fault::new("use the metadata store", "it was shut down")
}

/// Makes the two tables of a new file. Returns format and revision.
fn prepare(database: &Database) -> Result<(u64, u64), redb::Error> {
    let snapshot = database.begin_read()?;
    if let Ok(store) = snapshot.open_table(STORE) {
        let fact = |key| store.get(key).map(|fact| fact.map_or(0, |fact| fact.value()));
        return Ok((fact(FORMAT)?, fact(REVISION)?));
    }
    drop(snapshot);
    let transaction = database.begin_write()?;
    transaction.open_table(ITEMS)?;
    transaction.open_table(STORE)?.insert(FORMAT, FORMAT_KNOWN)?;
    transaction.commit()?;
    Ok((FORMAT_KNOWN, 0))
}

/// A created file is durable only once its directory is.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => std::fs::File::open(".")?.sync_all(),
    }
}
