//! A session that publishes: texts in, each answered after its receipt, in their order.
//!
//! ```text
//!   text ─► message ─► the producer of a partition ─► on its way ─► receipt ─► answer
//!                                                     └ bounded in number and bytes: then nothing is read
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pharos_client::{ClientError, OutgoingMessage, PendingSend, ProducerOptions, SendReceipt};
use pharos_runtime::{ShutdownToken, clock};
use pharos_types::hash::{java_string_hash, murmur3_32};
use pharos_wire::compression::compress;
use pharos_wire::proto::{CompressionType, KeyValue, ServerError};
use tokio::time::{Instant, Interval};

use crate::UpgradeRefusal;
use crate::frames::{ErrorCode, ProducerAck, ProducerMessage, Text};
use crate::link::Link;
use crate::partitions::{KeyHash, Partitions, Routing};
use crate::query::Query;
use crate::refusal::said;
use crate::socket::{SessionEnd, Socket, ticks};
use crate::target::SessionTarget;
use crate::time;

/// Messages without a receipt, unless the caller says less.
const PENDING_MAX: usize = 1000;
/// Bytes of texts without a receipt at which a session stops reading.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// How long a receipt may take, unless the caller says otherwise.
const SEND_MAX: Duration = Duration::from_secs(30);
/// Never, as far as a session is concerned.
const NEVER: Duration = Duration::from_secs(365 * 86_400);
/// A message for this cluster only, by the name that replicators know.
const THIS_CLUSTER: &str = "__local__";

/// What a caller wants of its producer.
#[derive(Clone, Debug)]
pub(crate) struct ProducerParameters {
    pub(crate) send_max: Duration,
    name: Option<String>,
    pending_max: usize,
    initial_sequence_id: Option<u64>,
    compression: CompressionType,
    routing: Routing,
}

impl ProducerParameters {
    /// # Errors
    /// [`UpgradeRefusal`]: one of them is not possible.
    pub(crate) fn read(query: &mut Query) -> Result<Self, UpgradeRefusal> {
        let send_max = query.millis("sendTimeoutMillis")?.unwrap_or(SEND_MAX);
        if query.value::<bool>("batchingEnabled")?.unwrap_or(false) {
            let reason = "batches are not made for WebSockets: leave batchingEnabled out";
            return Err(UpgradeRefusal::new(hyper::StatusCode::NOT_IMPLEMENTED, reason));
        }
        let pending_max = query.value::<usize>("maxPendingMessages")?.unwrap_or(PENDING_MAX);
        let compressions = [
            ("NONE", CompressionType::None),
            ("LZ4", CompressionType::Lz4),
            ("ZLIB", CompressionType::Zlib),
            ("ZSTD", CompressionType::Zstd),
            ("SNAPPY", CompressionType::Snappy),
        ];
        let hashes: [(&str, KeyHash); 2] = [
            ("JavaStringHash", java_string_hash),
            ("Murmur3_32Hash", |key| murmur3_32(key.as_bytes())),
        ];
        let modes = [("RoundRobinPartition", false), ("SinglePartition", true)];
        Ok(Self {
            send_max: if send_max.is_zero() {
                NEVER
            } else {
                send_max.min(NEVER)
            },
            name: query.text("producerName").filter(|name| !name.is_empty()),
            pending_max: pending_max.clamp(1, PENDING_MAX),
            initial_sequence_id: query.value("initialSequenceId")?,
            compression: query
                .choice("compressionType", &compressions)?
                .unwrap_or(CompressionType::None),
            routing: Routing {
                to_one: query.choice("messageRoutingMode", &modes)?.unwrap_or(false),
                hash: query
                    .choice("hashingScheme", &hashes)?
                    .unwrap_or(java_string_hash),
            },
        })
    }
}

type Receipt = Pin<Box<dyn Future<Output = Result<SendReceipt, SendFailure>> + Send>>;

/// Why a message is not stored, or not known to be.
#[derive(Debug)]
struct SendFailure {
    code: ErrorCode,
    reason: String,
    /// Its producer is no more.
    is_last: bool,
}

impl SendFailure {
    fn of_text(code: ErrorCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            code,
            reason,
            is_last: false,
        }
    }
}

impl From<ClientError> for SendFailure {
    fn from(error: ClientError) -> Self {
        let code = match error.code() {
            Some(ServerError::AuthorizationError) => ErrorCode::NotAuthorized,
            _ => ErrorCode::Unknown,
        };
        Self {
            code,
            reason: said(&error),
            is_last: matches!(
                error,
                ClientError::ClosedByBroker | ClientError::Disconnected { .. }
            ),
        }
    }
}

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
    partitions: Partitions,
    parameters: ProducerParameters,
    next_sequence_id: Option<u64>,
    pending: VecDeque<Unanswered>,
    pending_bytes: usize,
}

