//! The loop that handles what other shards and this one sent here, one message after the other, each to its end.
//!
//! Always true: what comes from one shard is handled in the order in which it was sent; see [`Mesh`](pharos_mesh::Mesh).

use std::any::Any;
use std::rc::Rc;

use pharos_feed::ids::{ConnectionId, TopicId};
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::{Ask, ConnectionEvent, FeedMessage, HomeMessage, Message, Receipt};
use pharos_runtime::{Nanos, clock, spawn_local};

use super::{Inbox, Shard};
use crate::home::DeleteIf;

/// Maximum time to handle messages before the sockets are served, in nanoseconds.
const HANDLE_NANOS_MAX: u64 = 500_000;
/// Times that a shard's own messages are taken before it looks at its inbox again.
const OWN_ROUNDS_MAX: u32 = 4;

/// Turns in so much time up to which a shard has little to do.
const CALM_TURNS_MAX: u32 = 8;
const CALM_NANOS: u64 = 10_000_000;

/// Tells whether a shard has little to do. Then answers should leave at once; otherwise it is better to collect them.
#[derive(Default)]
struct Calm {
    since: Nanos,
    turns: u32,
}

impl Calm {
    /// Counts a turn; whether it is one of few.
    fn is_turn(&mut self) -> bool {
        let now = clock::now();
        if now.since(self.since) > CALM_NANOS {
            (self.since, self.turns) = (now, 0);
        }
        self.turns += 1;
        self.turns <= CALM_TURNS_MAX
    }
}

impl Shard {
    pub(super) async fn run_inbox(self: Rc<Self>, mut inbox: Inbox) {
        let mut calm = Calm::default();
        loop {
            let batch = tokio::select! {
                biased; // What this shard told itself is taken after every batch anyhow.
                batch = inbox.recv() => match batch {
                    Some(batch) => batch,
                    None => return,
                },
                () = self.cx.mesh.own_filled() => Vec::new(),
            };
            self.handle_batch(batch).await;
            // What this shard told itself meanwhile. Bounded, so that other shards and sockets get their turn.
            for _ in 0..OWN_ROUNDS_MAX {
                let own = self.cx.mesh.take_own();
                if own.is_empty() {
                    break;
                }
                self.handle_batch(own).await;
            }
            if calm.is_turn() {
                // What was answered leaves before other shards are woken: to wake a core from its sleep takes longer than this.
                self.connections.pump_next();
            }
            if self.cx.mesh.has_own() {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn handle_batch(self: &Rc<Self>, batch: Vec<Message>) {
        let mut since = clock::now();
        let budget = &self.shared.mesh_budget;
        for message in batch {
            budget.give(message.bytes());
            self.handle(message);
            // Sockets must not wait long for a large batch.
            if clock::now().since(since) > HANDLE_NANOS_MAX {
                tokio::task::yield_now().await;
                since = clock::now();
            }
        }
    }

    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Job(job) => {
                let shard: Rc<dyn Any> = self.clone();
                job(&shard);
            }
            Message::Ask(ask) => self.on_ask(ask),
            Message::Home(topic, message) => {
                if let Some(topic) = self.home.topics.by_id(topic) {
                    topic.on_message(message);
                } else {
                    self.on_topic_gone(topic, message);
                }
            }
            Message::Feed(topic, message) => self.feeds.on_message(topic, message),
            Message::Receipts(receipts) => self.on_receipts(&receipts),
            Message::Connection(connection, event) => {
                if let Some(handle) = self.connections.get(connection) {
                    handle.on_event(event);
                }
            }
        }
    }

    /// Answers a question of a topic. One that was given up meanwhile is answered all the same.
    fn on_ask(&self, ask: Ask) {
        match ask {
            Ask::Probe { connection, answer } => {
                let (connections, timeout) = (self.connections.clone(), self.shared.options.liveness_timeout);
                spawn_local(async move {
                    let _ = answer.send(connections.probe(connection, timeout).await);
                });
            }
            Ask::Acks {
                topic,
                connection,
                key,
                answer,
            } => {
                let acks = self.feeds.look_at_acks(topic, (connection, key), AckState::clone);
                let _ = answer.send(acks);
            }
            Ask::Report { topic, answer } => self.feeds.report(topic, answer),
            Ask::Arrived(answer) => drop(answer.send(())),
            Ask::Delete { topic, answer } => {
                let home = self.home.clone();
                spawn_local(async move {
                    let _ = answer.send(home.delete_topic(&topic, DeleteIf::Always).await);
                });
            }
        }
    }

    /// Answers a message whose sender waits for an answer.
    fn on_topic_gone(&self, topic: TopicId, message: HomeMessage) {
        match message {
            HomeMessage::Publish { from, entries, .. } => {
                self.cx.tell_connection(from, ConnectionEvent::dropped(&entries));
            }
            HomeMessage::Read { shard, from, .. } => {
                self.cx
                    .send(shard, Message::Feed(topic, FeedMessage::ReadFailed { from }));
            }
            _ => {}
        }
    }

    /// Hands each connection its run of receipts. They come grouped by publish batch, so runs are long.
    fn on_receipts(&self, receipts: &[(ConnectionId, Receipt)]) {
        let mut run = Vec::new();
        for part in receipts.chunk_by(|a, b| a.0 == b.0) {
            let Some((connection, _)) = part.first() else {
                continue;
            };
            if let Some(handle) = self.connections.get(*connection) {
                run.clear();
                run.extend(part.iter().map(|(_, receipt)| *receipt));
                handle.on_receipts(&run);
            }
        }
    }
}
