//! The way in: an upgrade is answered only when its producer or consumer is there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Request, Response, StatusCode};
use pharos_accounts::unwritten::Unwritten;
use pharos_client::{ClientError, TlsOptions};
use pharos_runtime::ShutdownToken;

use crate::consumer::ConsumerSession;
use crate::consumer_parameters::ConsumerParameters;
use crate::counts::{CountedSession, DoorCounters};
use crate::link::{Caller, EnterBroker, Link, Ways};
use crate::memory::SessionMemory;
use crate::producer::ProducerSession;
use crate::producer_parameters::ProducerParameters;
use crate::query::Query;
use crate::refusal::said;
use crate::sessions::{Newcomers, Sessions};
use crate::socket::{Pace, Socket};
use crate::target::{SessionKind, SessionTarget};
use crate::{UpgradeRefusal, WebSocketCounts, handshake};

/// Time limit for opening a session.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Options of the WebSocket server.
#[derive(Clone)]
pub struct DoorOptions {
    /// `pulsar://host:port` of this broker, as lookups tell it.
    pub service_url: String,
    /// `pulsar+ssl://host:port`, if it speaks TLS.
    pub service_url_tls: Option<String>,
    /// TLS options for other brokers, if they are reached over TLS.
    pub tls: Option<TlsOptions>,
    /// The way into this broker.
    pub enter: EnterBroker,
    /// The broker's account of unwritten bytes, in which messages for callers count.
    pub unwritten: Arc<Unwritten>,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Largest message of a caller, in bytes of its frame.
    pub frame_bytes_max: usize,
    /// Largest payload that is delivered, in bytes.
    pub payload_bytes_max: usize,
    /// A session goes after so long without a word.
    pub idle_max: Duration,
    /// Interval between pings of a caller; `None` for no pings.
    pub ping_interval: Option<Duration>,
}

/// The door. Cheap to clone.
#[derive(Clone)]
pub struct WebSocketDoor {
    ways: Arc<Ways>,
    newcomers: Newcomers,
    pace: Pace,
    unwritten: Arc<Unwritten>,
    payload_bytes_max: usize,
    counters: Arc<DoorCounters>,
    stop: ShutdownToken,
}

impl fmt::Debug for WebSocketDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl WebSocketDoor {
    /// A door, and who keeps its sessions, to be run. They end when `stop` says so.
    #[must_use]
    pub fn new(options: DoorOptions, stop: ShutdownToken) -> (Self, Sessions) {
        let (newcomers, sessions) = Sessions::new(options.sessions_max, stop.clone());
        let own_urls: Vec<String> = std::iter::once(&options.service_url)
            .chain(&options.service_url_tls)
            .cloned()
            .collect();
        let over_tls = options.tls.as_ref().and(options.service_url_tls);
        let ways = Ways {
            own_urls,
            first_url: over_tls.unwrap_or(options.service_url),
            tls: options.tls.unwrap_or_default(),
            enter: options.enter,
        };
        let door = Self {
            ways: Arc::new(ways),
            newcomers,
            pace: Pace {
                frame_bytes_max: options.frame_bytes_max,
                idle_max: options.idle_max,
                ping_interval: options.ping_interval,
            },
            unwritten: options.unwritten,
            payload_bytes_max: options.payload_bytes_max,
            counters: Arc::default(),
            stop,
        };
        (door, sessions)
    }

    /// Session counters.
    #[must_use]
    pub fn counts(&self) -> WebSocketCounts {
        self.counters.read()
    }

    /// Token of a caller in a query, where a browser has to put it.
    #[must_use]
    pub fn token_in(query: &str) -> Option<String> {
        let token = Query::parse(query).ok()?.text(TOKEN)?;
        let token = token.strip_prefix("Bearer ").unwrap_or(&token).trim();
        (!token.is_empty()).then(|| token.to_owned())
    }

