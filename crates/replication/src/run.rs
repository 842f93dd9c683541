//! A replicator at work: connects, reads, sends, hears the answers, and begins again after each break.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use pharos_admin_api::ClusterData;
use pharos_client::{ClientError, Connection, ProducerOptions, RelayAnswer, RelayAnswers, RelayProducer};
use pharos_runtime::{Buckets, Nanos, Rate, clock};
use pharos_types::{Ordinal, Position, TopicName};
use pharos_wire::proto::schema::Type as WireType;
use pharos_wire::proto::{KeyValue, Schema, ServerError};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::links::LinkError;
use crate::outgoing::{Fate, OutgoingEntry, Passed, outgoing};
use crate::{
    RemoteLink, ReplicatorMeter, RetryPace, SendWindow, SentAs, UnexpectedAnswer, UnusableCluster,
    producer_name,
};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// A send without an answer for so long breaks the connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The longest pause that a rate makes at a time, so that another rate holds soon.
const RATE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct SourceEntry {
    /// Its number.
    pub ordinal: Ordinal,
    /// Its place, as other clusters are told it.
    pub position: Position,
    /// Its bytes.
    pub payload: Bytes,
    /// Consumers pass over it: its transaction was aborted.
    pub is_hidden: bool,
}

/// A schema as it is stored here.
#[derive(Clone, Debug)]
pub struct SourceSchema {
    /// Its name in the registry.
    pub name: String,
    /// Its type, in the registry's word.
    pub kind: &'static str,
    /// Its definition.
    pub data: Bytes,
    /// Its properties.
    pub properties: Vec<(String, String)>,
}

/// Reason why the log was not read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceFault {
    /// Entries before this position are gone, or are skipped because they cannot be read.
    #[error("there is nothing before {0}")]
    Gone(Ordinal),
    /// The log cannot be read now.
    #[error("the log cannot be read: {0}")]
    Unreadable(String),
    /// The topic is closing.
    #[error("the topic is closing")]
    Closing,
}

/// The topic of a replicator.
pub trait ReplicatorSource {
    /// Its name.
    fn topic(&self) -> &TopicName;

    /// Returns the partition number; `None` if the topic is not a partition.
    fn partition(&self) -> Option<u32>;

    /// Resolves when there is an entry at `from`, or behind it, that readers may have.
    ///
    /// # Errors
    /// `Closing`, `Unreadable`.
    fn readable(&self, from: Ordinal) -> impl Future<Output = Result<(), SourceFault>>;

    /// Returns the entries that readers may have from `from` on: at least one, then as many as there are and fit.
    ///
    /// # Errors
    /// [`SourceFault`].
    fn read(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Vec<SourceEntry>, SourceFault>>;

    /// Returns the stored data of a cluster.
    fn cluster(&self, name: &str) -> Option<ClusterData>;

    /// A schema of the topic by its version.
    fn schema(&self, version: &[u8]) -> Option<SourceSchema>;

    /// Returns the rate limit.
    fn rate(&self) -> Rate;

    /// Returns the publish time before which messages have expired, in milliseconds since 1970.
    fn expired_before_ms(&self) -> u64;
}

/// A replicator's work.
pub struct Replicated<'a, S> {
    /// Its topic.
    pub source: &'a S,
    /// The cluster that it goes to.
    pub link: Rc<RemoteLink>,
    /// Meter to which it reports.
    pub meter: Rc<ReplicatorMeter>,
}

/// Reason for the end of a connection's part of the work.
#[derive(Debug, thiserror::Error)]
enum Break {
    #[error(transparent)]
    Source(#[from] SourceFault),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Cluster(#[from] UnusableCluster),
    #[error(transparent)]
    Answer(#[from] UnexpectedAnswer),
    #[error("cluster '{0}' is not registered here")]
    NotRegistered(String),
    #[error("the topic has {there} partitions over there, so partition {partition} has none to go to")]
    TooFewPartitions { partition: u32, there: u32 },
    #[error("the topic is not partitioned here, and has {0} partitions over there")]
    Partitioned(u32),
    #[error("{code:?}: {message}")]
    Refused { code: ServerError, message: String },
    #[error("it was told to begin again")]
    Again,
}

impl From<LinkError> for Break {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Unusable(error) => Self::Cluster(error),
            LinkError::Client(error) => Self::Client(error),
        }
    }
}

