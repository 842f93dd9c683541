//! Consumers: messages in, acknowledgements out.

use std::collections::VecDeque;
use std::time::Duration;

use pharos_wire::ack::{Ack, MessageIds};
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{
    CommandConsumerStatsResponse, CommandGetLastMessageIdResponse, CommandSubscribe, MessageIdData,
};
use pharos_wire::{encode, request};
use tokio::sync::mpsc;

use crate::connection::unexpected;
use crate::event::{AssignedBroker, ConsumerEvent};
use crate::message::unpack;
use crate::{ClientError, Connection, Message};

mod batches;
mod options;

use batches::Batches;
pub use options::ConsumerOptions;

/// A consumer on a subscription.
#[derive(Debug)]
pub struct Consumer {
    connection: Connection,
    consumer_id: u64,
    /// As it was sent, to subscribe again.
    command: CommandSubscribe,
    receiver_queue_size: u32,
    batch_index_ack: bool,
    decompress_bytes_max: Option<usize>,
    events: mpsc::Receiver<ConsumerEvent>,
    /// Members of the entry that was taken apart last.
    ready: VecDeque<Message>,
    /// Messages received since permits were last given back.
    permits_owed: u32,
    batches: Batches,
    is_active: Option<bool>,
    reached_end: bool,
    /// The broker knows it no more.
    closed: bool,
    /// Broker assigned to the consumer.
    assigned: Option<AssignedBroker>,
}

impl Connection {
    /// Subscribes and lets the broker send.
    ///
    /// # Errors
    /// `Refused`, `Redirected`; as any request.
    pub async fn subscribe(&self, topic: &str, options: ConsumerOptions) -> Result<Consumer, ClientError> {
        if options.lookup {
            self.lookup(topic).await?;
        }
        let consumer_id = self.next_id();
        let (sender, events) = mpsc::channel(options.capacity());
        self.routes()?.consumers.insert(consumer_id, sender);
        // Dropped on any way out, it takes itself off the table.
        let mut consumer = Consumer {
            connection: self.clone(),
            consumer_id,
            command: CommandSubscribe {
                topic: topic.to_owned(),
                consumer_id,
                ..options.command
            },
            receiver_queue_size: options.receiver_queue_size,
            batch_index_ack: options.batch_index_ack,
            decompress_bytes_max: options.decompress_bytes_max,
            events,
            ready: VecDeque::new(),
            permits_owed: 0,
            batches: Batches::default(),
            is_active: None,
            reached_end: false,
            closed: false,
            assigned: None,
        };
        if let Err(error) = consumer.ask_subscribe().await {
            // After a refusal the broker knows no such consumer; after silence it may.
            consumer.closed = matches!(error, ClientError::Refused { .. });
            return Err(error);
        }
        Ok(consumer)
    }
}

impl Consumer {
    async fn ask_subscribe(&mut self) -> Result<(), ClientError> {
        self.connection
            .ask_success("SUBSCRIBE", |request_id| CommandSubscribe {
                request_id,
                ..self.command.clone()
            })
            .await?;
        self.closed = false;
        if self.receiver_queue_size > 0 {
            self.flow(self.receiver_queue_size).await?;
        }
        Ok(())
    }

    /// Returns the broker that the consumer is assigned to, as named by the broker that closed it.
    #[must_use]
    pub fn assigned_broker(&self) -> Option<&AssignedBroker> {
        self.assigned.as_ref()
    }