    /// Answers an upgrade, and begins its session.
    ///
    /// # Errors
    /// [`UpgradeRefusal`]: there is no session, and what was made for it is gone.
    ///
    /// Cancel safety: dropped, it leaves nothing behind.
    pub async fn answer<B>(
        &self,
        request: Request<B>,
        caller: &Caller,
    ) -> Result<Response<()>, UpgradeRefusal> {
        let answer = handshake::accept(&request)?;
        let target = SessionTarget::of(request.uri().path())?;
        let mut query = Query::parse(request.uri().query().unwrap_or_default())?;
        // Read by who has made `caller`.
        drop(query.text(TOKEN));
        let wish = Wish::of(&target, &mut query)?;
        query.finish()?;
        let place = self.newcomers.place()?;
        let memory = SessionMemory::new(self.unwritten.clone());
        let opening = tokio::time::timeout(OPEN_MAX, self.open(&target, wish, caller, memory.clone()));
        let session = opening.await.map_err(|_| {
            UpgradeRefusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the broker did not answer in time",
            )
        })??;
        tracing::debug!(peer = %caller.address, topic = %target.topic, "a WebSocket session begins");
        let (pace, mut stop) = (self.pace, self.stop.clone());
        let counted = CountedSession::new(self.counters.clone(), target.kind);
        let upgrade = hyper::upgrade::on(request);
        self.newcomers.begin(place, async move {
            let socket = match Socket::upgrade(upgrade, pace, memory).await {
                Ok(socket) => socket,
                Err(error) => return tracing::debug!(%error, "a WebSocket did not begin"),
            };
            match session {
                OpenSession::Produces(session) => session.run(socket, &mut stop).await,
                OpenSession::Consumes(session) => session.run(socket, &mut stop).await,
            }
            drop(counted);
        })?;
        Ok(answer)
    }

    async fn open(
        &self,
        target: &SessionTarget,
        wish: Wish,
        caller: &Caller,
        memory: SessionMemory,
    ) -> Result<OpenSession, UpgradeRefusal> {
        match wish {
            Wish::Produce(parameters) => {
                let link = self.link(caller, Some(parameters.send_max)).await?;
                let producers =
                    ProducerSession::open(link, target, parameters, self.counters.clone()).await?;
                Ok(OpenSession::Produces(Box::new(producers)))
            }
            Wish::Consume(parameters) => {
                let link = self.link(caller, None).await?;
                let (counters, bytes_max) = (self.counters.clone(), self.payload_bytes_max);
                let consumers =
                    ConsumerSession::open(link, target, *parameters, bytes_max, counters, memory).await?;
                Ok(OpenSession::Consumes(Box::new(consumers)))
            }
        }
    }

    async fn link(&self, caller: &Caller, request_max: Option<Duration>) -> Result<Link, UpgradeRefusal> {
        let opened = Link::open(&self.ways, caller, request_max).await;
        opened.map_err(|error| match error {
            // This broker has no room for it.
            ClientError::Connect { cause, .. } => {
                UpgradeRefusal::new(StatusCode::SERVICE_UNAVAILABLE, cause.to_string())
            }
            error => {
                tracing::debug!(peer = %caller.address, reason = said(&error), "a WebSocket is refused");
                error.into()
            }
        })
    }
}

const TOKEN: &str = "token";

/// Requested session.
enum Wish {
    Produce(ProducerParameters),
    Consume(Box<ConsumerParameters>),
}

impl Wish {
    fn of(target: &SessionTarget, query: &mut Query) -> Result<Self, UpgradeRefusal> {
        Ok(match &target.kind {
            SessionKind::Producer => Self::Produce(ProducerParameters::read(query)?),
            SessionKind::Consumer(subscription) => Self::Consume(Box::new(ConsumerParameters::of_consumer(
                &target.topic,
                subscription,
                query,
            )?)),
            SessionKind::Reader => Self::Consume(Box::new(ConsumerParameters::of_reader(query)?)),
        })
    }
}

/// Open session, by its kind.
enum OpenSession {
    Produces(Box<ProducerSession>),
    Consumes(Box<ConsumerSession>),
}

#[cfg(test)]
mod tests {
    use super::WebSocketDoor;

    #[test]
    fn a_token_may_stand_in_the_query() {
        assert_eq!(
            WebSocketDoor::token_in("a=b&token=x.y.z").as_deref(),
            Some("x.y.z")
        );
        assert_eq!(WebSocketDoor::token_in("token=Bearer%20x").as_deref(), Some("x"));
        assert_eq!(WebSocketDoor::token_in("token="), None);
        assert_eq!(WebSocketDoor::token_in("tokens=x"), None);
    }
}
