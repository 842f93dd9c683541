//! The store: one session for reads, writes and the watch, with a thread for its client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use pharos_metadata::key::{check_read, check_write};
use pharos_metadata::{
    BoxFuture, Event, Expect, Fault, Item, MetadataStore, ReadError, Session, SessionEnd, SessionError,
    Version, Versioned, Watch, Watchers, WriteError,
};
use pharos_runtime::{ShardThread, spawn_local, spawn_shard};
use tokio::sync::{mpsc, oneshot, watch};
use zookeeper_client::{
    AddWatchMode, Client, Error, EventType, PersistentWatcher, SessionState, WatchedEvent,
};

use crate::options::ConnectOptions;
use crate::session;
use crate::tree;

/// Work that may wait for the thread: sessions to open, and writes that wait for their events.
const WAITING_MAX: usize = 1_024;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Error of connecting a store.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server answered as it should.
    #[error("cannot connect to ZooKeeper at {address}")]
    ZooKeeper {
        /// Server address.
        address: String,
        /// Error of the connection.
        #[source]
        error: Error,
    },
    /// The system refused a thread, or it died.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

/// A [`MetadataStore`] in ZooKeeper.
pub struct ZooKeeper {
    inner: Arc<Inner>,
    thread: Mutex<Option<ShardThread>>,
}

pub(crate) struct Inner {
    /// `host:port,host:port/root`.
    address: String,
    timeout: Duration,
    pub(crate) options: ConnectOptions,
    /// Another one when its session expired; `None` after shutdown. Held to clone it.
    client: Mutex<Option<Client>>,
    watchers: Watchers,
    work: mpsc::Sender<Work>,
    /// Ends sessions with the store.
    ended: watch::Sender<bool>,
    /// Ends of the store's sessions.
    sessions: Mutex<Vec<watch::Receiver<Option<SessionEnd>>>>,
}

pub(crate) enum Work {
    /// Tell when all events so far were told.
    Flush(oneshot::Sender<()>),
    Run(BoxFuture<'static, ()>),
    End,
}

impl ZooKeeper {
    /// Connects to `address`: servers `host:port` apart by commas, then the root that all keys are below, such as
    /// `127.0.0.1:2181/pulsar`; it is made when it is not there. `timeout`: how long the servers keep the session of a store that
    /// they do not hear of.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        address: &str,
        timeout: Duration,
        options: ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let (work, waiting) = mpsc::channel(WAITING_MAX);
        let inner = Arc::new(Inner {
            address: address.to_owned(),
            timeout,
            options,
            client: Mutex::new(None),
            watchers: Watchers::new(),
            work,
            ended: watch::channel(false).0,
            sessions: Mutex::default(),
        });
        let (tell, told) = oneshot::channel();
        let carried = Arc::clone(&inner);
        let thread = spawn_shard("zookeeper".to_owned(), move || carry(carried, waiting, tell));
        let thread = thread.map_err(|error| ConnectError::Thread(error.to_string()))?;
        match told.await {
            Ok(Ok(())) => Ok(Self {
                inner,
                thread: Mutex::new(Some(thread)),
            }),
            Ok(Err(error)) => Err(ConnectError::ZooKeeper {
                address: address.to_owned(),
                error,
            }),
            Err(_) => Err(ConnectError::Thread("it died".to_owned())),
        }
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.inner.ended.send_replace(true);
        let _ = self.inner.work.try_send(Work::End);
    }
}

