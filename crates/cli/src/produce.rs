//! `pharos produce`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::BufRead as _;
use std::task::Poll;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use pharos_client::{ClientError, OutgoingMessage, Producer, ProducerOptions, SendReceipt};
use tokio::sync::mpsc;

use crate::comeback::{Comeback, Lost};
use crate::error::CliError;
use crate::service::{Opened, Service};

/// Messages sent and not yet confirmed. Enough to hide the way there and back.
const PENDING_MAX: usize = 500;

#[derive(Args, Clone, Debug)]
pub(crate) struct ProduceArgs {
    /// The topic; of a partitioned topic the key or the turn decides the partition
    topic: String,
    /// What to publish; without any, each line of standard input is a message
    messages: Vec<String>,
    /// Key of every message
    #[arg(long)]
    key: Option<String>,
    /// A property of every message; may be given several times
    #[arg(long = "property", value_name = "KEY=VALUE")]
    properties: Vec<String>,
    /// Publish each message this often
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    repeat: u64,
    /// End with an error when messages cannot be published for this many seconds, such as while the broker's disk is full; 0 retries
    /// without end
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    give_up_after: u64,
    #[command(flatten)]
    service: Service,
}

pub(crate) async fn run(args: ProduceArgs) -> Result<String, CliError> {
    let properties = args.properties.iter().map(|text| {
        let pair = text.split_once('=');
        pair.ok_or_else(|| CliError::Usage(format!("'{text}' is no property: write KEY=VALUE")))
    });
    let properties: Vec<(&str, &str)> = properties.collect::<Result<_, _>>()?;
    let opened = args.service.open(&args.topic).await?;
    let url = opened.url.clone();
    let give_up_after = (args.give_up_after > 0).then(|| Duration::from_secs(args.give_up_after));
    let mut sender = Sender::open(opened, give_up_after).await?;
    let mut lines = if args.messages.is_empty() {
        Lines::of_stdin()
    } else {
        Lines::Given(args.messages.into())
    };
    loop {
        let line = tokio::select! {
            line = lines.next() => line?,
            // What is on its way is looked after while no line comes.
            outcome = sender.step() => {
                outcome.map_err(|error| url.error(error))?;
                continue;
            }
        };
        let Some(line) = line else { break };
        for _ in 0..args.repeat {
            let mut message = OutgoingMessage::new(line.clone());
            if let Some(key) = &args.key {
                message = message.key(key);
            }
            for (key, value) in &properties {
                message = message.property(key, value);
            }
            let sending = sender.send(message, args.key.as_deref());
            sending.await.map_err(|error| url.error(error))?;
        }
    }
    sender.finish().await.map_err(|error| url.error(error))
}

/// All partitions of a topic, and the messages on their way there.
struct Sender {
    parts: Vec<ProducedPart>,
    recovery: Comeback<Producer>,
    /// Which partition is next for a message without a key.
    turn: usize,
    /// Messages without a receipt, of all partitions.
    pending: usize,
    sent: u64,
    /// Those that may be in the topic twice.
    maybe_twice: u64,
}

/// A topic or partition.
struct ProducedPart {
    topic: String,
    /// `None` while it is lost.
    producer: Option<Producer>,
    name: String,
    /// How often it came back.
    epoch: u64,
    next_sequence_id: u64,
    /// Without a receipt, in their order.
    unconfirmed: VecDeque<Unconfirmed>,
}

/// A message without a receipt.
struct Unconfirmed {
    sequence_id: u64,
    message: OutgoingMessage,
    /// `None` until it is sent, and again when its producer is lost.
    receipt: Option<BoxFuture<'static, Result<SendReceipt, ClientError>>>,
    /// It was sent, and lost with its producer before there was a receipt.
    was_lost: bool,
    /// It was sent again to a broker that does not know what it had before.
    maybe_twice: bool,
}

impl Sender {
    async fn open(opened: Opened, give_up_after: Option<Duration>) -> Result<Self, CliError> {
        let mut parts = Vec::new();
        for (topic, connection) in opened.topics {
            let producer = connection.producer(&topic, ProducerOptions::default()).await;
            let producer = producer.map_err(|error| opened.url.error(error))?;
            parts.push(ProducedPart {
                topic,
                name: producer.name().to_owned(),
                epoch: 0,
                next_sequence_id: known_end(&producer),
                producer: Some(producer),
                unconfirmed: VecDeque::new(),
            });
        }
        Ok(Self {
            parts,
            recovery: Comeback::until_proved(opened.brokers, give_up_after),
            turn: 0,
            pending: 0,
            sent: 0,
            maybe_twice: 0,
        })
    }

    async fn send(&mut self, message: OutgoingMessage, key: Option<&str>) -> Result<(), ClientError> {
        let count = self.parts.len().max(1);
        let index = match key {
            Some(key) => key_hash(key) % count,
            None => self.turn % count,
        };
        self.turn = self.turn.wrapping_add(1);
        while self.pending >= PENDING_MAX {
            self.step().await?;
        }
        let Some(part) = self.parts.get_mut(index) else {
            return Ok(());
        };
        part.unconfirmed.push_back(Unconfirmed {
            sequence_id: part.next_sequence_id,
            message,
            receipt: None,
            was_lost: false,
            maybe_twice: false,
        });
        part.next_sequence_id += 1;
        self.pending += 1;
        self.send_unsent(index).await
    }