/// Permits held for an entry in flight.
struct HeldForSend {
    _room: Option<OwnedSemaphorePermit>,
    since: Nanos,
}

type SharedWindow = RefCell<SendWindow<HeldForSend>>;

/// Replicates until the topic closes. Dropping it closes the producer over there; what had no answer is sent again by the next one.
pub async fn replicate<S: ReplicatorSource>(work: Replicated<'_, S>) {
    let name = work.source.topic().to_string();
    let seed = name.bytes().fold(0, |sum, byte| sum + u64::from(byte));
    let mut pace = RetryPace::new(seed);
    let window = RefCell::new(SendWindow::new(work.meter.place(), work.link.limits.entries_max));
    let mut buckets = Buckets::default();
    loop {
        window.borrow_mut().begin_again(work.meter.place());
        let before = window.borrow().acked();
        let ended = Box::pin(work.connected_once(&window, &mut buckets)).await;
        let Err(reason) = ended;
        let is_moving = window.borrow().acked() > before;
        if is_moving {
            pace.succeeded();
        }
        let is_refused = match reason {
            Break::Refused { .. } => true,
            Break::Again => false,
            _ => !is_moving,
        };
        if is_refused {
            window.borrow_mut().be_careful();
        }
        let (topic, remote) = (work.source.topic(), work.meter.remote());
        match reason {
            Break::Source(SourceFault::Closing) => {
                work.meter.on_disconnected(None);
                return;
            }
            Break::Again => {
                work.meter.on_disconnected(None);
                continue;
            }
            reason => {
                let reason = with_causes(&reason);
                if work.meter.on_disconnected(Some(reason.clone())) {
                    tracing::warn!(%topic, remote, reason, "replication stands still; it is tried again");
                } else {
                    tracing::debug!(%topic, remote, reason, "replication still stands still");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pace.pause()) => {}
            () = work.meter.told_to_begin_again() => {}
        }
    }
}

/// An error and what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl<S: ReplicatorSource> Replicated<'_, S> {
    /// Replicates over one connection.
    async fn connected_once(
        &self,
        window: &SharedWindow,
        buckets: &mut Buckets,
    ) -> Result<Infallible, Break> {
        let remote = self.meter.remote();
        let (connection, producer, answers) = tokio::select! {
            biased;
            () = self.meter.told_to_begin_again() => return Err(Break::Again),
            connected = self.connect() => connected?,
        };
        self.meter.on_connected(connection.address());
        tracing::debug!(topic = %self.source.topic(), remote, broker = connection.address(), "replication is connected");
        let answered = Notify::new();
        let ended = tokio::select! {
            biased;
            () = self.meter.told_to_begin_again() => Err(Break::Again),
            ended = self.hear(window, &answered, answers) => ended,
            ended = self.send(window, &answered, buckets, (&connection, &producer)) => ended,
        };
        if let Err(Break::Client(ClientError::TimedOut { .. })) = ended {
            // Its broker may have gone without a word.
            self.link.discard(&connection).await;
        }
        ended
    }

    async fn connect(&self) -> Result<(Connection, RelayProducer, RelayAnswers), Break> {
        let remote = self.meter.remote();
        let data = self.source.cluster(remote);
        let data = data.ok_or_else(|| Break::NotRegistered(remote.to_owned()))?;
        let topic = self.source.topic().to_string();
        let connection = self.link.serving(&data, &topic).await?;
        self.check_partitions(&connection).await?;
        let options = ProducerOptions {
            max_pending: self.link.limits.entries_max.max(1),
            lookup: false,
            ..ProducerOptions::default()
        };
        let name = producer_name(&self.link.local, remote);
        let (producer, answers) = connection.relay(&topic, options.name(&name)).await?;
        Ok((connection, producer, answers))
    }

    /// A partition goes to the partition of its number; another topic to one that is not partitioned.
    async fn check_partitions(&self, connection: &Connection) -> Result<(), Break> {
        let partition = self.source.partition();
        let base = match partition {
            Some(_) => self.source.topic().base(),
            None => self.source.topic().clone(),
        };
        let there = match connection.partitions_if_there(&base.to_string()).await {
            Err(error) if error.code() == Some(ServerError::TopicNotFound) => 0,
            there => there?,
        };
        match partition {
            Some(partition) if there <= partition => Err(Break::TooFewPartitions { partition, there }),
            None if there > 0 => Err(Break::Partitioned(there)),
            _ => Ok(()),
        }
    }

    /// Hears what became of what was sent.
    async fn hear(
        &self,
        window: &SharedWindow,
        answered: &Notify,
        mut answers: RelayAnswers,
    ) -> Result<Infallible, Break> {
        loop {
            let Ok(answer) = tokio::time::timeout(ANSWER_WITHIN, answers.next()).await else {
                let oldest = window.borrow().oldest().map(|held| held.since);
                let is_late =
                    |since: Nanos| u128::from(clock::now().since(since)) >= ANSWER_WITHIN.as_nanos();
                match oldest.is_some_and(is_late) {
                    true => return Err(ClientError::TimedOut { what: "SEND" }.into()),
                    false => continue,
                }
            };
            match answer? {
                RelayAnswer::Stored(receipt) => {
                    let highest = receipt.highest_sequence_id.unwrap_or(0);
                    let mut window = window.borrow_mut();
                    let arrived = window.on_answer(receipt.sequence_id, highest)?;
                    self.meter.count(|counts| {
                        counts.messages += u64::from(arrived.messages);
                        counts.bytes += arrived.bytes as u64;
                    });
                    self.tell(&window);
                    if self.meter.on_arrived() {
                        let (topic, remote) = (self.source.topic(), self.meter.remote());
                        tracing::info!(%topic, remote, "replication goes on");
                    }
                    answered.notify_one();
                }
                RelayAnswer::Refused(error) => {
                    return Err(Break::Refused {
                        code: ServerError::try_from(error.error).unwrap_or(ServerError::UnknownError),
                        message: error.message,
                    });
                }
            }
        }
    }

    /// Tells how far it is.
    fn tell(&self, window: &SendWindow<HeldForSend>) {
        self.meter.set_place(window.acked());
        self.meter.set_oldest_sent(window.oldest().map(|held| held.since));
    }

    /// Reads the log and sends it.
    async fn send(
        &self,
        window: &SharedWindow,
        answered: &Notify,
        buckets: &mut Buckets,
        (connection, producer): (&Connection, &RelayProducer),
    ) -> Result<Infallible, Break> {
        let mut schemas = HashMap::new();
        loop {
            let from = window.borrow().next();
            self.source.readable(from).await?;
            self.wait_for_rate(buckets).await;
            let entries_max = self.wait_for_window(window, answered).await;
            let (entries_left, bytes_left) = buckets.left(self.source.rate());
            let entries_max = entries_max.min(usize::try_from(entries_left).unwrap_or(usize::MAX));
            let bytes_max = READ_BYTES.min(usize::try_from(bytes_left).unwrap_or(usize::MAX));
            let mut room = self.link.room(bytes_max).await;
            let entries = match self.source.read(from, entries_max, bytes_max).await {
                Err(SourceFault::Gone(to)) => {
                    let mut window = window.borrow_mut();
                    window.on_passed(to.max(from.plus(1)));
                    self.tell(&window);
                    continue;
                }
                entries => entries?,
            };
            for entry in entries {
                let found = match entry.is_hidden {
                    true => Fate::Passed(Passed::NoMessage),
                    false => outgoing(
                        &entry.payload,
                        self.meter.remote(),
                        self.source.expired_before_ms(),
                    ),
                };
                let found = match found {
                    Fate::Sent(found) => found,
                    Fate::Passed(why) => {
                        self.pass(window, entry.ordinal, why);
                        continue;
                    }
                };
                let version = self.schema_over_there(connection, &mut schemas, &found).await?;
                let Some((send, bytes)) = found.encode(&self.link.local, entry.position, &version) else {
                    self.pass(window, entry.ordinal, Passed::NoMessage);
                    continue;
                };
                let held = HeldForSend {
                    _room: room.split(bytes.len().min(room.num_permits())),
                    since: clock::now(),
                };
                let sent_as = match connection.answers_by_source() && !found.is_marker() {
                    true => SentAs::Source(entry.position.ledger.0, entry.position.entry.0),
                    false => SentAs::Sequence(send.sequence_id),
                };
                buckets.take(u64::from(found.messages), bytes.len() as u64);
                {
                    let mut window = window.borrow_mut();
                    window.on_sent(entry.ordinal, sent_as, found.messages, bytes.len(), held);
                    self.tell(&window);
                }
                producer.send(send, &bytes).await?;
            }
        }
    }

    /// An entry is not sent.
    fn pass(&self, window: &SharedWindow, at: Ordinal, why: Passed) {
        if let Passed::Expired(messages) = why {
            self.meter.count(|counts| counts.expired += u64::from(messages));
        }
        let mut window = window.borrow_mut();
        window.on_passed(at.plus(1));
        self.tell(&window);
    }

    /// Resolves when something may go.
    async fn wait_for_rate(&self, buckets: &mut Buckets) {
        loop {
            let seconds = buckets.wait(self.source.rate(), clock::now());
            if seconds <= 0.0 {
                return;
            }
            let pause = Duration::from_secs_f64(seconds.min(RATE_PAUSE_MAX.as_secs_f64()));
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until entries may be sent, and returns their number; at least one.
    async fn wait_for_window(&self, window: &SharedWindow, answered: &Notify) -> usize {
        loop {
            let room = window.borrow().room();
            if room > 0 {
                return room;
            }
            answered.notified().await;
        }
    }

    /// The version over there of the schema that an entry was written with; made there when it is not. Empty: it has none.
    async fn schema_over_there(
        &self,
        connection: &Connection,
        known: &mut HashMap<Vec<u8>, Bytes>,
        entry: &OutgoingEntry<'_>,
    ) -> Result<Bytes, ClientError> {
        let Some(here) = entry.schema_version else {
            return Ok(Bytes::new());
        };
        if let Some(there) = known.get(here) {
            return Ok(there.clone());
        }
        let topic = self.source.topic();
        let there = match self.source.schema(here) {
            Some(schema) => {
                connection
                    .get_or_create_schema(&topic.to_string(), proto_of(schema))
                    .await?
            }
            None => {
                tracing::warn!(%topic, remote = self.meter.remote(), "messages of a schema that was deleted go without one");
                Bytes::new()
            }
        };
        known.insert(here.to_vec(), there.clone());
        Ok(there)
    }
}

fn proto_of(schema: SourceSchema) -> Schema {
    let pair = |(key, value)| KeyValue { key, value };
    Schema {
        name: schema.name,
        schema_data: schema.data,
        r#type: wire_type(schema.kind) as i32,
        properties: schema.properties.into_iter().map(pair).collect(),
    }
}

/// Converts the registry's name of a schema type to its number on the wire; bytes have none.
fn wire_type(kind: &str) -> WireType {
    match kind {
        "STRING" => WireType::String,
        "JSON" => WireType::Json,
        "PROTOBUF" => WireType::Protobuf,
        "AVRO" => WireType::Avro,
        "BOOLEAN" => WireType::Bool,
        "INT8" => WireType::Int8,
        "INT16" => WireType::Int16,
        "INT32" => WireType::Int32,
        "INT64" => WireType::Int64,
        "FLOAT" => WireType::Float,
        "DOUBLE" => WireType::Double,
        "DATE" => WireType::Date,
        "TIME" => WireType::Time,
        "TIMESTAMP" => WireType::Timestamp,
        "KEY_VALUE" => WireType::KeyValue,
        "INSTANT" => WireType::Instant,
        "LOCAL_DATE" => WireType::LocalDate,
        "LOCAL_TIME" => WireType::LocalTime,
        "LOCAL_DATE_TIME" => WireType::LocalDateTime,
        "PROTOBUF_NATIVE" => WireType::ProtobufNative,
        "EXTERNAL" => WireType::External,
        _ => WireType::None,
    }
}
