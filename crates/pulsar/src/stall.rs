//! Entries that a connection has yet to write while its socket takes nothing.
//!
//! An entry stays with the consumer that a dispatcher chose for it:
//!
//! ```text
//!   socket full ──► stalled ──memory is short──► payloads dropped (set aside), their places kept
//!        ▲             │                                │
//!        └── written ◄─┴──── socket takes bytes ──► read from the log again, in turn ──► written
//! ```
//! So a peer that does not read holds no memory that others need, loses nothing, and gets all in the same order. An
//! entry that was acknowledged by others or has expired meanwhile is left out; if a part of its frame is written
//! already, or it is queued as a frame, the connection is closed. It is also closed for a non-persistent message,
//! which cannot be read again.
//!
//! Messages dispatched to stream consumers are taken out of the queue again, frame by frame, and the consumers return
//! to their earlier positions: the messages are dispatched again when the socket takes bytes. Only a partly written
//! frame stays; its payload is set aside as above, unless others here have it in memory anyway.
//!
//! Always true: [`Stall::since`] is set while the socket is full or something is being read again; the shard lists
//! the connection with that time while it holds payloads as well. What is queued is in the account while the socket
//! is full ([`Stall::queued`]).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pharos_broker::entry::EntryCodec as _;
use pharos_broker::feed::ConsumerHandle;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_broker::shard::{ConnectionHandle as _, Pumped, ReadAgain, ReadAgainError};
use pharos_broker::unwritten::Queued;
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::{Ordinal, Position};
use pharos_wire::message::PulsarEntries;
use pharos_wire::proto::CommandMessage;

use crate::connection::Connection;
use crate::consumer::{Attached, Consumer, ConsumerSlot};
use crate::dispatched::Body;
use crate::outgoing::Source;
use crate::sink::payload_for;

/// Pause after a failed read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Data that has to be read again before anything else can be written.
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

/// Messages dispatched to stream consumers and taken out of the queue: for each consumer the lowest position, and the
/// number of messages.
#[derive(Default)]
struct TakenBack(BTreeMap<u64, (Ordinal, u64)>);

impl TakenBack {
    /// Records an entry that was taken out. The positions of a consumer do not only rise: messages that it asked for
    /// again are queued behind those that it had not received by then.
    fn note(&mut self, consumer: u64, place: Ordinal, messages: u64) {
        let (first, sum) = self.0.entry(consumer).or_insert((place, 0));
        *first = place.min(*first);
        *sum += messages;
    }
}

/// State of a socket that takes nothing.
#[derive(Default)]
pub(crate) struct Stall {
    /// Start of the stall, or of reading again what was set aside.
    since: Cell<Option<Nanos>>,
    /// Queued bytes, in the account, while the socket is full.
    queued: RefCell<Option<Queued>>,
    /// True if entries that were set aside are being read again.
    is_reading_again: Cell<bool>,
}

/// A connection whose socket takes nothing, or did so.
pub(crate) struct Stalling<'a>(pub(crate) &'a Connection);

