//! What a connection does with dispatched entries while its socket takes nothing.
//!
//! ```text
//!   socket full ──► stalled ──memory is short──► payloads dropped (set aside), their places kept
//!        ▲             │                                │
//!        └── written ◄─┴──── socket takes bytes ──► read from the log again, in turn ──► written
//! ```
//! So a peer that does not read holds no memory that others need, loses nothing, and gets all in the same order. An entry that
//! was acknowledged by others or has expired meanwhile is left out; if a part of its frame is written already, or it is queued
//! as a frame, the connection is closed. A non-persistent message cannot be read again: then too.
//!
//! Always true: `stalled_since` is set while the socket is full or something is being read again; the shard lists the connection
//! with that time while it holds dispatched payloads as well.

use std::time::Duration;

use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_broker::shard::{ConnectionHandle as _, Pumped, ReadAgain, ReadAgainError};
use pharos_runtime::{clock, spawn_local};
use pharos_types::Ordinal;

use crate::connection::Connection;
use crate::consumer::ConsumerSlot;
use crate::dispatched::Body;
use crate::outgoing::Source;
use crate::sink::payload_for;

/// How long to wait after a read that failed.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What has to be read again before anything else can be written.
enum Missing {
    /// The rest of a frame.
    Frame(Source),
    /// Entries that are to become frames, all for one consumer.
    Queued {
        key: ConsumerKey,
        topic: TopicId,
        ordinals: Vec<Ordinal>,
        bytes: usize,
    },
}

impl Connection {
    /// The socket is full, or something is to be read again.
    pub(crate) fn stall(&self) {
        if self.stalled_since.get().is_none() {
            self.stalled_since.set(Some(clock::now()));
        }
        self.note_stalled();
    }

    /// Has the shard list the connection if it is stalled and holds something.
    pub(crate) fn note_stalled(&self) {
        if let Some(since) = self.stalled_since.get()
            && (self.dispatched.borrow().holds() || self.out.borrow().holds_dispatched())
        {
            self.shard.stalled.stalls(self.id, since);
        }
    }

    /// The socket takes bytes, or what was read again is here.
    pub(crate) fn unstall(&self) {
        if !self.blocked.get() && !self.is_reading_again.get() {
            self.forget_stall();
        }
    }

    pub(crate) fn forget_stall(&self) {
        if let Some(since) = self.stalled_since.take() {
            self.shard.stalled.goes_on(self.id, since);
        }
    }

    /// Drops what can be read again; what cannot is worth less than the memory, and goes with the connection.
    pub(crate) fn let_go_of_dispatched(&self) {
        if self.out.borrow().has_unstored() || self.dispatched.borrow().has_unstored() {
            tracing::warn!(peer = %self.address,
                "closing a connection that takes nothing of a non-persistent topic while memory is short");
            self.dispatched.borrow_mut().clear();
            return self.close();
        }
        self.out.borrow_mut().set_aside();
        self.dispatched.borrow_mut().set_aside();
    }

    /// Whether something that was set aside is next.
    pub(crate) fn must_read_again(&self) -> bool {
        let is_next =
            matches!(self.dispatched.borrow().front(), Some(item) if matches!(item.body, Body::Aside { .. }));
        (is_next && self.out.borrow().has_room()) || self.out.borrow().missing().is_some()
    }

    /// Reads again what is next, and writes it.
    pub(crate) fn read_again(&self) {
        if self.is_reading_again.replace(true) {
            return;
        }
        self.stall();
        let Some(me) = self.me() else { return };
        spawn_local(async move {
            let again = tokio::select! {
                again = me.fetch() => again,
                () = me.closing.notified() => {
                    me.closing.notify_one();
                    None
                }
            };
            me.is_reading_again.set(false);
            me.unstall();
            me.note_stalled();
            if me.flush_turn() == Pumped::More {
                me.shard.connections.wake(me.id);
            }
            // Others have their turn once this one's socket had its chance.
            drop(again);
        });
    }

    /// Reads what is missing, and puts it back. Others have their turn when the answer is dropped.
    async fn fetch(&self) -> Option<ReadAgain> {
        let mut was_refused = false;
        loop {
            let missing = self.missing()?;
            let (topic, ordinals, bytes) = match &missing {
                Missing::Frame(source) => (source.topic, vec![source.ordinal], source.bytes),
                Missing::Queued {
                    topic,
                    ordinals,
                    bytes,
                    ..
                } => (*topic, ordinals.clone(), *bytes),
            };
            match self.shard.read_again(topic, ordinals, bytes).await {
                Ok(mut again) => {
                    self.bring_back(&missing, &mut again);
                    return Some(again);
                }
                Err(ReadAgainError::Failed(error)) => {
                    tracing::error!(peer = %self.address, error, "cannot read again what a connection is to get");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(error @ ReadAgainError::Closed) => {
                    // If its consumer is being closed, entries that are no frames yet go with it.
                    if was_refused || matches!(missing, Missing::Frame(_)) {
                        tracing::info!(peer = %self.address, %error, "closing a connection for what it is to get");
                        self.close();
                        return None;
                    }
                    was_refused = true;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    fn missing(&self) -> Option<Missing> {
        if let Some(source) = self.out.borrow().missing() {
            return Some(Missing::Frame(source));
        }
        let (queue, consumers) = (self.dispatched.borrow(), self.consumers.borrow());
        let front = queue.front()?;
        let Some(ConsumerSlot::Ready(consumer)) = consumers.get(&front.consumer_id) else {
            return None;
        };
        let (ordinals, bytes) = queue.aside(consumer.key);
        (!ordinals.is_empty()).then_some(Missing::Queued {
            key: consumer.key,
            topic: consumer.topic,
            ordinals,
            bytes,
        })
    }

    fn bring_back(&self, missing: &Missing, again: &mut ReadAgain) {
        match missing {
            Missing::Frame(_) => {
                let back = again.entries.pop().is_some_and(|(entry, held)| {
                    let payload = payload_for(self.protocol_version(), &entry);
                    self.out.borrow_mut().bring_back(payload, held)
                });
                if !back && !self.is_closed() {
                    tracing::info!(peer = %self.address,
                        "closing a connection in the midst of a message that is gone");
                    self.close();
                }
            }
            Missing::Queued { key, topic, .. } => {
                let entries = std::mem::take(&mut again.entries);
                let (messages, bytes) = self
                    .dispatched
                    .borrow_mut()
                    .bring_back(*key, entries, &again.gone);
                if messages > 0 {
                    // It was charged for what it will not get.
                    self.shard.written(*topic, *key, bytes);
                    self.shard.flow(*topic, *key, messages);
                }
            }
        }
    }
}
