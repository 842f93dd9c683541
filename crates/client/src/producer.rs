//! Producers: messages out, receipts back, any number on their way at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pharos_wire::command::Command;
use pharos_wire::message::{BatchBuilder, encode_entry};
use pharos_wire::proto::{
    CommandProducer, CommandProducerSuccess, CommandSend, CommandSendError, CommandSendReceipt,
    MessageIdData, ProducerAccessMode, Schema,
};
use pharos_wire::{encode, request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::connection::unexpected;
use crate::driver::ProducerRoute;
use crate::message::pair;
use crate::{ClientError, Connection, OutgoingMessage};

/// Settings of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The PRODUCER command; topic and ids are filled in.
    pub command: CommandProducer,
    /// Sends whose receipt is outstanding before further ones wait. Default 1000.
    pub max_pending: usize,
    /// True if the topic is looked up first, which brokers of a cluster need. Default true.
    pub lookup: bool,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            command: request::producer("", 0, 0, None),
            max_pending: 1000,
            lookup: true,
        }
    }
}

impl ProducerOptions {
    /// With a name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.command.producer_name = Some(name.to_owned());
        self.command.user_provided_producer_name = Some(true);
        self
    }

    /// As a producer that comes back: under the name that it had, whether given or chosen by the broker, for the
    /// `epoch`th time.
    #[must_use]
    pub fn returning(mut self, name: &str, epoch: u64) -> Self {
        self.command.producer_name = Some(name.to_owned());
        self.command.user_provided_producer_name.get_or_insert(false);
        self.command.epoch = Some(epoch);
        self
    }

    /// With a schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.command.schema = Some(schema);
        self
    }

    /// With another access mode.
    #[must_use]
    pub fn access_mode(mut self, mode: ProducerAccessMode) -> Self {
        self.command.producer_access_mode = Some(mode as i32);
        self
    }

    /// With one property more.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.command.metadata.push(pair(key, value));
        self
    }
}

/// Broker's receipt of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct SendReceipt {
    /// The first (or only) message's number.
    pub sequence_id: u64,
    /// The last message's number, for batches.
    pub highest_sequence_id: Option<u64>,
    /// Message id; ledger and entry are -1 (2^64-1) if it was a duplicate.
    pub message_id: MessageIdData,
}

impl SendReceipt {
    /// True if the broker had the message already.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.message_id.ledger_id == u64::MAX
    }
}

type Outcome = Result<SendReceipt, ClientError>;

/// The sends of one producer that have no receipt yet.
#[derive(Debug)]
pub(crate) struct Receipts {
    state: Mutex<ReceiptState>,
}

#[derive(Debug)]
struct ReceiptState {
    next_sequence_id: u64,
    /// In the order of sending.
    pending: VecDeque<AwaitedReceipt>,
    /// Reason why no more can be sent.
    ended: Option<ClientError>,
}

#[derive(Debug)]
struct AwaitedReceipt {
    sequence_id: u64,
    outcome: oneshot::Sender<Outcome>,
    /// Given back with the receipt.
    _permit: OwnedSemaphorePermit,
}

impl Receipts {
    fn lock(&self) -> MutexGuard<'_, ReceiptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_receipt(&self, receipt: &CommandSendReceipt) {
        let outcome = Ok(SendReceipt {
            sequence_id: receipt.sequence_id,
            highest_sequence_id: receipt.highest_sequence_id.filter(|highest| *highest > 0),
            message_id: receipt.message_id.clone().unwrap_or_default(),
        });
        self.finish(receipt.sequence_id, outcome);
    }

    pub(crate) fn on_error(&self, error: &CommandSendError) {
        let refusal = ClientError::refused(Some(error.error), Some(error.message.clone()));
        self.finish(error.sequence_id, Err(refusal));
    }

    /// Fails what is outstanding and everything from now on.
    pub(crate) fn end(&self, reason: &ClientError) {
        let pending = {
            let mut state = self.lock();
            state.ended.get_or_insert_with(|| reason.clone());
            std::mem::take(&mut state.pending)
        };
        for send in pending {
            let _ = send.outcome.send(Err(reason.clone()));
        }
    }

    fn finish(&self, sequence_id: u64, outcome: Outcome) {
        let found = {
            let mut state = self.lock();
            // Receipts come in order, so it is the first but for duplicates of the caller's own numbering.
            let index = state
                .pending
                .iter()
                .position(|send| send.sequence_id == sequence_id);
            index.and_then(|index| state.pending.remove(index))
        };
        if let Some(send) = found {
            // An error says that the caller does not wait for the receipt.
            let _ = send.outcome.send(outcome);
        }
    }
}

/// A producer. Messages go out in the order in which [`Producer::begin_send`] or [`Producer::send`] got their turn.
#[derive(Debug)]
pub struct Producer {
    connection: Connection,
    producer_id: u64,
    receipts: Arc<Receipts>,
    permits: Arc<Semaphore>,
    success: CommandProducerSuccess,
}