impl Stalling<'_> {
    /// The socket is full, or something is to be read again.
    pub(crate) fn begin(&self) {
        if self.0.stall.since.get().is_none() {
            self.0.stall.since.set(Some(clock::now()));
        }
        if self.0.blocked.get() {
            self.count_queued();
            if self.0.shard.shared.unwritten.is_exhausted() {
                self.take_back(false);
            }
        }
        self.note();
    }

    /// Has the shard list the connection if it is stalled and holds something.
    pub(crate) fn note(&self) {
        if let Some(since) = self.0.stall.since.get()
            && (self.0.dispatched.borrow().holds()
                || self.0.stall.queued.borrow().is_some()
                || self.0.out.borrow().holds_dispatched())
        {
            self.0.shard.stalled.stalls(self.0.id, since);
        }
    }

    /// The socket takes bytes, or what was read again is here.
    pub(crate) fn end(&self) {
        if !self.0.blocked.get() && !self.0.stall.is_reading_again.get() {
            self.forget();
        }
    }

    /// Ends the stall: the socket takes bytes again, or is gone.
    pub(crate) fn forget(&self) {
        self.0.stall.queued.take();
        if let Some(since) = self.0.stall.since.take() {
            self.0.shard.stalled.goes_on(self.0.id, since);
        }
    }

    /// A stream consumer here is about to be no more: what it was dealt could not be told from then on.
    pub(crate) fn before_a_consumer_goes(&self) {
        if self.0.blocked.get() {
            self.take_back(true);
        }
    }

    /// Takes what stream consumers were dealt out of the queue, and has them stand where they stood before. `all`: also the payload of
    /// the frame that is written in part that others have in memory anyway.
    fn take_back(&self, all: bool) {
        let mut back = TakenBack::default();
        let consumers = self.0.consumers.borrow();
        let bytes = self.0.out.borrow_mut().take_back(|message, payload| {
            let Some(place) = dealt(&consumers, message) else {
                return false;
            };
            let messages = match message.ack_set.as_slice() {
                [] => PulsarEntries.facts(payload).message_count,
                words => words.iter().map(|word| word.count_ones()).sum(),
            };
            back.note(message.consumer_id, place, u64::from(messages));
            true
        });
        for (consumer, (first, messages)) in back.0 {
            if let Some(handle) = listening(&consumers, consumer) {
                handle.take_back(first, messages);
            }
        }
        self.0.shard.shared.unwritten.took_back(bytes);
        let begun = self.0.out.borrow().begun();
        let source = begun.and_then(|(begun, bytes)| source_of(&consumers, &begun, bytes, all));
        if let Some(source) = source {
            self.0.shard.shared.unwritten.took_back(source.bytes);
            self.0.out.borrow_mut().set_begun_aside(source);
        }
        drop(consumers);
        if self.0.stall.queued.borrow().is_some() {
            self.count_queued();
        }
    }

    /// Drops what can be read again; what cannot is worth less than the memory, and goes with the connection.
    fn let_go_of_dispatched(&self) {
        if self.0.out.borrow().has_unstored() || self.0.dispatched.borrow().has_unstored() {
            tracing::warn!(peer = %self.0.address,
                "closing a connection that takes nothing of a non-persistent topic while memory is short");
            self.0.dispatched.borrow_mut().clear();
            return self.0.close();
        }
        self.0.out.borrow_mut().set_aside();
        self.0.dispatched.borrow_mut().set_aside();
    }

    /// True if the next item was set aside.
    pub(crate) fn must_read_again(&self) -> bool {
        let is_next = matches!(self.0.dispatched.borrow().front(), Some(item) if matches!(item.body, Body::Aside { .. }));
        (is_next && self.0.out.borrow().has_room()) || self.0.out.borrow().missing().is_some()
    }

    /// Reads again what is next, and writes it.
    pub(crate) fn read_again(&self) {
        if self.0.stall.is_reading_again.replace(true) {
            return;
        }
        self.begin();
        let Some(me) = self.0.me() else { return };
        spawn_local(async move {
            let stalling = Stalling(&me);
            let again = tokio::select! {
                again = stalling.fetch() => again,
                () = me.closing.notified() => {
                    me.closing.notify_one();
                    None
                }
            };
            me.stall.is_reading_again.set(false);
            stalling.end();
            stalling.note();
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
            match self.0.shard.read_again(topic, ordinals, bytes).await {
                Ok(mut again) => {
                    self.bring_back(&missing, &mut again);
                    return Some(again);
                }
                Err(ReadAgainError::Failed(error)) => {
                    tracing::error!(peer = %self.0.address, error, "cannot read again what a connection is to get");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(error @ ReadAgainError::Closed) => {
                    // If its consumer is being closed, entries that are no frames yet go with it.
                    if was_refused || matches!(missing, Missing::Frame(_)) {
                        tracing::info!(peer = %self.0.address, %error, "closing a connection for what it is to get");
                        self.0.close();
                        return None;
                    }
                    was_refused = true;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    fn missing(&self) -> Option<Missing> {
        if let Some(source) = self.0.out.borrow().missing() {
            return Some(Missing::Frame(source));
        }
        let (queue, consumers) = (self.0.dispatched.borrow(), self.0.consumers.borrow());
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
                    let payload = payload_for(self.0.protocol_version(), &entry);
                    self.0.out.borrow_mut().bring_back(payload, held)
                });
                if !back && !self.0.is_closed() {
                    tracing::info!(peer = %self.0.address,
                        "closing a connection in the midst of a message that is gone");
                    self.0.close();
                }
            }
            Missing::Queued { key, topic, .. } => {
                let entries = std::mem::take(&mut again.entries);
                let (messages, bytes) = self
                    .0
                    .dispatched
                    .borrow_mut()
                    .bring_back(*key, entries, &again.gone);
                if messages > 0 {
                    // It was charged for what it will not get.
                    self.0.shard.written(*topic, *key, bytes);
                    self.0.shard.flow(*topic, *key, messages);
                }
            }
        }
    }

    /// Brings the account up to date with what is queued while the socket is full.
    fn count_queued(&self) {
        let bytes = self.0.out.borrow().queued_apart();
        let unwritten = &self.0.shard.shared.unwritten;
        let queued = (bytes > 0).then(|| unwritten.hold_queued(bytes));
        self.0.stall.queued.replace(queued);
    }

    /// Memory is short: what can be read again later is held no longer.
    pub(crate) fn set_aside(&self) {
        self.let_go_of_dispatched();
        self.take_back(false);
        // What stays because others have it in memory may be ours alone later.
        if self.0.stall.since.get().is_some() && self.0.out.borrow().begun().is_some() {
            self.0.stall.since.set(Some(clock::now()));
            self.note();
        }
    }
}

/// The handle of a stream consumer.
fn listening(consumers: &HashMap<u64, ConsumerSlot>, id: u64) -> Option<&ConsumerHandle> {
    match consumers.get(&id)? {
        ConsumerSlot::Ready(Consumer {
            attached: Attached::Listening(handle),
            ..
        }) => Some(handle),
        _ => None,
    }
}

/// The place of an entry that was dealt to a stream consumer which has not gone elsewhere since.
fn dealt(consumers: &HashMap<u64, ConsumerSlot>, message: &CommandMessage) -> Option<Ordinal> {
    let handle = listening(consumers, message.consumer_id)?;
    let id = &message.message_id;
    let place = handle
        .group()
        .feed()
        .ordinal_of(Position::new(id.ledger_id, id.entry_id))?;
    let (next, epoch) = handle.with(|consumer| (consumer.next, consumer.epoch))?;
    (place < next && epoch == message.consumer_epoch).then_some(place)
}

/// Returns the source from which the payload of a message for a stream consumer can be read again. `all`: also if
/// others here have it in memory.
fn source_of(
    consumers: &HashMap<u64, ConsumerSlot>,
    message: &CommandMessage,
    bytes: usize,
    all: bool,
) -> Option<Source> {
    let feed = listening(consumers, message.consumer_id)?.group().feed();
    let id = &message.message_id;
    if feed.is_compacted() {
        return None; // It may not be in the log, or not be the same there.
    }
    let ordinal = feed.ordinal_of(Position::new(id.ledger_id, id.entry_id))?;
    let topic = feed.topic;
    (all || !feed.is_at_hand(ordinal)).then_some(Source {
        topic,
        ordinal,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_stands_at_the_lowest_of_what_it_was_dealt_twice() {
        let mut back = TakenBack::default();
        // Entries 5 and 6 were queued when it asked for everything from 3 on again.
        for place in [5, 6, 3, 4, 5, 6, 7] {
            back.note(1, Ordinal(place), 10);
        }
        back.note(2, Ordinal(9), 1);
        let back: Vec<_> = back.0.into_iter().collect();
        assert_eq!(back, [(1, (Ordinal(3), 70)), (2, (Ordinal(9), 1))]);
    }
}