impl ProducerSession {
    /// # Errors
    /// [`UpgradeRefusal`]: there are none.
    pub(crate) async fn open(
        mut link: Link,
        target: &SessionTarget,
        parameters: ProducerParameters,
    ) -> Result<Self, UpgradeRefusal> {
        let mut options = ProducerOptions {
            max_pending: parameters.pending_max,
            ..ProducerOptions::default()
        };
        if let Some(name) = &parameters.name {
            options = options.name(name);
        }
        let partitions = Partitions::open(&mut link, &target.topic, &options, parameters.routing).await?;
        Ok(Self {
            _link: link,
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
            if let Err(end) = self.step(&mut socket, stop, &mut ticks).await {
                break end;
            }
        };
        tracing::debug!(
            ?end,
            unanswered = self.pending.len(),
            "a WebSocket session of a producer ends"
        );
        socket.close(end).await;
    }

    async fn step(
        &mut self,
        socket: &mut Socket,
        stop: &mut ShutdownToken,
        ticks: &mut Interval,
    ) -> Result<(), SessionEnd> {
        let has_room =
            self.pending.len() < self.parameters.pending_max && self.pending_bytes < PENDING_BYTES_MAX;
        tokio::select! {
            biased;
            () = stop.triggered() => Err(SessionEnd::stopping()),
            _ = ticks.tick() => self.on_tick(socket).await,
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
        let deadline = Instant::now() + self.parameters.send_max;
        let receipt: Receipt = match began {
            Ok(sent) => Box::pin(async move {
                match tokio::time::timeout_at(deadline, sent.receipt()).await {
                    Ok(outcome) => outcome.map_err(SendFailure::from),
                    Err(_) => Err(ClientError::TimedOut { what: "SEND" }.into()),
                }
            }),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        };
        self.pending_bytes += text.len();
        self.pending.push_back(Unanswered {
            receipt,
            context,
            bytes: text.len(),
        });
        Ok(())
    }

    async fn begin(&mut self, message: ProducerMessage) -> Result<PendingSend, SendFailure> {
        let chosen = message.sequence_id;
        let message = self.outgoing(message)?;
        let sequence_id = chosen.or_else(|| {
            let next = self.next_sequence_id?;
            self.next_sequence_id = Some(next.saturating_add(1));
            Some(next)
        });
        let partition = self
            .partitions
            .of_message(message.metadata.partition_key.as_deref());
        let Some(producer) = self.partitions.producer(partition) else {
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

    /// The message that a caller means.
    fn outgoing(&self, message: ProducerMessage) -> Result<OutgoingMessage, SendFailure> {
        let malformed = |reason: &str| SendFailure::of_text(ErrorCode::FailedToDeserializeFromJson, reason);
        if let Some(field) = message.not_served() {
            return Err(malformed(&format!("the field {field} is not served")));
        }
        // As Pulsar has it, a time that is none and a payload that is none are the same to a caller.
        let unreadable = |reason: String| SendFailure::of_text(ErrorCode::PayloadEncoding, reason);
        let Some(Text(payload)) = message.payload else {
            return Err(unreadable("the message has no payload".to_owned()));
        };
        let payload = STANDARD.decode(payload);
        let payload = payload.map_err(|error| unreadable(format!("the payload is not base64: {error}")))?;
        let mut outgoing = OutgoingMessage::new(payload);
        let metadata = &mut outgoing.metadata;
        metadata.partition_key = message.key.map(|key| key.0);
        let properties = message.properties.unwrap_or_default().into_iter();
        metadata.properties = properties
            .map(|(key, Text(value))| KeyValue { key, value })
            .collect();
        if let Some(text) = message.event_time {
            let ms = time::parse(&text);
            let ms = ms.ok_or_else(|| unreadable("the eventTime is no time of ISO 8601".to_owned()))?;
            metadata.event_time = Some(ms);
        }
        metadata.replicate_to = message.replication_clusters.unwrap_or_default();
        if message.disable_replication.unwrap_or(false) {
            metadata.replicate_to = vec![THIS_CLUSTER.to_owned()];
        }
        metadata.deliver_at_time = match (message.deliver_at, message.deliver_after_ms) {
            (Some(ms), _) => Some(ms),
            (None, Some(after)) => Some(clock::wall_ms().cast_signed().saturating_add(after)),
            (None, None) => None,
        };
        if self.parameters.compression != CompressionType::None {
            let packed = compress(&outgoing.payload, self.parameters.compression);
            let packed =
                packed.map_err(|error| SendFailure::of_text(ErrorCode::Unknown, error.to_string()))?;
            metadata.compression = Some(self.parameters.compression as i32);
            metadata.uncompressed_size = u32::try_from(outgoing.payload.len()).ok();
            outgoing.payload = Bytes::from(packed);
        }
        Ok(outgoing)
    }
}

/// What comes of the first.
///
/// Cancel safety: it is still the first when the future is dropped.
async fn first(pending: &mut VecDeque<Unanswered>) -> Result<SendReceipt, SendFailure> {
    match pending.front_mut() {
        Some(first) => first.receipt.as_mut().await,
        None => std::future::pending().await,
    }
}