/// A message on its way.
#[derive(Debug)]
#[must_use = "only its receipt says whether the message is stored"]
pub struct PendingSend {
    /// The number it was sent with.
    pub sequence_id: u64,
    outcome: oneshot::Receiver<Outcome>,
    limit: std::time::Duration,
}

impl PendingSend {
    /// Waits for the receipt.
    ///
    /// # Errors
    /// `Refused`, `ClosedByBroker`, `Disconnected`, `TimedOut`. But for `Refused`, whether it is stored is unknown.
    pub async fn receipt(self) -> Result<SendReceipt, ClientError> {
        match tokio::time::timeout(self.limit, self.outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(ClientError::disconnected("the producer is gone")),
            Err(_) => Err(ClientError::TimedOut { what: "SEND" }),
        }
    }
}

impl Connection {
    /// Makes a producer. With access mode WaitForExclusive this waits until it is the one, or time is up.
    ///
    /// # Errors
    /// `Refused`, `Redirected`; as any request.
    pub async fn producer(&self, topic: &str, options: ProducerOptions) -> Result<Producer, ClientError> {
        if options.lookup {
            self.lookup(topic).await?;
        }
        let producer_id = self.next_id();
        let receipts = Arc::new(Receipts {
            state: Mutex::new(ReceiptState {
                next_sequence_id: 0,
                pending: VecDeque::new(),
                ended: None,
            }),
        });
        self.routes()?
            .producers
            .insert(producer_id, ProducerRoute::Receipts(Arc::clone(&receipts)));
        // Dropped on any way out, it takes itself off the table.
        let mut producer = Producer {
            connection: self.clone(),
            producer_id,
            receipts,
            permits: Arc::new(Semaphore::new(options.max_pending.max(1))),
            success: CommandProducerSuccess::default(),
        };
        let answer = self.ask_for_producer(topic, producer_id, options).await?;
        let last = answer.last_sequence_id.unwrap_or(-1);
        producer.receipts.lock().next_sequence_id = u64::try_from(last + 1).unwrap_or_default();
        producer.success = answer;
        Ok(producer)
    }

    /// Asks for a producer whose route is there already, and goes when it is refused.
    pub(crate) async fn ask_for_producer(
        &self,
        topic: &str,
        producer_id: u64,
        options: ProducerOptions,
    ) -> Result<CommandProducerSuccess, ClientError> {
        let answer = self
            .ask("PRODUCER", |request_id| CommandProducer {
                topic: topic.to_owned(),
                producer_id,
                request_id,
                ..options.command
            })
            .await;
        match answer {
            Ok(Command::ProducerSuccess(answer)) => Ok(answer),
            other => {
                // The broker knows no such producer, so nothing is to be closed there.
                self.remaining_routes().producers.remove(&producer_id);
                Err(match other {
                    Ok(other) => unexpected("PRODUCER", &other),
                    Err(error) => error,
                })
            }
        }
    }
}

