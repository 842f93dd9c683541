//! Transport of messages between shards: collected while a shard works, sent as one batch when it pauses.
//!
//! A sender never waits: it appends to the destination's outbox, and one task per destination moves the collected
//! messages into the destination's bounded inbox. An inbox is drained by a loop that never waits for another shard,
//! so there is no cycle of waiting.
//!
//! Outboxes are bounded by reading less. All messages in flight between shards count against one budget of the
//! process (`Shared::mesh_budget`, `MESH_BYTES_MAX`), and while that is exhausted no connection is read. Messages
//! sent without a read are bounded otherwise: answers by the requests in flight on connections, dispatched entries by
//! their consumers' windows, reads by the account of the shard that asked (`feed::CatchUpReadBudget`), calls by their
//! callers. So outboxes and inboxes together hold at most the budget, and beyond it
//!   - one turn of reading per shard: a buffer of frames, at most one of them of the largest size;
//!   - entries already published and on their way to listening shards: the publish budget, once per shard (the bytes themselves
//!     are shared, only the references are many).
//!
//! A batch leaves after the current work of the shard, a turn of writing included, because waking another core is
//! slow. Messages that start work parallel to this shard's own do not wait for that: [`Mesh::hurry`].
//!
//! Messages of a shard to itself never pass through its inbox: the loop takes them straight from the outbox. Two
//! paths to the same destination would let later messages overtake earlier ones.
//!
//! Always true: messages from one shard to another, or to itself, are handled in the order in which they were sent.

use std::cell::RefCell;
use std::rc::Rc;

use pharos_feed::ids::ShardId;
use tokio::sync::{Notify, mpsc};

use crate::message::Message;

/// Bytes of messages between shards, about, above which connections are not read. Far above what a busy broker has on
/// its way: it takes a shard that stands still, or peers who send nothing but requests that travel.
pub const MESH_BYTES_MAX: u64 = 64 << 20;

/// Batches that an inbox holds before its senders wait.
pub const INBOX_BATCHES: usize = 256;

/// The sending side, on one shard.
pub struct Mesh {
    own: ShardId,
    outboxes: Vec<Rc<Outbox>>,
}

struct Outbox {
    messages: RefCell<Vec<Message>>,
    filled: Notify,
    /// Inbox of the destination; `None` for the own shard.
    inbox: Option<mpsc::Sender<Vec<Message>>>,
}

impl Mesh {
    /// Sets up the outboxes of shard `own` and starts their tasks. `inboxes`: one per shard, in order.
    pub fn start(own: ShardId, inboxes: &[mpsc::Sender<Vec<Message>>]) -> Self {
        let outboxes = inboxes
            .iter()
            .enumerate()
            .map(|(index, inbox)| {
                let is_other = index != own.index();
                let outbox = Rc::new(Outbox {
                    messages: RefCell::default(),
                    filled: Notify::new(),
                    inbox: is_other.then(|| inbox.clone()),
                });
                if is_other {
                    pharos_runtime::spawn_local(carry(outbox.clone(), inbox.clone()));
                }
                outbox
            })
            .collect();
        Self { own, outboxes }
    }

    /// Number of shards.
    pub fn shard_count(&self) -> usize {
        self.outboxes.len()
    }

    /// Queues a message; it leaves when the shard pauses. To the own shard as well, so that handlers never nest.
    #[inline]
    pub fn send(&self, to: ShardId, message: Message) {
        let Some(outbox) = self.outboxes.get(to.index()) else {
            debug_assert!(false, "shard {} of {}", to.0, self.outboxes.len());
            return;
        };
        let mut messages = outbox.messages.borrow_mut();
        messages.push(message);
        if messages.len() == 1 {
            outbox.filled.notify_one();
        }
    }

    /// Has what is queued for another shard leave now, if its inbox has room; otherwise it leaves as ever.
    pub fn hurry(&self, to: ShardId) {
        let Some(outbox) = self.outboxes.get(to.index()) else {
            return;
        };
        let permit = outbox.inbox.as_ref().and_then(|inbox| inbox.try_reserve().ok());
        if let Some(permit) = permit {
            outbox.send_all(permit);
        }
    }

    /// Resolves when something was queued for the own shard; at times also when that has been taken already.
    ///
    /// Cancel safety: nothing is lost.
    pub async fn own_filled(&self) {
        match self.outboxes.get(self.own.index()) {
            Some(outbox) => outbox.filled.notified().await,
            None => std::future::pending().await,
        }
    }

    /// True if messages are queued for the own shard.
    #[inline]
    pub fn has_own(&self) -> bool {
        self.outboxes
            .get(self.own.index())
            .is_some_and(|outbox| !outbox.messages.borrow().is_empty())
    }

    /// Takes what was queued for the own shard.
    #[inline]
    pub fn take_own(&self) -> Vec<Message> {
        self.outboxes
            .get(self.own.index())
            .map(|outbox| std::mem::take(&mut *outbox.messages.borrow_mut()))
            .unwrap_or_default()
    }
}

impl Outbox {
    fn send_all(&self, permit: mpsc::Permit<'_, Vec<Message>>) {
        let batch = std::mem::take(&mut *self.messages.borrow_mut());
        if !batch.is_empty() {
            permit.send(batch);
        }
    }
}

async fn carry(outbox: Rc<Outbox>, inbox: mpsc::Sender<Vec<Message>>) {
    loop {
        outbox.filled.notified().await;
        // Room first, then the batch: what comes while the inbox is full joins the same batch.
        let Ok(permit) = inbox.reserve().await else { return };
        outbox.send_all(permit);
    }
}
