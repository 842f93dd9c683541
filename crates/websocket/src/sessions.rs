//! Owner of the sessions: limits their number, and ends all of them with the node.
//!
//! Owned by one task; sessions are its children, and each holds its slot until it ends.

use std::pin::Pin;
use std::sync::Arc;

use hyper::StatusCode;
use pharos_runtime::ShutdownToken;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::UpgradeRefusal;

/// Sessions that wait to be begun.
const NEWCOMERS_MAX: usize = 64;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The sessions of a door.
pub struct Sessions {
    newcomers: mpsc::Receiver<Task>,
    stop: ShutdownToken,
}

/// The way of a new session to those who keep it.
#[derive(Clone)]
pub(crate) struct Newcomers {
    places: Arc<Semaphore>,
    sessions: mpsc::Sender<Task>,
}

impl Sessions {
    pub(crate) fn new(sessions_max: usize, stop: ShutdownToken) -> (Newcomers, Self) {
        let (sender, newcomers) = mpsc::channel(NEWCOMERS_MAX);
        let places = Arc::new(Semaphore::new(sessions_max.min(Semaphore::MAX_PERMITS)));
        let sessions = Self { newcomers, stop };
        let way = Newcomers {
            places,
            sessions: sender,
        };
        (way, sessions)
    }

    /// Runs all sessions until it is time to stop, and then until each has said goodbye.
    ///
    /// Cancel safety: dropping the future ends every session at once.
    pub async fn run(mut self) {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.triggered() => break,
                Some(ended) = running.join_next() => report(ended),
                Some(session) = self.newcomers.recv() => drop(running.spawn(session)),
            }
        }
        drop(self.newcomers);
        while let Some(ended) = running.join_next().await {
            report(ended);
        }
    }
}

impl Newcomers {
    /// A place for one session.
    ///
    /// # Errors
    /// 503: there are as many as may be.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, UpgradeRefusal> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let reason = "as many WebSockets are open as may be (web_socket.max_sessions)";
            UpgradeRefusal::new(StatusCode::SERVICE_UNAVAILABLE, reason)
        })
    }

    /// Begins a session.
    ///
    /// # Errors
    /// 503: too many come at once, or the node stops.
    pub(crate) fn begin(
        &self,
        place: OwnedSemaphorePermit,
        session: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), UpgradeRefusal> {
        let session = Box::pin(async move {
            session.await;
            drop(place);
        });
        self.sessions.try_send(session).map_err(|_| {
            UpgradeRefusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many WebSockets come at once",
            )
        })
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a WebSocket session panicked");
    }
}
