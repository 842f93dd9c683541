//! Connection to a broker, multiplexed: the handle that producers, consumers and requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pharos_wire::command::Command;
use pharos_wire::encode;
use pharos_wire::proto::CommandConnected;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::driver::{self, Routes};
use crate::refresh::Refresh;
use crate::{ClientError, ConnectOptions, RawConnection, credentials};

/// A connection to a broker. Cheap to clone; it closes when the last clone, producer, consumer and watcher is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: mpsc::Sender<Bytes>,
    routes: Arc<Routes>,
    /// Address of the broker.
    address: String,
    /// Broker's CONNECTED command.
    connected: CommandConnected,
    operation_timeout: Duration,
    /// Request, producer and consumer ids; one counter is enough to keep each kind apart.
    next_id: AtomicU64,
    /// Ends with the connection. The writer ends by itself, once it has written what is queued.
    reader: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
        self.routes
            .end(ClientError::disconnected("closed by this client"));
    }
}

impl Connection {
    /// Connects and shakes hands. Must be called within a tokio runtime, which then drives the connection.
    ///
    /// `address`: `host:port`, `pulsar://host:port` or `pulsar+ssl://host:port`.
    ///
    /// # Errors
    /// `Address`, `Connect`, `Tls`, `Credentials`, `Refused`, `TimedOut`, `Disconnected`.
    pub async fn connect(address: &str, options: ConnectOptions) -> Result<Self, ClientError> {
        let limit = options.operation_timeout;
        let connecting = async {
            let mut command = options.command.clone();
            if let Some(source) = &options.credentials {
                command.auth_method_name = Some(source.method().to_owned());
                command.auth_data = Some(credentials::current(source).await?);
            }
            let inside = match &options.inside {
                Some(inside) => inside.open(address).await?,
                None => None,
            };
            let mut raw = match inside {
                Some(stream) => RawConnection::inside(stream),
                None => RawConnection::connect_with(address, &options.tls).await?,
            };
            let connected = raw.handshake(command).await?;
            Ok((raw, connected))
        };
        let (raw, connected) = match tokio::time::timeout(limit, connecting).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(ClientError::TimedOut { what: "CONNECT" }),
        };
        Ok(Self::start(address, raw, connected, &options))
    }

    /// Puts a connection that has shaken hands into the care of two tasks.
    fn start(
        address: &str,
        raw: RawConnection,
        connected: CommandConnected,
        options: &ConnectOptions,
    ) -> Self {
        let (read_half, write_half, received) = raw.into_parts();
        let (queue, queued) = mpsc::channel(options.write_queue.max(1));
        let routes = Arc::new(Routes::default());
        spawn(driver::write(write_half, queued, Arc::clone(&routes)));
        let refresh = Refresh::new(options.source(), queue.downgrade(), Arc::clone(&routes));
        let reading = driver::read(
            read_half,
            received,
            queue.downgrade(),
            Arc::clone(&routes),
            refresh,
            options.keep_alive,
        );
        let reader = spawn(reading);
        Self {
            inner: Arc::new(Inner {
                queue,
                routes,
                address: address.to_owned(),
                connected,
                operation_timeout: options.operation_timeout,
                next_id: AtomicU64::new(0),
                reader,
            }),
        }
    }

    /// Returns the broker's CONNECTED command.
    #[must_use]
    pub fn connected(&self) -> &CommandConnected {
        &self.inner.connected
    }

    /// Returns the address, as it was given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// Returns the reason why the connection ended; `None` while it is open.
    #[must_use]
    pub fn end_reason(&self) -> Option<ClientError> {
        self.inner.routes.open().err()
    }

    /// True if both are handles of the same connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Sends any command and waits for whatever answers it, an ERROR as well. For tests; the other methods are built
    /// on it and know their answers.
    ///
    /// `build` gets the request id to put into the command.
    ///
    /// # Errors
    /// `TimedOut`, `Disconnected`.
    pub async fn request<C: Into<Command>>(
        &self,
        what: &'static str,
        build: impl FnOnce(u64) -> C,
    ) -> Result<Command, ClientError> {
        let request_id = self.next_id();
        let (sender, answer) = oneshot::channel();
        self.routes()?.requests.insert(request_id, sender);
        let _forget = Forget {
            routes: &self.inner.routes,
            request_id,
        };
        let asking = async {
            self.send(build(request_id)).await?;
            answer.await.map_err(|_| self.inner.routes.end_reason())
        };
        match tokio::time::timeout(self.inner.operation_timeout, asking).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ClientError::TimedOut { what }),
        }
    }

    /// Sends any command without waiting for an answer; resolves when it is queued.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn send(&self, command: impl Into<Command>) -> Result<(), ClientError> {
        self.send_bytes(encode::encode_command(&command.into())).await
    }

    /// Sends bytes as they are, between two frames; resolves when they are queued.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn send_bytes(&self, bytes: impl Into<Bytes>) -> Result<(), ClientError> {
        self.slot().await?.send(bytes.into());
        Ok(())
    }

    /// A request whose refusal is an error.
    pub(crate) async fn ask<C: Into<Command>>(
        &self,
        what: &'static str,
        build: impl FnOnce(u64) -> C,
    ) -> Result<Command, ClientError> {
        match self.request(what, build).await? {
            Command::Error(error) => Err(ClientError::refused(Some(error.error), Some(error.message))),
            answer => Ok(answer),
        }
    }

    /// A request that is answered by SUCCESS.
    pub(crate) async fn ask_success<C: Into<Command>>(
        &self,
        what: &'static str,
        build: impl FnOnce(u64) -> C,
    ) -> Result<(), ClientError> {
        match self.ask(what, build).await? {
            Command::Success(_) => Ok(()),
            other => Err(unexpected(what, &other)),
        }
    }

    /// A place in the write queue: what is then put into it goes out in the order in which places were taken.
    pub(crate) async fn slot(&self) -> Result<mpsc::Permit<'_, Bytes>, ClientError> {
        let slot = self.inner.queue.reserve().await;
        let slot = slot.map_err(|_| self.inner.routes.end_reason())?;
        // The writer may not have noticed yet what the reader has.
        drop(self.routes()?);
        Ok(slot)
    }

    /// Sends a command if there is room for it now; for destructors, which cannot wait.
    pub(crate) fn send_if_room(&self, command: &Command) {
        let _ = self.inner.queue.try_send(encode::encode_command(command));
    }

    /// Checks that the broker accepts an entry of this size, in bytes.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), ClientError> {
        let limit = self.inner.connected.max_message_size;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        // The broker leaves room for metadata beyond the limit; what is over even that is refused here, because the
        // broker would close the connection.
        match limit.map(pharos_wire::frame::frame_bytes_max) {
            Some(bytes_max) if bytes > bytes_max => Err(ClientError::TooLarge { bytes, bytes_max }),
            _ => Ok(()),
        }
    }

    pub(crate) fn routes(&self) -> Result<std::sync::MutexGuard<'_, driver::Table>, ClientError> {
        self.inner.routes.open()
    }

    pub(crate) fn remaining_routes(&self) -> std::sync::MutexGuard<'_, driver::Table> {
        self.inner.routes.lock()
    }

    pub(crate) fn end_reason_now(&self) -> ClientError {
        self.inner.routes.end_reason()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.inner.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn operation_timeout(&self) -> Duration {
        self.inner.operation_timeout
    }
}

/// Takes a request off the table when its caller has gone.
struct Forget<'a> {
    routes: &'a Routes,
    request_id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.routes.lock().requests.remove(&self.request_id);
    }
}

pub(crate) fn unexpected(what: &'static str, got: &Command) -> ClientError {
    ClientError::Unexpected {
        what,
        got: got.command_type(),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client lives in whatever runtime its user has, which need not be a shard; its tasks end with the connection"
)]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}