    /// Its id on the connection; for tests that write commands themselves.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.consumer_id
    }

    /// True if it is the active consumer of a Failover subscription; `None` if the broker has not said.
    #[must_use]
    pub fn is_active(&self) -> Option<bool> {
        self.is_active
    }

    /// Lets the broker send `messages` more. Only needed with a receiver queue of 0.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn flow(&self, messages: u32) -> Result<(), ClientError> {
        self.connection
            .send(request::flow(self.consumer_id, messages))
            .await
    }

    /// The next message.
    ///
    /// # Errors
    /// `ClosedByBroker` (see [`Consumer::resubscribe`]), `EndOfTopic`, `Malformed`, `Disconnected`.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn receive(&mut self) -> Result<Message, ClientError> {
        loop {
            // Before waiting as well: the broker may have used up all that it was allowed.
            self.give_back_permits().await?;
            // No await between taking a message off the queue and handing it out.
            if let Some(message) = self.ready.pop_front() {
                self.permits_owed = self.permits_owed.saturating_add(1);
                return Ok(message);
            }
            let event = self.wait_for_event().await?;
            self.on_event(event)?;
        }
    }

    /// The next message, or `None` after `limit` without one.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub async fn receive_within(&mut self, limit: Duration) -> Result<Option<Message>, ClientError> {
        match tokio::time::timeout(limit, self.receive()).await {
            Ok(outcome) => outcome.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The next thing that the broker sends, whatever it is, as it came. Not for use between calls of
    /// [`Consumer::receive`]: it neither gives back permits nor takes batches apart.
    ///
    /// # Errors
    /// `Disconnected`.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next_event(&mut self) -> Result<ConsumerEvent, ClientError> {
        match self.events.recv().await {
            Some(event) => {
                self.note(&event);
                Ok(event)
            }
            None => Err(self.connection.end_reason_now()),
        }
    }

    /// As [`Consumer::next_event`], but remembers an end that was reported before.
    async fn wait_for_event(&mut self) -> Result<ConsumerEvent, ClientError> {
        if self.events.is_empty() && self.closed {
            return Err(ClientError::ClosedByBroker);
        }
        if self.events.is_empty() && self.reached_end {
            return Err(ClientError::EndOfTopic);
        }
        self.next_event().await
    }

    fn note(&mut self, event: &ConsumerEvent) {
        match event {
            ConsumerEvent::Message { .. } => {}
            ConsumerEvent::Active(is_active) => self.is_active = Some(*is_active),
            ConsumerEvent::EndOfTopic => self.reached_end = true,
            ConsumerEvent::Closed(assigned) => {
                self.closed = true;
                self.assigned.clone_from(assigned);
            }
        }
    }

    fn on_event(&mut self, event: ConsumerEvent) -> Result<(), ClientError> {
        match event {
            ConsumerEvent::Message { message, payload } => {
                self.ready
                    .extend(unpack(message, &payload, self.decompress_bytes_max)?);
                Ok(())
            }
            ConsumerEvent::Active(_) => Ok(()),
            ConsumerEvent::EndOfTopic => Err(ClientError::EndOfTopic),
            ConsumerEvent::Closed(_) => Err(ClientError::ClosedByBroker),
        }
    }

    /// Asks for as many messages as were received, once that is half of the receiver queue.
    async fn give_back_permits(&mut self) -> Result<(), ClientError> {
        if self.receiver_queue_size == 0 || self.permits_owed < self.receiver_queue_size.div_ceil(2) {
            return Ok(());
        }
        let slot = self.connection.slot().await?;
        let flow = request::flow(self.consumer_id, self.permits_owed);
        slot.send(encode::encode_command(&flow));
        self.permits_owed = 0;
        Ok(())
    }

    /// Waits for further messages although the topic has ended: those that come again. The broker may say again that it has.
    pub fn expect_more(&mut self) {
        self.reached_end = false;
    }

    /// Acknowledges one message; resolves when that is queued.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn ack(&mut self, id: &MessageIdData) -> Result<(), ClientError> {
        match self.batches.individual(id, self.batch_index_ack) {
            Some(id) => {
                self.connection
                    .send(Command::Ack(self.ack_command(AckType::Individual, id)))
                    .await
            }
            None => Ok(()),
        }
    }

    /// Acknowledges everything up to and including one message; resolves when that is queued.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn ack_cumulative(&mut self, id: &MessageIdData) -> Result<(), ClientError> {
        match self.batches.cumulative(id, self.batch_index_ack) {
            Some(id) => {
                self.connection
                    .send(Command::Ack(self.ack_command(AckType::Cumulative, id)))
                    .await
            }
            None => Ok(()),
        }
    }

    /// Acknowledges exactly what `ids` say and waits for the broker's word. Nothing is added or held back for
    /// batches.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn ack_and_wait(
        &self,
        ack_type: AckType,
        ids: impl Into<MessageIds>,
    ) -> Result<(), ClientError> {
        let ack = self.ack_command(ack_type, ids);
        let answer = self
            .connection
            .ask("ACK", |request_id| {
                Command::Ack(Ack {
                    request_id: Some(request_id),
                    ..ack
                })
            })
            .await?;
        match answer {
            Command::AckResponse(answer) if answer.error.is_none() => Ok(()),
            Command::AckResponse(answer) => Err(ClientError::refused(answer.error, answer.message)),
            other => Err(unexpected("ACK", &other)),
        }
    }

    fn ack_command(&self, ack_type: AckType, ids: impl Into<MessageIds>) -> Ack {
        Ack::new(self.consumer_id, ack_type, ids)
    }

    /// Asks for messages again; a member of a batch brings its whole entry, less what is acknowledged of it.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn redeliver(&mut self, ids: &[MessageIdData]) -> Result<(), ClientError> {
        let mut entries: Vec<MessageIdData> = Vec::new();
        for id in ids {
            let entry = entry_of(id);
            if !entries.contains(&entry) {
                self.batches.forget(&entry);
                entries.push(entry);
            }
        }
        self.connection
            .send(request::redeliver(self.consumer_id, entries))
            .await
    }

    /// Asks for everything again that was sent and not acknowledged. What waits here unread is dropped and its
    /// permits are given back.
    ///
    /// # Errors
    /// `Disconnected`, `Malformed`.
    pub async fn redeliver_all(&mut self) -> Result<(), ClientError> {
        self.drop_waiting()?;
        self.connection
            .send(request::redeliver(self.consumer_id, Vec::new()))
            .await
    }

    /// Moves the subscription to a message, and goes on receiving there.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn seek(&mut self, id: MessageIdData) -> Result<(), ClientError> {
        let consumer_id = self.consumer_id;
        self.seek_by(|request_id| request::seek(consumer_id, request_id, id))
            .await
    }

    /// Moves the subscription to the first message published at or after a time, in milliseconds since 1970.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn seek_to_time(&mut self, ms: u64) -> Result<(), ClientError> {
        let consumer_id = self.consumer_id;
        self.seek_by(|request_id| request::seek_to_time(consumer_id, request_id, ms))
            .await
    }

    /// Brokers close the consumers of a durable subscription before they move it, so the word of that is here when
    /// the answer is.
    async fn seek_by(&mut self, build: impl FnOnce(u64) -> Command) -> Result<(), ClientError> {
        self.connection.ask_success("SEEK", build).await?;
        self.drop_waiting()?;
        if self.closed {
            self.resubscribe().await?;
        }
        Ok(())
    }

    /// Subscribes again under the same id after the broker has closed this consumer. What waits here unread is
    /// dropped; it comes again.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn resubscribe(&mut self) -> Result<(), ClientError> {
        self.drop_waiting()?;
        self.permits_owed = 0;
        self.reached_end = false;
        self.ask_subscribe().await
    }

    /// Drops what waits unread and owes its permits.
    fn drop_waiting(&mut self) -> Result<(), ClientError> {
        self.batches.clear();
        self.permits_owed += u32::try_from(self.ready.len()).unwrap_or_default();
        self.ready.clear();
        while let Ok(event) = self.events.try_recv() {
            self.note(&event);
            if let ConsumerEvent::Message { message, payload } = event {
                let messages = unpack(message, &payload, self.decompress_bytes_max)?;
                self.permits_owed += u32::try_from(messages.len()).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// The last message of the topic and, from brokers that say it, the mark-delete position of the subscription.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn last_message_id(&self) -> Result<CommandGetLastMessageIdResponse, ClientError> {
        const WHAT: &str = "GET_LAST_MESSAGE_ID";
        let answer = self
            .connection
            .ask(WHAT, |request_id| {
                request::last_message_id(self.consumer_id, request_id)
            })
            .await?;
        match answer {
            Command::GetLastMessageIdResponse(answer) => Ok(answer),
            other => Err(unexpected(WHAT, &other)),
        }
    }

    /// Returns the broker's statistics of this consumer.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn stats(&self) -> Result<CommandConsumerStatsResponse, ClientError> {
        const WHAT: &str = "CONSUMER_STATS";
        let answer = self
            .connection
            .ask(WHAT, |request_id| {
                request::consumer_stats(self.consumer_id, request_id)
            })
            .await?;
        match answer {
            Command::ConsumerStatsResponse(answer) if answer.error_code.is_some() => {
                Err(ClientError::refused(answer.error_code, answer.error_message))
            }
            Command::ConsumerStatsResponse(answer) => Ok(*answer),
            other => Err(unexpected(WHAT, &other)),
        }
    }

    /// Deletes the subscription. With `force` also while others are on it.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn unsubscribe(&mut self, force: bool) -> Result<(), ClientError> {
        let consumer_id = self.consumer_id;
        self.connection
            .ask_success("UNSUBSCRIBE", |request_id| {
                request::unsubscribe(consumer_id, request_id, force)
            })
            .await?;
        self.closed = true;
        Ok(())
    }

    /// Closes it and waits for the broker's word. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// As any request.
    pub async fn close(mut self) -> Result<(), ClientError> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        let consumer_id = self.consumer_id;
        self.connection
            .ask_success("CLOSE_CONSUMER", |request_id| {
                request::close_consumer(consumer_id, request_id)
            })
            .await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let known = self
            .connection
            .remaining_routes()
            .consumers
            .remove(&self.consumer_id)
            .is_some();
        if known && !self.closed {
            let request_id = self.connection.next_id();
            self.connection
                .send_if_room(&request::close_consumer(self.consumer_id, request_id));
        }
    }
}

/// The entry of a message, as REDELIVER names it.
fn entry_of(id: &MessageIdData) -> MessageIdData {
    MessageIdData {
        ledger_id: id.ledger_id,
        entry_id: id.entry_id,
        partition: id.partition,
        ..Default::default()
    }
}
