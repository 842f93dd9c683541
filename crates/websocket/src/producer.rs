//! A session that publishes: texts in, each answered after its receipt, in their order.
//!
//! ```text
//!   text ─► message ─┬────────────► the producer of a partition ─► on its way ─► receipt ─► answer
//!                    └─► a batch ──┘                               └ bounded in number and bytes: then nothing is read
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use pharos_client::{ClientError, OutgoingMessage, PendingSend, ProducerOptions, SendReceipt};
use pharos_runtime::ShutdownToken;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval};

use crate::UpgradeRefusal;
use crate::batch::{Batches, entry_of, packed};
use crate::counts::DoorCounters;
use crate::frames::{ErrorCode, ProducerAck, ProducerMessage, Text};
use crate::link::Link;
use crate::outgoing::{SendFailure, outgoing};
use crate::partitions::Partitions;
use crate::producer_parameters::ProducerParameters;
use crate::refusal::said;
use crate::socket::{SessionEnd, Socket, ticks};
use crate::target::SessionTarget;

/// Bytes of texts without a receipt at which a session stops reading.
const PENDING_BYTES_MAX: usize = 8 << 20;
type Receipt = Pin<Box<dyn Future<Output = Result<SendReceipt, SendFailure>> + Send>>;
/// The receipt of a batch, and which of how many messages of it is meant.
type BatchReceipt = (Shared<Receipt>, usize, usize);

/// A text that is not answered yet.
struct Unanswered {
    receipt: Receipt,
    context: Option<Text>,
    bytes: usize,
}

/// The producers of a session: one for each partition, or one.
pub(crate) struct ProducerSession {
    /// Its connections live as long as the session.
    _link: Link,
    counters: Arc<DoorCounters>,
    partitions: Partitions,
    parameters: ProducerParameters,
    next_sequence_id: Option<u64>,
    pending: VecDeque<Unanswered>,
    pending_bytes: usize,
    /// By partition; none where each message goes alone.
    open: Vec<OpenBatch>,
}

/// Open batch of a partition.
struct OpenBatch {
    batches: Batches<oneshot::Sender<BatchReceipt>>,
    /// Time at which the batch is sent; `None` if nothing waits.
    due: Option<Instant>,
}

impl ProducerSession {
    /// # Errors
    /// [`UpgradeRefusal`]: there are none.
    pub(crate) async fn open(
        mut link: Link,
        target: &SessionTarget,
        parameters: ProducerParameters,
        counters: Arc<DoorCounters>,
    ) -> Result<Self, UpgradeRefusal> {
        let mut options = ProducerOptions {
            max_pending: parameters.pending_max,
            ..ProducerOptions::default()
        };
        if let Some(name) = &parameters.name {
            options = options.name(name);
        }
        let partitions = Partitions::open(&mut link, &target.topic, &options, parameters.routing).await?;
        let mut open = Vec::new();
        if let Some(batching) = parameters.batching {
            open.extend(partitions.producers().iter().map(|producer| OpenBatch {
                batches: Batches::new(
                    batching.messages_max,
                    u64::try_from(producer.success().last_sequence_id.unwrap_or(-1)).ok(),
                ),
                due: None,
            }));
        }
        Ok(Self {
            _link: link,
            counters,
            open,
            partitions,
            next_sequence_id: parameters.initial_sequence_id.map(|last| last.saturating_add(1)),
            parameters,
            pending: VecDeque::new(),
            pending_bytes: 0,
        })
    }

    /// Serves the caller until one of both goes.
    pub(crate) async fn run(mut self, mut socket: Socket, stop: &mut ShutdownToken) {
        let mut ticks = ticks();
        let end = loop {
            // A caller that takes nothing must not hold up the stop of the node.
            let step = tokio::select! {
                biased;
                () = stop.triggered() => Err(SessionEnd::stopping()),
                step = self.step(&mut socket, &mut ticks) => step,
            };
            if let Err(end) = step {
                break end;
            }
        };
        tracing::debug!(
            ?end,
            unanswered = self.pending.len(),
            "a WebSocket session of a producer ends"
        );
        if end == SessionEnd::Stalled {
            self.counters.stalled.add_one();
        }
        socket.close(end).await;
    }

