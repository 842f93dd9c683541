//! `pharos consume`.

use std::future::pending;
use std::io::{self, Write as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use pharos_client::{ClientError, Consumer, ConsumerOptions, Message};
use serde_json::json;
use tokio::time::Instant;

use crate::Output;
use crate::comeback::{Comeback, Lost, talk};
use crate::error::CliError;
use crate::service::{Opened, Service};

#[derive(Args, Clone, Debug)]
pub(crate) struct ConsumeArgs {
    /// The topic; of a partitioned topic all partitions
    topic: String,
    /// Name of the subscription; it is made when it does not exist
    #[arg(short, long)]
    subscription: String,
    /// Kind of the subscription
    #[arg(long = "type", value_enum, default_value = "exclusive", value_name = "TYPE")]
    kind: Kind,
    /// Where a new subscription begins
    #[arg(long, value_enum, default_value = "latest", value_name = "PLACE")]
    from: Begin,
    /// Name of the consumer; a broadcast consumer keeps its place under it, also while its broker is lost
    #[arg(long)]
    name: Option<String>,
    /// Stop after this many messages; without it, go on for ever
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Stop when no message came for this many seconds; with an error if the broker is lost then
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Form of the result: text is the message alone, json one object per line with key, properties and id
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    service: Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// One consumer
    Exclusive,
    /// Each message to one of the consumers
    Shared,
    /// One active consumer, others stand by
    Failover,
    /// As shared, all messages of a key to the same consumer
    KeyShared,
    /// Every message to every consumer
    Broadcast,
}

impl Kind {
    /// Whether messages come in the order of the log.
    fn is_ordered(self) -> bool {
        matches!(self, Self::Exclusive | Self::Failover | Self::Broadcast)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Begin {
    /// The oldest message there is
    Earliest,
    /// The next message
    Latest,
}

pub(crate) async fn run(args: ConsumeArgs) -> Result<String, CliError> {
    let opened = args.service.open(&args.topic).await?;
    let url = opened.url.clone();
    let mut consuming = Consuming::open(args, opened).await?;
    consuming.go().await.map_err(|error| match error {
        Stopped::Client(error) => url.error(error),
        Stopped::Local(error) => CliError::Local(error),
    })?;
    Ok(String::new())
}

/// Why it goes on no more.
enum Stopped {
    Client(ClientError),
    Local(io::Error),
}

impl From<ClientError> for Stopped {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// A topic, or all partitions of one, as they are received.
struct Consuming {
    args: ConsumeArgs,
    parts: Vec<ConsumedPart>,
    recovery: Comeback<Consumer>,
    /// When the last message came.
    last_message: Instant,
}

/// A topic or partition.
struct ConsumedPart {
    topic: String,
    /// `None` while it is lost, and after the end of the topic.
    consumer: Option<Consumer>,
    at_end: bool,
    written: WrittenBefore,
}

impl Consuming {
    async fn open(args: ConsumeArgs, opened: Opened) -> Result<Self, CliError> {
        let mut parts = Vec::new();
        for (topic, connection) in opened.topics {
            let consumer = connection.subscribe(&topic, options(&args)).await;
            parts.push(ConsumedPart {
                consumer: Some(consumer.map_err(|error| opened.url.error(error))?),
                topic,
                at_end: false,
                written: WrittenBefore::default(),
            });
        }
        Ok(Self {
            args,
            parts,
            recovery: Comeback::new(opened.brokers),
            last_message: Instant::now(),
        })
    }

    /// Receives until there is enough, no more comes, or what is lost cannot be mended.
    async fn go(&mut self) -> Result<(), Stopped> {
        let mut left = self.args.count.unwrap_or(u64::MAX);
        while left > 0 && self.parts.iter().any(|part| !part.at_end) {
            let idle_end = self.idle_end();
            tokio::select! {
                (index, outcome) = next(&mut self.parts) => match outcome {
                    Ok(message) => left -= u64::from(self.take(index, &message).await?),
                    Err(error) => self.on_end(index, error)?,
                },
                mended = self.recovery.mended() => {
                    let (index, consumer) = mended?;
                    if let Some(part) = self.parts.get_mut(index) {
                        part.consumer = Some(consumer);
                    }
                }
                () = sleep_until(idle_end) => match self.recovery.trouble() {
                    // Not all that there is has been received.
                    Some(error) => return Err(error.clone().into()),
                    None => break,
                },
            }
        }
        for part in &mut self.parts {
            let Some(consumer) = part.consumer.take() else {
                continue;
            };
            match consumer.close().await {
                Err(error) if error.is_transient() => talk(&format_args!(
                    "{}: {error}; what was acknowledged last may come again",
                    part.topic
                )),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn idle_end(&self) -> Option<Instant> {
        let idle = Duration::from_secs(self.args.idle?);
        self.last_message.checked_add(idle)
    }

    /// Writes a message and acknowledges it; false when it was written before.
    async fn take(&mut self, index: usize, message: &Message) -> Result<bool, Stopped> {
        let Some(part) = self.parts.get_mut(index) else {
            return Ok(false);
        };
        let is_new = !part.written.has(message);
        if is_new {
            self.last_message = Instant::now();
            // First printed, then acknowledged: what did not reach the reader comes again.
            print(message, self.args.output).map_err(Stopped::Local)?;
            part.written.note(message);
        }
        if let Some(consumer) = &mut part.consumer
            && let Err(error) = consumer.ack(&message.id).await
        {
            self.on_end(index, error)?;
        }
        Ok(is_new)
    }

    /// A consumer has ended: with its topic, or it is to be made anew.
    fn on_end(&mut self, index: usize, error: ClientError) -> Result<(), ClientError> {
        let Some(part) = self.parts.get_mut(index) else {
            return Ok(());
        };
        let ended = part.consumer.take();
        let assigned = ended.and_then(|consumer| consumer.assigned_broker().cloned());
        if matches!(error, ClientError::EndOfTopic) {
            part.at_end = true;
            return Ok(());
        }
        // A broker that closes a consumer knows what it has acknowledged, or moved the subscription on purpose.
        if self.args.kind.is_ordered() && !matches!(error, ClientError::ClosedByBroker) {
            part.written.may_come_again = true;
        }
        let (topic, options) = (part.topic.clone(), options(&self.args));
        let lost = Lost {
            index,
            topic: topic.clone(),
            assigned,
            make: Box::new(move |connection| {
                let (topic, options) = (topic.clone(), options.clone());
                async move { connection.subscribe(&topic, options).await }.boxed_local()
            }),
        };
        let is_first = self.recovery.trouble().is_none();
        self.recovery.lose(lost, error)?;
        if is_first && self.args.kind == Kind::Broadcast && self.args.name.is_none() {
            talk(
                &"a broadcast consumer without --name has no place to come back to: what is published meanwhile is missed",
            );
        }
        Ok(())
    }
}

/// What of a topic was written. Acknowledgements of the last second may go with a broker, and their messages come again:
/// where they come in the order of the log, they are known by that.
#[derive(Debug, Default)]
struct WrittenBefore {
    /// Ledger, entry, index in the batch: the last.
    last: Option<(u64, u64, i32)>,
    /// The latest time of publishing. What has a later one is new, wherever it is: a topic may be made anew.
    published_max: u64,
    /// Since a loss, nothing new has come.
    may_come_again: bool,
}

impl WrittenBefore {
    fn has(&mut self, message: &Message) -> bool {
        let is_old = Some(place(message)) <= self.last && message.metadata.publish_time <= self.published_max;
        self.may_come_again &= is_old;
        self.may_come_again
    }

    fn note(&mut self, message: &Message) {
        self.last = Some(place(message));
        self.published_max = self.published_max.max(message.metadata.publish_time);
    }
}

fn place(message: &Message) -> (u64, u64, i32) {
    let id = &message.id;
    (id.ledger_id, id.entry_id, id.batch_index.unwrap_or(-1))
}

/// Never without a time.
async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => pending().await,
    }
}

fn options(args: &ConsumeArgs) -> ConsumerOptions {
    let name = args.subscription.as_str();
    let mut options = match args.kind {
        Kind::Exclusive => ConsumerOptions::exclusive(name),
        Kind::Shared => ConsumerOptions::shared(name),
        Kind::Failover => ConsumerOptions::failover(name),
        Kind::KeyShared => ConsumerOptions::key_shared(name),
        Kind::Broadcast => {
            ConsumerOptions::exclusive(name).subscription_property("pharos.subscription", "broadcast")
        }
    };
    if args.from == Begin::Earliest {
        options = options.from_earliest();
    }
    match &args.name {
        Some(name) => options.name(name),
        None => options,
    }
}

/// The next message of any consumer, or its end. Receiving loses nothing when it is dropped, so the others just wait for
/// their turn.
async fn next(parts: &mut [ConsumedPart]) -> (usize, Result<Message, ClientError>) {
    let present = parts
        .iter_mut()
        .enumerate()
        .filter_map(|(index, part)| Some((index, part.consumer.as_mut()?)));
    let receives: Vec<_> = present
        .map(|(index, consumer)| Box::pin(async move { (index, consumer.receive().await) }))
        .collect();
    if receives.is_empty() {
        return pending().await;
    }
    select_all(receives).await.0
}

fn print(message: &Message, output: Output) -> io::Result<()> {
    let is_compressed = message.metadata.compression.unwrap_or_default() != 0;
    let mut out = std::io::stdout().lock();
    let text = std::str::from_utf8(&message.payload)
        .ok()
        .filter(|_| !is_compressed);
    match output {
        Output::Text => {
            if is_compressed {
                talk(&"a message is compressed, which this tool does not undo; its bytes follow");
            }
            out.write_all(&message.payload)?;
            out.write_all(b"\n")?;
        }
        Output::Json => {
            let id = &message.id;
            let object = json!({
                "id": format!("{}:{}:{}:{}", id.ledger_id, id.entry_id, id.partition.unwrap_or(-1), id.batch_index.unwrap_or(-1)),
                "key": message.key(),
                "properties": message.properties(),
                "publishTime": message.metadata.publish_time,
                "producerName": message.metadata.producer_name,
                "sequenceId": message.sequence_id(),
                "redeliveryCount": message.redelivery_count,
                "compressed": is_compressed,
                "payload": text,
                "payloadBase64": text.is_none().then(|| STANDARD.encode(&message.payload)),
            });
            writeln!(out, "{object}")?;
        }
    }
    // A program that reads us line by line should not wait for a full buffer.
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(entry_id: u64, publish_time: u64) -> Message {
        let mut message = Message {
            id: pharos_client::MessageId::default(),
            redelivery_count: 0,
            metadata: Default::default(),
            single: None,
            payload: Default::default(),
            ack_set: Vec::new(),
            broker_entry: Default::default(),
            consumer_epoch: None,
        };
        message.id.entry_id = entry_id;
        message.metadata.publish_time = publish_time;
        message
    }

    #[test]
    fn after_a_loss_what_was_written_is_known_until_something_new_comes() {
        let mut written = WrittenBefore::default();
        for entry in 0..3 {
            assert!(!written.has(&message(entry, 10 + entry)));
            written.note(&message(entry, 10 + entry));
        }
        // A seek, say: nothing is held back.
        assert!(!written.has(&message(1, 11)));
        written.may_come_again = true;
        assert!(written.has(&message(1, 11)));
        assert!(written.has(&message(2, 12)));
        assert!(!written.has(&message(3, 9)));
        assert!(!written.has(&message(1, 11)));
        // A topic that was made anew begins at its first place again.
        written.may_come_again = true;
        assert!(!written.has(&message(0, 13)));
    }
}
