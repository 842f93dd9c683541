//! Context of a shard for its parts, with access to the other shards.

use std::cell::Cell;
use std::sync::Arc;

use pharos_accounts::tally::Tally;
use pharos_feed::ids::{ConnectionId, ShardId, TopicId};
use pharos_replication::RemoteLinks;
use pharos_requests::error::Gone;
use pharos_types::TopicName;
use tokio::sync::{mpsc, oneshot};

use crate::connection_handle::ConnectionEvent;
use crate::mesh::Mesh;
use crate::message::{AnswerTo, Ask, HomeMessage, Message};
use crate::placement::Placed;
use crate::shared::Shared;

/// Shard, as its parts and its topics see it.
pub struct ShardContext {
    /// Id of the shard.
    pub id: ShardId,
    /// State shared by all shards.
    pub shared: Arc<Shared>,
    /// Counters of the shard.
    pub tally: Tally,
    /// The way to other shards, and to this one.
    pub mesh: Mesh,
    /// The way to other clusters.
    pub remote: RemoteLinks,
    next_number: Cell<u64>,
}

impl ShardContext {
    /// On the thread of shard `id`. `inboxes`: one per shard, in order.
    pub fn new(id: ShardId, shared: Arc<Shared>, inboxes: &[mpsc::Sender<Vec<Message>>]) -> Self {
        let options = &shared.options;
        let remote = RemoteLinks::new(&options.cluster_name, options.replication.clone());
        Self {
            id,
            shared,
            remote,
            tally: Tally::default(),
            mesh: Mesh::start(id, inboxes),
            next_number: Cell::new(1),
        }
    }

    /// True if this shard serves the topic.
    pub fn is_home_of(&self, topic: &TopicName) -> bool {
        self.shared.placement.of(topic) == Placed::Here(self.id)
    }

    /// A number that is unique on this shard.
    #[inline]
    pub fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        number
    }

    /// A number that is unique in the process, and rises on the shard.
    #[inline]
    pub fn global_number(&self) -> u64 {
        (u64::from(self.id.0) << 48) | self.number()
    }

    /// Queues a message for a shard; never waits.
    #[inline]
    pub fn send(&self, to: ShardId, message: Message) {
        self.shared.mesh_budget.take(message.bytes());
        self.mesh.send(to, message);
    }

    /// Queues a message for the home of a topic.
    #[inline]
    pub fn send_home(&self, topic: TopicId, message: HomeMessage) {
        self.send(topic.home, Message::Home(topic, message));
    }

    /// Queues an event for a connection, wherever it lives.
    #[inline]
    pub fn tell_connection(&self, connection: ConnectionId, event: ConnectionEvent) {
        self.send(connection.shard, Message::Connection(connection, event));
    }

    /// Asks a shard and waits for the answer.
    ///
    /// # Errors
    /// [`Gone`] when that shard stopped.
    ///
    /// Cancel safety: dropping the future does not stop what was asked for.
    pub async fn ask<T>(&self, to: ShardId, ask: impl FnOnce(AnswerTo<T>) -> Ask) -> Result<T, Gone> {
        let (answer, result) = oneshot::channel();
        self.send(to, Message::Ask(ask(answer)));
        result.await.map_err(|_| Gone)
    }
}