    /// Sends what a partition has not sent yet, or lost.
    async fn send_unsent(&mut self, index: usize) -> Result<(), ClientError> {
        let Some(part) = self.parts.get_mut(index) else {
            return Ok(());
        };
        let Some(producer) = &part.producer else {
            return Ok(());
        };
        // All that is sent stands before what is not.
        let first = part
            .unconfirmed
            .iter()
            .rposition(|one| one.receipt.is_some())
            .map_or(0, |last| last + 1);
        for one in part.unconfirmed.iter_mut().skip(first) {
            match producer.begin_send_as(one.sequence_id, one.message.clone()).await {
                Ok(pending) => one.receipt = Some(pending.receipt().boxed()),
                Err(error) => return self.lose(index, error),
            }
        }
        Ok(())
    }

    /// One step for what is on its way: a receipt, a loss, or a producer that is back. Never comes while nothing is.
    ///
    /// Cancel safety: nothing is lost or sent twice when the future is dropped.
    async fn step(&mut self) -> Result<(), ClientError> {
        // What an earlier step did not come to.
        for index in 0..self.parts.len() {
            self.send_unsent(index).await?;
        }
        tokio::select! {
            (index, outcome) = next_receipt(&mut self.parts) => match outcome {
                Ok(_) => {
                    self.confirm(index);
                    Ok(())
                }
                Err(error) => self.lose(index, error),
            },
            mended = self.recovery.mended() => {
                let (index, producer) = mended?;
                self.on_back(index, producer).await
            }
        }
    }

    fn confirm(&mut self, index: usize) {
        let front = self
            .parts
            .get_mut(index)
            .and_then(|part| part.unconfirmed.pop_front());
        if let Some(confirmed) = front {
            self.pending -= 1;
            self.sent += 1;
            self.maybe_twice += u64::from(confirmed.maybe_twice);
            self.recovery.proved();
        }
    }

    /// A producer is lost, with all receipts that it had not got.
    fn lose(&mut self, index: usize, error: ClientError) -> Result<(), ClientError> {
        let Some(part) = self.parts.get_mut(index) else {
            return Ok(());
        };
        part.producer = None;
        for one in &mut part.unconfirmed {
            one.was_lost |= one.receipt.take().is_some();
        }
        part.epoch += 1;
        let options = ProducerOptions::default().returning(&part.name, part.epoch);
        let topic = part.topic.clone();
        let lost = Lost {
            index,
            topic: topic.clone(),
            assigned: None,
            make: Box::new(move |connection| {
                let (topic, options) = (topic.clone(), options.clone());
                async move { connection.producer(&topic, options).await }.boxed_local()
            }),
        };
        self.recovery.lose(lost, error)
    }

    /// A producer is back: what has no receipt is sent again, in its order and under its numbers.
    async fn on_back(&mut self, index: usize, producer: Producer) -> Result<(), ClientError> {
        if let Some(part) = self.parts.get_mut(index) {
            // Only one that keeps deduplication knows how far this producer had come.
            let is_known = known_end(&producer) > 0;
            for one in &mut part.unconfirmed {
                one.maybe_twice |= one.was_lost && !is_known;
            }
            part.producer = Some(producer);
        }
        self.send_unsent(index).await
    }

    /// Waits for all receipts; what to say of them.
    async fn finish(mut self) -> Result<String, ClientError> {
        while self.pending > 0 {
            self.step().await?;
        }
        for part in self.parts {
            // Everything is stored: it does not matter who ends it.
            if let Some(producer) = part.producer
                && let Err(error) = producer.close().await
                && !error.is_transient()
            {
                return Err(error);
            }
        }
        let published = match self.sent {
            1 => "1 message published".to_owned(),
            sent => format!("{sent} messages published"),
        };
        Ok(match self.maybe_twice {
            0 => format!("{published}\n"),
            1 => format!("{published}; 1 was sent again after a loss and may be there twice\n"),
            twice => {
                format!("{published}; {twice} were sent again after a loss and may be there twice\n")
            }
        })
    }
}

/// The number after the last that the broker knows of a producer; 0 when it knows none.
fn known_end(producer: &Producer) -> u64 {
    let last = producer.success().last_sequence_id.unwrap_or(-1);
    u64::try_from(last.saturating_add(1)).unwrap_or_default()
}

/// The first receipt that comes, of those that are next in each partition.
async fn next_receipt(parts: &mut [ProducedPart]) -> (usize, Result<SendReceipt, ClientError>) {
    poll_fn(|cx| {
        for (index, part) in parts.iter_mut().enumerate() {
            let front = part.unconfirmed.front_mut().and_then(|one| one.receipt.as_mut());
            if let Some(Poll::Ready(outcome)) = front.map(|receipt| receipt.poll_unpin(cx)) {
                return Poll::Ready((index, outcome));
            }
        }
        Poll::Pending
    })
    .await
}

/// The hash by which clients choose a partition unless told otherwise (Java's `String.hashCode`), so that keys of this
/// tool and of others meet.
fn key_hash(key: &str) -> usize {
    let hash = key.encode_utf16().fold(0u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    (hash & 0x7fff_ffff) as usize
}

/// Where messages come from.
enum Lines {
    Given(VecDeque<String>),
    Stdin(mpsc::Receiver<std::io::Result<String>>),
}

impl Lines {
    /// Reads on a thread of its own, because reading blocks and the connection must be kept alive meanwhile.
    fn of_stdin() -> Self {
        let (sender, receiver) = mpsc::channel(64);
        drop(tokio::task::spawn_blocking(move || {
            for line in std::io::stdin().lock().lines() {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        }));
        Self::Stdin(receiver)
    }

    async fn next(&mut self) -> std::io::Result<Option<String>> {
        match self {
            Self::Given(lines) => Ok(lines.pop_front()),
            Self::Stdin(lines) => lines.recv().await.transpose(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_elsewhere() {
        assert_eq!(key_hash(""), 0);
        assert_eq!(key_hash("hello"), 99_162_322);
        assert_eq!(key_hash("polygenelubricants"), 0);
    }
}