    async fn step(&mut self, socket: &mut Socket, ticks: &mut Interval) -> Result<(), SessionEnd> {
        let has_room = self.has_room();
        tokio::select! {
            biased;
            _ = ticks.tick() => self.on_tick(socket).await,
            () = at(self.due()) => {
                self.send_due(Instant::now()).await;
                Ok(())
            }
            receipt = first(&mut self.pending) => self.on_receipt(socket, receipt).await,
            text = socket.next(), if has_room => self.on_text(&text?).await,
        }
    }

    async fn on_tick(&mut self, socket: &mut Socket) -> Result<(), SessionEnd> {
        socket.on_tick().await?;
        let ended = self.partitions.end_reason();
        match ended.filter(|_| self.pending.is_empty()) {
            Some(error) => Err(SessionEnd::moved(&said(&error))),
            None => Ok(()),
        }
    }

    async fn on_receipt(
        &mut self,
        socket: &mut Socket,
        receipt: Result<SendReceipt, SendFailure>,
    ) -> Result<(), SessionEnd> {
        let Some(pending) = self.pending.pop_front() else {
            return Ok(());
        };
        self.pending_bytes = self.pending_bytes.saturating_sub(pending.bytes);
        let failure = match receipt {
            Ok(receipt) => {
                self.counters.messages_in.add_one();
                return socket
                    .send(&ProducerAck::stored(&receipt.message_id, pending.context))
                    .await;
            }
            Err(failure) => failure,
        };
        socket
            .send(&ProducerAck::failed(
                failure.code,
                &failure.reason,
                pending.context,
            ))
            .await?;
        // A producer that has gone takes its session with it, once all that it had on its way is answered.
        match failure.is_last && self.pending.is_empty() {
            true => Err(SessionEnd::moved(&failure.reason)),
            false => Ok(()),
        }
    }