impl Producer {
    /// Its name, chosen by the broker when it was not given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.success.producer_name
    }

    /// The whole answer to PRODUCER: last sequence id, schema version, topic epoch.
    #[must_use]
    pub fn success(&self) -> &CommandProducerSuccess {
        &self.success
    }

    /// Its id on the connection; for tests that write commands themselves.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.producer_id
    }

    /// Returns the reason why no more can be sent: the broker closed it, or the connection ended. `None` while it is
    /// open.
    #[must_use]
    pub fn end_reason(&self) -> Option<ClientError> {
        self.receipts.lock().ended.clone()
    }

    /// Sends a message and waits for its receipt.
    ///
    /// # Errors
    /// As [`Producer::begin_send`] and [`PendingSend::receipt`].
    pub async fn send(&self, message: impl Into<OutgoingMessage>) -> Result<SendReceipt, ClientError> {
        self.begin_send(message.into()).await?.receipt().await
    }

    /// Sends several messages as one batch, which is stored and acknowledged as one entry, and waits for its receipt.
    /// An empty batch is sent as it is.
    ///
    /// # Errors
    /// As [`Producer::begin_send`] and [`PendingSend::receipt`].
    pub async fn send_batch(&self, messages: Vec<OutgoingMessage>) -> Result<SendReceipt, ClientError> {
        self.begin_send_batch(messages).await?.receipt().await
    }

    /// Sends a message; resolves when it is queued. Waits while too many receipts are outstanding.
    ///
    /// # Errors
    /// `TooLarge`, `ClosedByBroker`, `Disconnected`.
    ///
    /// Cancel safety: a dropped future has sent nothing.
    pub async fn begin_send(&self, message: OutgoingMessage) -> Result<PendingSend, ClientError> {
        let chosen = message.metadata.sequence_id;
        self.begin(|next, name| {
            let sequence_id = if chosen == 0 { next } else { chosen };
            single(message, sequence_id, name)
        })
        .await
    }

    /// As [`Producer::begin_send`] under exactly this number, 0 as well: for a message that is sent again.
    ///
    /// # Errors
    /// As [`Producer::begin_send`].
    ///
    /// Cancel safety: a dropped future has sent nothing.
    pub async fn begin_send_as(
        &self,
        sequence_id: u64,
        message: OutgoingMessage,
    ) -> Result<PendingSend, ClientError> {
        self.begin(|_, name| single(message, sequence_id, name)).await
    }

    /// Sends several messages as one batch; resolves when it is queued.
    ///
    /// Metadata that belong to an entry (delivery time, transaction, replication, schema version) are the first
    /// message's.
    ///
    /// # Errors
    /// As [`Producer::begin_send`].
    ///
    /// Cancel safety: a dropped future has sent nothing.
    pub async fn begin_send_batch(&self, messages: Vec<OutgoingMessage>) -> Result<PendingSend, ClientError> {
        self.begin(|sequence_id, name| {
            let mut metadata = messages
                .first()
                .map(|message| message.metadata.clone())
                .unwrap_or_default();
            let first = match metadata.sequence_id {
                0 => sequence_id,
                chosen => chosen,
            };
            let mut batch = BatchBuilder::new();
            for (sequence_id, message) in (first..).zip(messages) {
                let (member, payload) = message.into_member(sequence_id);
                batch.push(member, &payload);
            }
            let count = batch.num_messages();
            metadata.sequence_id = first;
            metadata.highest_sequence_id = Some(first + u64::try_from(count - 1).unwrap_or_default());
            metadata.num_messages_in_batch = Some(count);
            metadata.producer_name = name.to_owned();
            metadata.publish_time = pharos_runtime::clock::wall_ms();
            // Keys and properties are the members' own.
            metadata.properties.clear();
            metadata.uncompressed_size = u32::try_from(batch.payload_bytes()).ok();
            let send = CommandSend {
                sequence_id: first,
                num_messages: Some(count),
                highest_sequence_id: metadata.highest_sequence_id,
                txnid_least_bits: metadata.txnid_least_bits,
                txnid_most_bits: metadata.txnid_most_bits,
                ..Default::default()
            };
            (send, encode_entry(&metadata, &batch.take()))
        })
        .await
    }

    /// Takes a permit and a place in the queue, then does the rest without waiting: the number that is given out and
    /// the order on the wire must agree.
    async fn begin(
        &self,
        build: impl FnOnce(u64, &str) -> (CommandSend, Bytes),
    ) -> Result<PendingSend, ClientError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| self.connection.end_reason_now())?;
        let slot = self.connection.slot().await?;
        let mut state = self.receipts.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let (mut send, entry) = build(state.next_sequence_id, self.name());
        self.connection.check_size(entry.len())?;
        send.producer_id = self.producer_id;
        let sequence_id = send.sequence_id;
        let last = send.highest_sequence_id.unwrap_or(sequence_id);
        state.next_sequence_id = state.next_sequence_id.max(last.saturating_add(1));
        let (sender, outcome) = oneshot::channel();
        state.pending.push_back(AwaitedReceipt {
            sequence_id,
            outcome: sender,
            _permit: permit,
        });
        slot.send(encode::encode_frame(&send.into(), &entry));
        Ok(PendingSend {
            sequence_id,
            outcome,
            limit: self.connection.operation_timeout(),
        })
    }

    /// Closes it and waits for the broker's word. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// As any request.
    pub async fn close(self) -> Result<(), ClientError> {
        let known = self.forget();
        if !known {
            return Ok(());
        }
        let closing = self.connection.ask_success("CLOSE_PRODUCER", |request_id| {
            request::close_producer(self.producer_id, request_id)
        });
        closing.await
    }

    /// Takes it off the table; false when the broker or the connection was faster.
    fn forget(&self) -> bool {
        let removed = self
            .connection
            .remaining_routes()
            .producers
            .remove(&self.producer_id);
        self.receipts
            .end(&ClientError::disconnected("the producer was closed"));
        removed.is_some()
    }
}

/// A message that is an entry of its own.
fn single(message: OutgoingMessage, sequence_id: u64, name: &str) -> (CommandSend, Bytes) {
    let OutgoingMessage {
        mut metadata,
        payload,
    } = message;
    metadata.sequence_id = sequence_id;
    metadata.producer_name = name.to_owned();
    metadata.publish_time = pharos_runtime::clock::wall_ms();
    if metadata.uncompressed_size.is_none() {
        metadata.uncompressed_size = u32::try_from(payload.len()).ok();
    }
    let send = CommandSend {
        sequence_id,
        num_messages: metadata.num_messages_in_batch,
        highest_sequence_id: metadata.highest_sequence_id,
        txnid_least_bits: metadata.txnid_least_bits,
        txnid_most_bits: metadata.txnid_most_bits,
        is_chunk: metadata.chunk_id.map(|_| true),
        ..Default::default()
    };
    (send, encode_entry(&metadata, &payload))
}

impl Drop for Producer {
    fn drop(&mut self) {
        if self.forget() {
            let request_id = self.connection.next_id();
            self.connection
                .send_if_room(&request::close_producer(self.producer_id, request_id));
        }
    }
}

impl<T: Into<Bytes>> From<T> for OutgoingMessage {
    fn from(payload: T) -> Self {
        Self::new(payload)
    }
}
