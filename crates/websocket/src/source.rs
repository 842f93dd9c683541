//! The consumers behind a session: one for each partition, or one, each asked for a little more than the caller has room for.

use std::future::poll_fn;
use std::task::Poll;

use pharos_client::{AssignedBroker, ClientError, Consumer, ConsumerOptions, Message, MessageId};

use crate::link::Link;
use crate::memory::Ahead;

/// Subscription of a session.
#[derive(Clone, Debug)]
pub(crate) struct Subscribing {
    /// Without topic and start.
    pub(crate) options: ConsumerOptions,
    /// Start position of a reader: it gets the messages after this one.
    pub(crate) start: Option<MessageId>,
}

/// Consumer of a session.
pub(crate) struct ConsumerSource {
    topic: String,
    subscribing: Subscribing,
    pub(crate) consumer: Consumer,
    /// Messages that its broker was asked for and has not sent; a batch may be more than was asked for.
    granted: i64,
    /// Messages that its broker may send ahead of the caller. More would only be held here, away from other consumers.
    ahead: Ahead,
    /// All of a topic that has ended was sent.
    pub(crate) has_ended: bool,
    /// True if messages up to the start may still arrive: brokers begin with the entry of the start.
    is_beginning: bool,
}

impl ConsumerSource {
    /// # Errors
    /// As a client that subscribes.
    pub(crate) async fn open(
        link: &mut Link,
        topic: &str,
        subscribing: &Subscribing,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            topic: topic.to_owned(),
            subscribing: subscribing.clone(),
            consumer: subscribe(link, topic, subscribing, None).await?,
            granted: 0,
            ahead: Ahead::default(),
            has_ended: false,
            is_beginning: subscribing.start.is_some(),
        })
    }

    /// The name of its topic.
    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// True if nothing is missed by subscribing again: the broker, or the reader itself, knows the position.
    pub(crate) fn may_reopen(&self) -> bool {
        self.subscribing.start.is_some() || self.subscribing.options.command.durable != Some(false)
    }

    /// Subscribes again after the broker has closed the consumer, at the broker that serves the topic now. A reader goes on where it is.
    ///
    /// # Errors
    /// As [`ConsumerSource::open`].
    pub(crate) async fn reopen(&mut self, link: &mut Link) -> Result<(), ClientError> {
        let assigned = self.consumer.assigned_broker().cloned();
        self.consumer = subscribe(link, &self.topic, &self.subscribing, assigned).await?;
        self.granted = 0;
        self.has_ended = false;
        self.is_beginning = self.subscribing.start.is_some();
        Ok(())
    }

    /// Lets the broker send more, if it may not have enough for `room` messages of the caller.
    ///
    /// # Errors
    /// `Disconnected`.
    pub(crate) async fn grant(&mut self, room: u64) -> Result<(), ClientError> {
        let ahead = i64::try_from(room.min(self.ahead.messages() as u64)).unwrap_or_default();
        if self.granted > ahead / 2 {
            return Ok(());
        }
        let more = u32::try_from(ahead.saturating_sub(self.granted)).unwrap_or_default();
        if more > 0 {
            self.granted = ahead;
            self.consumer.flow(more).await?;
        }
        Ok(())
    }

    /// Bytes that may have come ahead of the caller.
    pub(crate) fn ahead_bytes(&self) -> usize {
        self.ahead.bytes()
    }

    /// True if the broker has sent messages, and was asked for more.
    pub(crate) fn is_served(&self) -> bool {
        self.granted > 0
    }

    /// Records a received message. Returns true if the caller is to get it.
    pub(crate) fn on_message(&mut self, message: &Message) -> bool {
        self.granted -= 1;
        self.ahead.note(message.payload.len());
        let Some(start) = &mut self.subscribing.start else {
            return true;
        };
        // Another ledger is never before the start, and the ends of a topic have no ledger of their own.
        let is_old = message.id.ledger_id == start.ledger_id && place(&message.id) <= place(start);
        if self.is_beginning && is_old {
            return false;
        }
        self.is_beginning = false;
        start.clone_from(&message.id);
        true
    }
}

async fn subscribe(
    link: &mut Link,
    topic: &str,
    subscribing: &Subscribing,
    assigned: Option<AssignedBroker>,
) -> Result<Consumer, ClientError> {
    let subscribed = link.at(topic, assigned, |connection| {
        let (options, topic) = (subscribing.options.clone(), topic.to_owned());
        let options = match subscribing.start.clone() {
            Some(start) => options.non_durable(start),
            None => options,
        };
        async move { connection.subscribe(&topic, options).await }
    });
    subscribed.await
}

/// The next message of whichever has one.
///
/// Cancel safety: nothing is lost when the future is dropped.
pub(crate) async fn next_of(sources: &mut [ConsumerSource]) -> (usize, Result<Message, ClientError>) {
    if let [only] = sources {
        return (0, only.consumer.receive().await);
    }
    let mut receiving: Vec<_> = sources
        .iter_mut()
        .map(|source| Box::pin(source.consumer.receive()))
        .collect();
    poll_fn(|context| {
        for (index, receiving) in receiving.iter_mut().enumerate() {
            if let Poll::Ready(outcome) = receiving.as_mut().poll(context) {
                return Poll::Ready((index, outcome));
            }
        }
        Poll::Pending
    })
    .await
}

/// Sort key of a message id; a whole entry counts as its last message.
fn place(id: &MessageId) -> (i64, i64, i32) {
    let index = id.batch_index.filter(|index| *index >= 0).unwrap_or(i32::MAX);
    (id.ledger_id.cast_signed(), id.entry_id.cast_signed(), index)
}