    /// Each text gets one answer, whose turn comes after those of the texts before it.
    async fn on_text(&mut self, text: &str) -> Result<(), SessionEnd> {
        let (context, began) = match serde_json::from_str::<ProducerMessage>(text) {
            Ok(mut message) => (message.context.take(), self.begin(message).await),
            Err(error) => {
                let reason = format!("no message in JSON: {error}");
                (
                    None,
                    Err(SendFailure::of_text(
                        ErrorCode::FailedToDeserializeFromJson,
                        reason,
                    )),
                )
            }
        };
        let receipt: Receipt = match began {
            Ok(receipt) => receipt,
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        };
        self.pending_bytes += text.len();
        self.pending.push_back(Unanswered {
            receipt,
            context,
            bytes: text.len(),
        });
        // Nothing more is read now, so nothing more can fill them.
        if !self.has_room() {
            self.send_all().await;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.pending.len() < self.parameters.pending_max && self.pending_bytes < PENDING_BYTES_MAX
    }

    /// Sends a message, or puts it into a batch; what comes of it is told by the receipt.
    async fn begin(&mut self, message: ProducerMessage) -> Result<Receipt, SendFailure> {
        let chosen = message.sequence_id;
        let message = outgoing(message)?;
        let chosen = chosen.or_else(|| {
            let next = self.next_sequence_id?;
            self.next_sequence_id = Some(next.saturating_add(1));
            Some(next)
        });
        let partition = self
            .partitions
            .of_message(message.metadata.partition_key.as_deref());
        let deadline = Instant::now() + self.parameters.send_max;
        if self.parameters.batching.is_some() {
            return self.join(partition, chosen, message, deadline).await;
        }
        let message = packed(message, self.parameters.compression);
        let message = message.map_err(|error| SendFailure::of_text(ErrorCode::Unknown, error.to_string()))?;
        let sent = send(&self.partitions, partition, chosen, message).await?;
        Ok(Box::pin(async move {
            within(deadline, async { Ok(sent.receipt().await?) }).await
        }))
    }

    /// Puts a message into the batch of its partition, and sends what is full by that.
    async fn join(
        &mut self,
        partition: usize,
        chosen: Option<u64>,
        message: OutgoingMessage,
        deadline: Instant,
    ) -> Result<Receipt, SendFailure> {
        let none = || SendFailure::of_text(ErrorCode::Unknown, "the topic has no such partition");
        let open = self.open.get(partition).ok_or_else(none)?;
        let sequence_id = chosen.unwrap_or_else(|| open.batches.next_sequence_id());
        if !open.batches.fits(sequence_id, &message) {
            self.send_batch(partition).await;
        }
        // A message that is delivered later goes alone.
        let is_alone = message.metadata.deliver_at_time.is_some();
        let delay = self.parameters.batching.map_or(Duration::ZERO, |it| it.delay);
        let open = self.open.get_mut(partition).ok_or_else(none)?;
        let (answer, receipt) = oneshot::channel::<BatchReceipt>();
        open.batches.push(sequence_id, message, answer);
        open.due.get_or_insert(Instant::now() + delay);
        if is_alone || open.batches.is_full() {
            self.send_batch(partition).await;
        }
        Ok(Box::pin(async move {
            let receipt = async {
                let gone = |_| SendFailure::of_text(ErrorCode::Unknown, "the session ends");
                let (batch, index, size) = receipt.await.map_err(gone)?;
                let mut receipt = batch.await?;
                if size > 1 {
                    receipt.message_id.batch_index = i32::try_from(index).ok();
                    receipt.message_id.batch_size = i32::try_from(size).ok();
                }
                Ok(receipt)
            };
            within(deadline, receipt).await
        }))
    }

    /// Sends what waits of a partition.
    async fn send_batch(&mut self, partition: usize) {
        let Some(open) = self.open.get_mut(partition) else {
            return;
        };
        open.due = None;
        let members = open.batches.take();
        if members.is_empty() {
            return;
        }
        self.partitions.on_batch(partition);
        let sent = match entry_of(&members, self.parameters.compression) {
            Ok((sequence_id, entry)) => send(&self.partitions, partition, Some(sequence_id), entry).await,
            Err(error) => Err(SendFailure::of_text(ErrorCode::Unknown, error.to_string())),
        };
        let receipt: Receipt = match sent {
            Ok(sent) => Box::pin(async move { Ok(sent.receipt().await?) }),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        };
        let (receipt, size) = (receipt.shared(), members.len());
        for (index, member) in members.into_iter().enumerate() {
            // Who does not wait for it any more has been answered.
            let _ = member.answer.send((receipt.clone(), index, size));
        }
    }

    /// Time at which the first batch is due.
    fn due(&self) -> Option<Instant> {
        self.open.iter().filter_map(|open| open.due).min()
    }

    async fn send_due(&mut self, now: Instant) {
        for partition in 0..self.open.len() {
            let due = self.open.get(partition).and_then(|open| open.due);
            if due.is_some_and(|due| due <= now) {
                self.send_batch(partition).await;
            }
        }
    }

    async fn send_all(&mut self) {
        for partition in 0..self.open.len() {
            self.send_batch(partition).await;
        }
    }
}

/// Sends an entry under this number, or the next one.
async fn send(
    partitions: &Partitions,
    partition: usize,
    sequence_id: Option<u64>,
    message: OutgoingMessage,
) -> Result<PendingSend, SendFailure> {
    let Some(producer) = partitions.producer(partition) else {
        return Err(SendFailure::of_text(
            ErrorCode::Unknown,
            "the topic has no such partition",
        ));
    };
    let began = match sequence_id {
        Some(sequence_id) => producer.begin_send_as(sequence_id, message).await,
        None => producer.begin_send(message).await,
    };
    Ok(began?)
}

/// Result of a message, or a timeout at the deadline.
async fn within(
    deadline: Instant,
    receipt: impl Future<Output = Result<SendReceipt, SendFailure>>,
) -> Result<SendReceipt, SendFailure> {
    match tokio::time::timeout_at(deadline, receipt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ClientError::TimedOut { what: "SEND" }.into()),
    }
}

/// Waits until then; for ever if that is never.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Result of the first pending message.
///
/// Cancel safety: it is still the first when the future is dropped.
async fn first(pending: &mut VecDeque<Unanswered>) -> Result<SendReceipt, SendFailure> {
    match pending.front_mut() {
        Some(first) => first.receipt.as_mut().await,
        None => std::future::pending().await,
    }
}
