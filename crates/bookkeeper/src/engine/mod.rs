//! The engine: ledgers of a cluster behind the contract of `ledger`.
//!
//! One thread carries all connections, time-outs and metadata writes. Appends do not pass through it on their way out: the caller's
//! thread packs the entry and puts it into the connections' queues. Answers step the machines on the engine's thread.
//!
//! Locks: a ledger's machine first, then that of a connection or of the directory; none is held while a reply is given.
//!
//! Durability has two parts. How many bookies have an entry is up to the ledger's ack quorum. Whether they have it on disk: with
//! [`Durability::Sync`] as the journal settings of the bookies say; with the others it is written with deferred sync, so bookies
//! acknowledge it from memory or the page cache whatever their settings, and sync it each [`force_interval`](Options::force_interval)
//! and before the ledger is sealed. Such a ledger does not change its ensemble: where an ack quorum cannot be had it is given up.

mod follow;
mod following;
mod meters;
mod options;
mod reading;
mod recovering;
mod writing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, Durability, LedgerEngine, LedgerWriter, OpenError,
    ReadEntry, ReadError, Readable, Sealed, StorageFault,
};
use pharos_metadata::{MetadataStore, Version, WriteError};
use pharos_runtime::{ShardThread, clock, spawn_local, spawn_shard};
use pharos_types::{EntryId, LedgerId};
use tokio::sync::oneshot;

use crate::bookies::{Chooser, Directory};
use crate::entry::Digester;
use crate::machine::{MetadataAnswer, Writer};
use crate::metadata::{BookieId, LedgerMetadata, LedgerStore, Segment, State, StoreError};
use crate::net::{Connection, Limits, Mailbox, Reply};
use crate::quorum::Quorum;
use crate::wire::Request;
use follow::Followed;
use meters::Meters;
use writing::{Handle, Writing};

pub use meters::{Figures, Operation, OperationFigures};
pub use options::{Options, entry_bytes_max};

/// Closed ledgers whose metadata is remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Pause after a failure of the metadata store.
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// Failure to start an engine.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metadata store does not say which bookies there are.
    #[error("cannot ask for bookies")]
    Metadata(#[from] pharos_metadata::ReadError),
    /// The system refused a thread.
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
}

/// An engine on a cluster of bookies.
pub struct BookKeeper {
    inner: Arc<Inner>,
    thread: Mutex<Option<ShardThread>>,
}

/// State shared by all ledgers of an engine.
struct Inner {
    options: Options,
    store: LedgerStore,
    directory: Directory,
    connections: Mutex<HashMap<BookieId, Connection>>,
    /// For the engine's thread.
    work: Mailbox<Work>,
    /// Ledgers that are written here.
    writers: Mutex<HashMap<LedgerId, Weak<Writing>>>,
    /// Metadata that does not change any more, but for bookies that auto-recovery exchanges.
    closed: Mutex<HashMap<LedgerId, Arc<LedgerMetadata>>>,
    /// Ledgers of other writers that are followed here.
    followed: Mutex<HashMap<LedgerId, Followed>>,
    /// Payload bytes that wait for their ack quorum.
    pending_bytes: AtomicUsize,
    meters: Meters,
    /// Fault that ended the engine, if any.
    ended: Mutex<Option<Arc<StorageFault>>>,
}