/// The thread of a store: opens the session, tells of changes, and opens another session when that one expired.
async fn carry(
    inner: Arc<Inner>,
    mut waiting: mpsc::Receiver<Work>,
    connected: oneshot::Sender<Result<(), Error>>,
) {
    let mut watcher = match inner.open().await {
        Ok(watcher) => watcher,
        Err(error) => {
            let _ = connected.send(Err(error));
            return;
        }
    };
    let _ = connected.send(Ok(()));
    while inner.follow(&mut watcher, &mut waiting).await {
        watcher = loop {
            match inner.open().await {
                Ok(watcher) => break watcher,
                Err(error) => tracing::warn!(%error, "cannot connect to ZooKeeper"),
            }
            tokio::time::sleep(PAUSE).await;
            if *inner.ended.borrow() {
                return;
            }
        };
        inner.watchers.tell(Event::Lagged);
    }
    inner.lock().take();
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client(&self) -> Result<Client, Arc<Fault>> {
        self.lock().clone().ok_or_else(shut_down)
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// A client of a session of its own. On the store's thread.
    pub(crate) async fn new_client(&self, timeout: Duration) -> Result<Client, Error> {
        let (servers, root) = self.address.split_once('/').unwrap_or((&self.address, ""));
        let root = root.trim_matches('/');
        let mut connector = Client::connector().with_session_timeout(timeout);
        let mut servers = servers.to_owned();
        if let Some(tls) = &self.options.tls {
            connector = connector.with_tls(tls.read()?);
            servers = format!("tcp+tls://{}", servers.replace(',', ",tcp+tls://"));
        }
        if let Some(sasl) = self.options.sasl() {
            connector = connector.with_sasl(sasl);
        }
        let client = connector.connect(&servers).await?;
        if root.is_empty() {
            return Ok(client);
        }
        let root = format!("/{root}");
        tree::make_parents(&client, self.options.acl, &format!("{root}/x")).await?;
        let refused = |_| Error::UnexpectedError(format!("{root} is no path"));
        client.chroot(root.clone()).map_err(refused)
    }

    async fn open(&self) -> Result<PersistentWatcher, Error> {
        let client = self.new_client(self.timeout).await?;
        let watcher = client.watch("/", AddWatchMode::PersistentRecursive).await?;
        *self.lock() = Some(client);
        Ok(watcher)
    }

    /// Tells of changes until the session or the store ends. Whether it was the session.
    async fn follow(&self, watcher: &mut PersistentWatcher, waiting: &mut mpsc::Receiver<Work>) -> bool {
        loop {
            tokio::select! {
                // In this order: the events of a write are there before its answer is, and so before it asks for the flush.
                biased;
                event = watcher.changed() => {
                    if event.event_type == EventType::Session && event.session_state.is_terminated() {
                        return !self.is_ended();
                    }
                    self.tell(event).await;
                }
                work = waiting.recv() => match work {
                    Some(Work::Flush(done)) => {
                        let _ = done.send(());
                    }
                    Some(Work::Run(work)) => spawn_local(work),
                    Some(Work::End) | None => return false,
                }
            }
        }
    }

    async fn tell(&self, event: WatchedEvent) {
        let key: Arc<str> = event.path.trim_start_matches('/').into();
        match event.event_type {
            // What happened while there was no connection is not told again.
            EventType::Session if event.session_state == SessionState::SyncConnected => {
                self.watchers.tell(Event::Lagged);
            }
            EventType::NodeDeleted => self.watchers.tell(Event::Deleted { key }),
            EventType::NodeCreated | EventType::NodeDataChanged => {
                if let Some(version) = self.version_in(&event).await {
                    self.watchers.tell(Event::Put { key, version });
                }
            }
            EventType::Session | EventType::NodeChildrenChanged => {}
        }
    }

    /// Servers before 3.9 do not say which transaction it was.
    async fn version_in(&self, event: &WatchedEvent) -> Option<Version> {
        if event.zxid != WatchedEvent::NO_ZXID {
            return u64::try_from(event.zxid).ok().map(Version);
        }
        let client = self.client().ok()?;
        let stat = client.check_stat(&event.path).await.ok()??;
        Some(tree::version_of(&stat))
    }

    /// Waits until watches were told of what this store wrote.
    pub(crate) async fn flush(&self) {
        let (tell, told) = oneshot::channel();
        if self.work.send(Work::Flush(tell)).await.is_ok() {
            // An error: the store ended, and with it the watches.
            let _ = told.await;
        }
    }

    /// Runs on the store's thread.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (tell, told) = oneshot::channel();
        let work = async move {
            let _ = tell.send(work.await);
        };
        self.work.send(Work::Run(work.boxed())).await.ok()?;
        told.await.ok()
    }

    /// As [`flush`](Self::flush), of what another session wrote: its events come on their own way.
    pub(crate) async fn flush_after_others(&self) {
        if let Ok(client) = self.client() {
            let _ = client.sync("/").await;
        }
        self.flush().await;
    }

    /// The store waits for this end when it is shut down.
    pub(crate) fn remember(&self, end: watch::Receiver<Option<SessionEnd>>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|end| end.borrow().is_none());
        sessions.push(end);
    }

    fn reader(&self) -> Result<Client, ReadError> {
        self.client().map_err(ReadError::Fault)
    }

    fn writer(&self) -> Result<Client, WriteError> {
        self.client().map_err(WriteError::Fault)
    }
}

pub(crate) fn shut_down() -> Arc<Fault> {
    Fault::new("use the metadata store", "it was shut down")
}

fn read_fault(error: Error) -> ReadError {
    ReadError::Fault(tree::fault("read from ZooKeeper", &error))
}

impl MetadataStore for ZooKeeper {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_read(&key)?;
            let found = self.inner.reader()?.get_data(&tree::path_of(&key)).await;
            match found {
                Ok((value, stat)) if tree::is_key(&stat) => Ok(Some(Versioned {
                    value: value.into(),
                    version: tree::version_of(&stat),
                })),
                Ok(_) | Err(Error::NoNode) => Ok(None),
                Err(error) => Err(read_fault(error)),
            }
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_write(&key, &value)?;
            let client = self.inner.writer()?;
            let version = tree::put(&client, self.inner.options.acl, &key, &value, expect).await?;
            self.inner.flush().await;
            Ok(version)
        })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_write(&key, &[])?;
            let client = self.inner.writer()?;
            let existed = tree::delete(&client, &key, expect).await?;
            self.inner.flush().await;
            Ok(existed)
        })
    }

    fn sequence(&self, key: &str) -> BoxFuture<'_, Result<u64, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_write(&key, &[])?;
            let client = self.inner.writer()?;
            tree::sequence(&client, self.inner.options.acl, &key).await
        })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let client = self.inner.reader()?;
            tree::list(&client, &prefix).await.map_err(read_fault)
        })
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let client = self.inner.reader()?;
            tree::scan(&client, &prefix).await.map_err(read_fault)
        })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.inner.watchers.watch(prefix)
    }

    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        Box::pin(async move {
            if self.inner.is_ended() {
                return Err(SessionError::Fault(shut_down()));
            }
            let inner = Arc::clone(&self.inner);
            let opened = self
                .inner
                .run(async move { session::open(inner, timeout).await })
                .await;
            opened.unwrap_or_else(|| Err(SessionError::Fault(shut_down())))
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.inner.ended.send_replace(true) {
                return;
            }
            let sessions =
                std::mem::take(&mut *self.inner.sessions.lock().unwrap_or_else(PoisonError::into_inner));
            for mut end in sessions {
                let _ = end.wait_for(Option::is_some).await;
            }
            self.inner.watchers.end();
            self.inner.lock().take();
            let _ = self.inner.work.send(Work::End).await;
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread {
                // It ends at once; a panic there was logged.
                let _ = thread.joined().await;
            }
        })
    }
}
