//! The way of a session to the broker: a client of the Pulsar protocol that shows what the caller has shown.
//!
//! To this broker it leads over a pair of sockets, to the one that owns the topic over the network. What a caller has shown goes to
//! brokers of this cluster only, and never by a way that is less protected than that on which it came. A certificate cannot be shown
//! on: who is known by one alone is served by the broker that owns the topic, and told so by others.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_client::{
    AssignedBroker, Brokers, ClientError, ConnectOptions, Connection, Inside, InsideStream, TlsOptions,
};
use pharos_transport::PeerCertificate;
use pharos_wire::proto::ServerError;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// Time limit for retries of a topic lookup while the topic moves between brokers.
const SETTLE_MAX: Duration = Duration::from_secs(15);
/// Time limit for a request to the broker.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// After so long a silence a broker is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Future of a stream into this broker; bound to no runtime.
pub type Entering = Pin<Box<dyn Future<Output = std::io::Result<std::os::unix::net::UnixStream>> + Send>>;

/// Opens a stream into this broker, for a client at this address that has shown this certificate.
pub type EnterBroker = Arc<dyn Fn(SocketAddr, Option<Arc<PeerCertificate>>) -> Entering + Send + Sync>;

/// Credentials presented by a caller. The debug form hides the secret.
#[derive(Clone, Default)]
pub struct ShownCredentials {
    /// The kind, as Pulsar names it: `token`, `basic`; empty for nothing.
    pub method: String,
    /// A token, or `user:password`.
    pub data: Bytes,
    /// Original principal named by a proxy.
    pub original: Option<String>,
    /// The certificate of its connection.
    pub certificate: Option<Arc<PeerCertificate>>,
}

impl fmt::Debug for ShownCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Caller that requests a WebSocket.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Remote address.
    pub address: SocketAddr,
    /// True if it connected over TLS.
    pub is_encrypted: bool,
    /// Presented credentials.
    pub shown: ShownCredentials,
}

/// This broker, and how others are reached.
#[derive(Clone)]
pub(crate) struct Ways {
    /// The addresses of this broker that lookups tell.
    pub(crate) own_urls: Vec<String>,
    /// URL of the first lookup: the one of these that matches the connection type for other brokers.
    pub(crate) first_url: String,
    /// TLS options for other brokers.
    pub(crate) tls: TlsOptions,
    pub(crate) enter: EnterBroker,
}

/// The way of one caller.
struct CallersWay {
    ways: Arc<Ways>,
    caller: Caller,
}

impl fmt::Debug for CallersWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallersWay")
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

impl CallersWay {
    /// Checks that a request may go to another broker at this address.
    fn may_go_to(&self, address: &str) -> Result<(), ClientError> {
        let shown = &self.caller.shown;
        let by_certificate =
            shown.method.is_empty() && shown.certificate.as_ref().is_some_and(|it| it.is_trusted);
        let reason = if by_certificate {
            "a certificate cannot be shown on to it: ask it there, or show a token"
        } else if self.caller.is_encrypted && !address.starts_with("pulsar+ssl://") {
            "it is asked over TLS only for a caller who came over TLS: see broker_client.tls"
        } else {
            return Ok(());
        };
        Err(ClientError::Address(format!(
            "the topic is at another broker, {address}: {reason}"
        )))
    }
}

impl Inside for CallersWay {
    fn open<'a>(&'a self, address: &'a str) -> InsideStream<'a> {
        Box::pin(async move {
            if !self.ways.own_urls.iter().any(|own| own == address) {
                return self.may_go_to(address).map(|()| None);
            }
            let failed = |cause: std::io::Error| ClientError::Connect {
                address: address.to_owned(),
                cause: Arc::new(cause),
            };
            let entering = (self.ways.enter)(self.caller.address, self.caller.shown.certificate.clone());
            let stream = entering.await.map_err(failed)?;
            UnixStream::from_std(stream).map(Some).map_err(failed)
        })
    }
}

/// A session's way to the brokers of its topics. A clone has the same connections, and makes its own where it needs others.
#[derive(Clone)]
pub(crate) struct Link {
    brokers: Brokers,
}

impl Link {
    /// Connects, and shows what the caller has shown. `request_max`: how long a request, and the receipt of a message, may take.
    ///
    /// # Errors
    /// As of a client that connects.
    pub(crate) async fn open(
        ways: &Arc<Ways>,
        caller: &Caller,
        request_max: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let way = CallersWay {
            ways: ways.clone(),
            caller: caller.clone(),
        };
        let mut options = ConnectOptions {
            inside: Some(Arc::new(way)),
            ..ConnectOptions::default()
        }
        .keep_alive(KEEP_ALIVE)
        .operation_timeout(REQUEST_MAX.max(request_max.unwrap_or_default()))
        .tls(ways.tls.clone());
        let (shown, connect) = (&caller.shown, &mut options.command);
        connect.client_version = concat!("Pharos-websocket-v", env!("CARGO_PKG_VERSION")).to_owned();
        connect.original_principal.clone_from(&shown.original);
        let by_certificate = shown.certificate.as_ref().is_some_and(|it| it.is_trusted);
        if !shown.method.is_empty() {
            connect.auth_method_name = Some(shown.method.clone());
            connect.auth_data = Some(shown.data.clone());
        } else if by_certificate {
            connect.auth_method_name = Some("tls".to_owned());
        }
        // What expires here cannot be shown anew: the broker closes the session then.
        if let Some(flags) = &mut connect.feature_flags {
            flags.supports_auth_refresh = Some(false);
        }
        let brokers = Brokers::connect(&ways.first_url, options).await?;
        Ok(Self { brokers })
    }

    /// The topics behind a name: its partitions, or itself.
    ///
    /// # Errors
    /// As any request.
    pub(crate) async fn topics(&mut self, topic: &str) -> Result<Vec<String>, ClientError> {
        let count = self.brokers.first().await?.partitions(topic).await?;
        if count == 0 {
            return Ok(vec![topic.to_owned()]);
        }
        Ok((0..count)
            .map(|index| format!("{topic}-partition-{index}"))
            .collect())
    }

    /// Does something at the broker that serves a topic; again when that is just changing.
    ///
    /// # Errors
    /// As `act` and as a lookup.
    pub(crate) async fn at<T, F>(
        &mut self,
        topic: &str,
        mut assigned: Option<AssignedBroker>,
        mut act: impl FnMut(Connection) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let deadline = Instant::now() + SETTLE_MAX;
        let mut pause = Duration::from_millis(50);
        loop {
            let connection = match assigned.take() {
                Some(assigned) => self.brokers.assigned(&assigned).await,
                None => self.brokers.serving(topic).await,
            };
            let outcome = match connection {
                Ok(connection) => act(connection).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if is_passing(&error) && Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                outcome => return outcome,
            }
        }
    }
}

/// True if the topic may be moving from one broker to another.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { code, .. } => *code == ServerError::ServiceNotReady,
        ClientError::Redirected { .. } | ClientError::ClosedByBroker | ClientError::Disconnected { .. } => {
            true
        }
        _ => false,
    }
}
