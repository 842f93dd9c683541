//! The way of accepted connections to the threads on which it is found out who their client is; see `entry`.

use std::sync::Arc;

use pharos_transport::{Incoming, Place};
use tokio::sync::mpsc;

/// Connections that wait for one of the threads; then those that come wait to be accepted.
const WAITING_MAX: usize = 256;

/// A connection that was accepted, on its way to its thread.
pub(crate) struct Newcomer {
    pub(crate) incoming: Incoming,
    pub(crate) place: Place,
    /// The listener by whose door it came.
    pub(crate) listener: Option<Arc<str>>,
}

/// The way to the threads. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EntryQueue(Arc<[mpsc::Sender<Newcomer>]>);

/// Queues of new connections, one for each thread.
pub(crate) struct Newcomers(pub(crate) Vec<mpsc::Receiver<Newcomer>>);

impl EntryQueue {
    /// To so many threads, which are yet to be started.
    pub(crate) fn new(threads: usize) -> (Self, Newcomers) {
        let channels = (0..threads).map(|_| mpsc::channel(WAITING_MAX));
        let (senders, receivers): (Vec<_>, _) = channels.unzip();
        (Self(senders.into()), Newcomers(receivers))
    }

    /// Takes a connection there. Waits while too many are before it.
    pub(crate) async fn take(&self, incoming: Incoming, place: Place, listener: Option<Arc<str>>) {
        if let Some(thread) = self.0.get(place.shard()) {
            let newcomer = Newcomer {
                incoming,
                place,
                listener,
            };
            // A closed channel means that the broker stops, and the connection with it.
            let _ = thread.send(newcomer).await;
        }
    }
}