enum Work {
    Run(BoxFuture<'static, ()>),
    Connect(BookieId, Connection),
    End,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BookKeeper {
    /// Starts an engine on the cluster whose metadata is below `root` (usually `ledgers`) of `store`.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        options: Options,
        store: Arc<dyn MetadataStore>,
        root: &str,
    ) -> Result<Self, StartError> {
        let directory = Directory::new(options.placement.clone());
        let inner = Arc::new(Inner {
            options,
            store: LedgerStore::new(store, root),
            directory,
            connections: Mutex::default(),
            work: Mailbox::default(),
            writers: Mutex::default(),
            closed: Mutex::default(),
            followed: Mutex::default(),
            pending_bytes: AtomicUsize::new(0),
            meters: Meters::default(),
            ended: Mutex::default(),
        });
        inner.ask_for_bookies().await?;
        inner.ask_for_racks().await?;
        let carried = Arc::clone(&inner);
        let thread = spawn_shard("bookkeeper".to_owned(), move || carried.carry())?;
        Ok(Self {
            inner,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Bookies that take writes now.
    #[must_use]
    pub fn bookies(&self) -> usize {
        self.inner.directory.count()
    }

    /// Their names.
    #[must_use]
    pub fn writable(&self) -> Vec<String> {
        let bookies = self.inner.directory.writable();
        bookies.iter().map(|bookie| bookie.as_str().to_owned()).collect()
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let pending = self.inner.pending_bytes.load(Ordering::Relaxed);
        self.inner.meters.figures(pending)
    }

    /// Runs an operation on the engine's thread, and measures it; `None` when the engine ended meanwhile.
    async fn run<T: Send + 'static, E: Send + 'static>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Option<Result<T, E>> {
        let (inner, began) = (Arc::clone(&self.inner), clock::now());
        let measured = async move {
            let outcome = work.await;
            inner.meters.record(operation, began, outcome.is_ok());
            outcome
        };
        self.run_unmeasured(measured).await
    }

    /// Runs what may wait for others, so that its time says nothing of bookies; `None` when the engine ended meanwhile.
    async fn run_unmeasured<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = oneshot::channel();
        self.inner.spawn(async move {
            // The caller may not wait any more.
            let _ = tell.send(work.await);
        });
        told.await.ok()
    }
}

impl Drop for BookKeeper {
    fn drop(&mut self) {
        self.inner.work.put(Work::End);
    }
}

impl Inner {
    /// The engine's thread.
    async fn carry(self: Arc<Self>) {
        let following = Arc::clone(&self);
        spawn_local(async move { following.follow_bookies().await });
        let following = Arc::clone(&self);
        spawn_local(async move { following.follow_racks().await });
        if self.options.placement.by_free_disk {
            let asking = Arc::clone(&self);
            spawn_local(async move { asking.ask_for_room().await });
        }
        loop {
            match self.work.take().await {
                Work::Run(work) => spawn_local(work),
                Work::Connect(bookie, connection) => {
                    let inner = Arc::downgrade(&self);
                    spawn_local(connection.run(move || Some(inner.upgrade()?.directory.address(&bookie))));
                }
                Work::End => return,
            }
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.work.put(Work::Run(work.boxed()));
    }

    /// Asks a bookie; `reply` is called on the engine's thread.
    fn call(&self, bookie: &BookieId, request: &Request, timeout: Duration, reply: Reply) {
        let connection = {
            let mut connections = lock(&self.connections);
            match connections.get(bookie) {
                Some(connection) => connection.clone(),
                None => {
                    let connection = Connection::new(Limits {
                        connect: self.options.connect_timeout,
                        pause: Duration::from_millis(500),
                        queue_bytes_max: self.options.bookie_queue_bytes_max,
                        tls: self.options.tls.clone(),
                        login: self.options.login.clone(),
                        frame_bytes_max: self.options.entry_bytes_max.saturating_mul(2).max(1 << 20),
                    });
                    connections.insert(bookie.clone(), connection.clone());
                    self.work.put(Work::Connect(bookie.clone(), connection.clone()));
                    connection
                }
            }
        };
        connection.send(request, timeout, reply);
    }

    /// Returns the number of the connection on which the bookie answers, inside a reply with an answer; a later
    /// connection has a higher number.
    fn connection_number(&self, bookie: &BookieId) -> u64 {
        lock(&self.connections).get(bookie).map_or(0, Connection::number)
    }

    /// Writes metadata if `version` is still there, and otherwise says what is there, however long the store takes.
    async fn put_metadata(
        &self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        version: Version,
    ) -> MetadataAnswer {
        match self.store.write(ledger, metadata, version).await {
            Ok(version) => return MetadataAnswer::Written(version),
            Err(StoreError::Write(WriteError::Conflict { .. })) => {}
            Err(error) => {
                tracing::warn!(%ledger, %error, "cannot write the metadata of a ledger");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
        loop {
            match self.store.read(ledger).await {
                Ok(current) => return MetadataAnswer::Current(current),
                Err(error) => tracing::warn!(%ledger, %error, "cannot read the metadata of a ledger"),
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
    }

    fn ended(&self) -> Option<Arc<StorageFault>> {
        lock(&self.ended).clone()
    }

    fn writer_of(&self, ledger: LedgerId) -> Option<Arc<Writing>> {
        lock(&self.writers).get(&ledger)?.upgrade()
    }

    fn remember(&self, ledger: LedgerId, metadata: Arc<LedgerMetadata>) {
        let mut closed = lock(&self.closed);
        if closed.len() >= REMEMBERED_MAX {
            closed.clear();
        }
        closed.insert(ledger, metadata);
    }

    async fn create(self: Arc<Self>, create: CreateOptions) -> Result<Arc<dyn LedgerWriter>, CreateError> {
        let fault = |cause: &dyn std::fmt::Display| {
            CreateError::Poisoned(StorageFault::transient("create a ledger", cause))
        };
        let options = &self.options;
        let quorum = match create.replication {
            Some(wanted) => Quorum::new(wanted.ensemble, wanted.write_quorum, wanted.ack_quorum)
                .map_err(|error| CreateError::Poisoned(StorageFault::new("create a ledger", error)))?,
            None => options.quorum,
        };
        let chooser = Chooser {
            directory: &self.directory,
            quorum,
            affinity: create.affinity.as_ref(),
        };
        let ensemble = chooser.ensemble().ok_or_else(|| {
            let (wanted, found) = (quorum.ensemble(), self.directory.count());
            fault(&format!(
                "{wanted} bookies are needed where the ledger may be, {found} take writes"
            ))
        })?;
        let mut custom = options.custom.clone();
        custom.extend(create.custom);
        let mut metadata = LedgerMetadata {
            quorum,
            state: State::Open,
            segments: vec![Segment {
                first: EntryId(0),
                ensemble,
            }],
            digest: options.digest,
            password: options.password.clone(),
            created_ms: i64::try_from(clock::wall_ms()).ok(),
            custom,
            token: Some(0),
        };
        if create.durability != Durability::Sync {
            metadata = metadata.with_deferred_sync();
        }
        let ledger = self.store.next_id().await.map_err(|error| fault(&error))?;
        let version = self.store.create(ledger, &metadata).await;
        let version = version.map_err(|error| fault(&error))?;
        let digester = Digester::new(ledger, metadata.digest, &metadata.password);
        let writer = match create.durability {
            Durability::Sync => Writer::new(digester.clone(), metadata, version, options.change),
            Durability::Async | Durability::Bypass => Writer::deferring(digester.clone(), metadata, version),
        };
        let is_deferring = writer.is_deferring();
        let writing = Writing::new(
            ledger,
            Arc::clone(&self),
            digester,
            writer,
            create.affinity,
            create.is_followed,
        );
        let mut writers = lock(&self.writers);
        writers.retain(|_, writer| writer.strong_count() > 0);
        writers.insert(ledger, Arc::downgrade(&writing));
        if is_deferring {
            spawn_local(writing::force(
                Arc::downgrade(&writing),
                self.options.force_interval,
            ));
        }
        if let Some(interval) = self.options.explicit_lac_interval {
            spawn_local(writing::tell_confirmed(Arc::downgrade(&writing), interval));
        }
        Ok(Arc::new(Handle(writing)))
    }

    async fn delete(self: Arc<Self>, ledger: LedgerId) -> Result<(), DeleteError> {
        if let Some(writer) = self.writer_of(ledger) {
            writer.fence();
        }
        lock(&self.closed).remove(&ledger);
        lock(&self.followed).remove(&ledger);
        match self.store.delete(ledger).await {
            Ok(_) => Ok(()),
            Err(error) => Err(DeleteError::Poisoned(StorageFault::transient(
                "delete a ledger",
                error,
            ))),
        }
    }
}

fn shut_down() -> Arc<StorageFault> {
    StorageFault::new("use the engine", "it was shut down")
}

impl LedgerEngine for BookKeeper {
    fn create(&self, create: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>> {
        async {
            if let Some(fault) = self.inner.ended() {
                return Err(CreateError::Poisoned(fault));
            }
            let created = self
                .run(Operation::Create, Arc::clone(&self.inner).create(create))
                .await;
            created.unwrap_or_else(|| Err(CreateError::Poisoned(shut_down())))
        }
        .boxed()
    }

    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>> {
        async move {
            let recovered = self
                .run(
                    Operation::Recover,
                    recovering::recover(Arc::clone(&self.inner), ledger),
                )
                .await;
            recovered.unwrap_or_else(|| Err(OpenError::Fault(shut_down())))
        }
        .boxed()
    }

    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        async move {
            let bounds = reading::Bounds {
                first,
                entries_max,
                bytes_max,
            };
            let read = self
                .run(
                    Operation::Read,
                    reading::read(Arc::clone(&self.inner), ledger, bounds),
                )
                .await;
            read.unwrap_or_else(|| Err(ReadError::Fault(shut_down())))
        }
        .boxed()
    }

    fn read_unconfirmed(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        async move {
            let bounds = reading::Bounds {
                first,
                entries_max,
                bytes_max,
            };
            let read = self
                .run(
                    Operation::Read,
                    reading::read_unconfirmed(Arc::clone(&self.inner), ledger, bounds),
                )
                .await;
            read.unwrap_or_else(|| Err(ReadError::Fault(shut_down())))
        }
        .boxed()
    }

    fn follow(&self, ledger: LedgerId, beyond: Option<u64>) -> BoxFuture<'_, Result<Readable, ReadError>> {
        async move {
            let followed = self
                .run_unmeasured(follow::follow(Arc::clone(&self.inner), ledger, beyond))
                .await;
            followed.unwrap_or_else(|| Err(ReadError::Fault(shut_down())))
        }
        .boxed()
    }

    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>> {
        async move {
            if let Some(fault) = self.inner.ended() {
                return Err(DeleteError::Poisoned(fault));
            }
            let deleted = self
                .run(Operation::Delete, Arc::clone(&self.inner).delete(ledger))
                .await;
            deleted.unwrap_or_else(|| Err(DeleteError::Poisoned(shut_down())))
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, ReadError>> {
        async {
            let listed = self.inner.store.list().await;
            listed.map_err(|error| ReadError::Fault(StorageFault::transient("list ledgers", error)))
        }
        .boxed()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        async {
            let fault = shut_down();
            lock(&self.inner.ended).get_or_insert(Arc::clone(&fault));
            let writers: Vec<_> = lock(&self.inner.writers)
                .values()
                .filter_map(Weak::upgrade)
                .collect();
            for writer in writers {
                writer.finish(&fault).await;
            }
            for connection in lock(&self.inner.connections).values() {
                connection.end();
            }
            self.inner.work.put(Work::End);
            let thread = lock(&self.thread).take();
            if let Some(thread) = thread {
                // It ends at once; a panic there was logged.
                let _ = thread.joined().await;
            }
        }
        .boxed()
    }
}
