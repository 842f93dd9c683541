//! A shard: one thread with its connections, the feeds that they listen to, and the topics whose home it is.
//!
//! Everything here is plain memory of that thread, in parts that own what they know:
//!
//! ```text
//!   Shard              what front doors ask of topics from anywhere (`caller`, `operations`), and the loop that handles messages
//!   ├ Connections      connections, and which of them wait for a turn of writing
//!   ├ Feeds            topics that connections here listen to; what they read, what they send home
//!   ├ Home             topics that live here: loaded, held, unloaded, deleted, maintained
//!   ├ Stalled          connections that take nothing of what they hold
//!   └ ShardContext     which shard it is, the way to the others, what it counts: what every part is given
//! ```
//! Other shards reach it through [`Message`]s only, which one loop handles to the end one after the other; nothing in a handler
//! waits. What must wait (loading a topic, reading from a device) is spawned as a task of the shard and comes back to the same state
//! when it is done.

mod caller;
mod carriers;
mod connection_handles;
mod connections;
mod feed_reads;
mod feeds;
mod flush;
mod inbox;
mod operations;
mod stalled;

use std::any::Any;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use pharos_feed::Room;
use pharos_feed::ids::ShardId;
use pharos_mesh::{Job, Message, ShardContext, Shared};
use pharos_requests::error::Gone;
use pharos_runtime::{ShutdownToken, spawn_local};
use pharos_topic::{Maintenance, Topic, TopicHost};
use tokio::sync::{mpsc, oneshot};

pub use caller::{Caller, WatchedTopics};
pub use connections::Connections;
pub use feeds::Feeds;
pub use pharos_accounts::tally::{Counts, Tally};
pub use pharos_mesh::{ConnectionEvent, ConnectionHandle, Dispatched, ProducerRef, Publish, Pumped, Receipt};
pub use pharos_requests::asked::{
    AddSchemaError, Consume, ConsumeError, Consumed, ListTopicsError, Produce, ProduceError, Refused,
};
pub use pharos_requests::error::ReadAgainError;
pub use stalled::{ReadAgain, Stalled};

use crate::home::Home;

/// Shard of the broker. Lives on its thread.
pub struct Shard {
    /// Id of the shard.
    pub id: ShardId,
    /// State shared by all shards.
    pub shared: Arc<Shared>,
    /// Connections that live here.
    pub connections: Rc<Connections>,
    /// Topics that they listen to.
    pub feeds: Rc<Feeds>,
    /// Connections that take nothing of what they hold.
    pub stalled: Rc<Stalled>,
    /// Topics whose home it is.
    pub(crate) home: Rc<Home>,
    cx: Rc<ShardContext>,
}

/// The receiving end of a shard, made before its thread starts.
pub(crate) type Inbox = mpsc::Receiver<Vec<Message>>;

impl Shard {
    /// Makes the shard on the current thread and starts its loops; they end with the thread's runtime.
    pub(crate) fn start(
        id: ShardId,
        shared: Arc<Shared>,
        inboxes: &[mpsc::Sender<Vec<Message>>],
        inbox: Inbox,
    ) -> Rc<Self> {
        let cx = Rc::new(ShardContext::new(id, shared.clone(), inboxes));
        let connections = Rc::new(Connections::new(id));
        let shard = Rc::new_cyclic(|me| Self {
            id,
            shared: shared.clone(),
            feeds: Feeds::new(cx.clone(), connections.clone()),
            stalled: Stalled::new(shared, connections.clone()),
            home: Rc::new(Home::new(cx.clone(), Rc::new(HostOf(me.clone())))),
            connections,
            cx,
        });
        spawn_local(shard.clone().run_inbox(inbox));
        spawn_local(shard.connections.clone().run_pumps());
        spawn_local(shard.feeds.clone().run_flush());
        spawn_local(shard.feeds.clone().run_forget());
        for what in Maintenance::ALL {
            spawn_local(shard.home.clone().run_maintenance(what));
        }
        spawn_local(shard.home.clone().run_policies());
        spawn_local(shard.home.clone().run_unfinished());
        spawn_local(shard.home.clone().run_losses());
        spawn_local(shard.home.clone().run_carriers());
        spawn_local(shard.home.clone().run_replicated());
        spawn_local(shard.home.clone().run_samples());
        if id == ShardId(0) {
            spawn_local(shard.home.clone().run_sweeps());
            spawn_local(shard.home.clone().run_catalog());
        }
        shard
    }

    /// A number that is unique on this shard, for a front door's own bookkeeping.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.cx.number()
    }

    /// Returns the counters of connections, lookups and loads.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.cx.tally
    }

    /// The token that says when to stop.
    #[must_use]
    pub fn shutdown_token(&self) -> ShutdownToken {
        self.shared.shutdown.clone()
    }

    /// Runs something on another shard soon. It is dropped when that shard stops first.
    pub fn run_on(&self, to: ShardId, work: impl FnOnce(&Rc<Shard>) + Send + 'static) {
        self.cx.send(to, Message::Job(job(work)));
    }

    /// Runs a piece of asynchronous work on another shard and waits for its result.
    ///
    /// # Errors
    /// [`Gone`] when that shard stopped or the work was dropped.
    ///
    /// Cancel safety: dropping the future does not stop work that was sent.
    async fn call<R, F, W>(&self, to: ShardId, work: W) -> Result<R, Gone>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.cx.send(to, Message::Job(job_with_answer(work, answer)));
        result.await.map_err(|_| Gone)
    }
}

/// Wraps work into what any shard can run.
pub(crate) fn job(work: impl FnOnce(&Rc<Shard>) + Send + 'static) -> Job {
    Box::new(
        move |shard: &Rc<dyn Any>| match shard.clone().downcast::<Shard>() {
            Ok(shard) => work(&shard),
            Err(_) => debug_assert!(false, "the work came to what is no shard"),
        },
    )
}

/// Wraps asynchronous work into what any shard can run.
pub(crate) fn job_with_answer<R, F, W>(work: W, answer: oneshot::Sender<R>) -> Job
where
    R: Send + 'static,
    W: FnOnce(Rc<Shard>) -> F + Send + 'static,
    F: Future<Output = R> + 'static,
{
    job(move |shard| {
        // Boxed: the task would hold it twice, and that of a consumer is thousands of bytes.
        let future = Box::pin(work(shard.clone()));
        spawn_local(async move {
            // The caller waits for the answer no more: the work is done all the same.
            let _ = answer.send(future.await);
        });
    })
}

/// Link from a topic to its shard that does not keep the shard alive.
struct HostOf(Weak<Shard>);

impl TopicHost for HostOf {
    fn room_to_read(&self, bytes_max: usize) -> Result<Room, oneshot::Receiver<Room>> {
        match self.0.upgrade() {
            Some(shard) => shard.feeds.room_to_read(bytes_max),
            // The sender is dropped: the shard is going.
            None => Err(oneshot::channel().1),
        }
    }

    fn end_read(&self, room: Room) {
        if let Some(shard) = self.0.upgrade() {
            shard.feeds.end_read(room);
        }
    }

    fn give_up(&self, topic: Rc<Topic>, reason: &str) {
        if let Some(shard) = self.0.upgrade() {
            shard.home.give_up(topic, reason);
        }
    }

    fn come_back(&self, topic: Rc<Topic>, reason: &str) {
        if let Some(shard) = self.0.upgrade() {
            shard.home.come_back(topic, reason);
        }
    }
}
