//! `pharos produce`.

use std::collections::VecDeque;
use std::io::BufRead as _;

use clap::Args;
use pharos_client::{OutgoingMessage, PendingSend, Producer, ProducerOptions};
use tokio::sync::mpsc;

use crate::error::CliError;
use crate::service::Service;

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
    let mut producers = Vec::new();
    for topic in &opened.topics {
        let producer = opened
            .connection
            .producer(topic, ProducerOptions::default())
            .await;
        producers.push(producer.map_err(|error| opened.error(error))?);
    }
    let mut sender = Sender {
        producers,
        turn: 0,
        pending: VecDeque::new(),
        sent: 0,
    };
    let mut lines = if args.messages.is_empty() {
        Lines::of_stdin()
    } else {
        Lines::Given(args.messages.into())
    };
    while let Some(line) = lines.next().await? {
        for _ in 0..args.repeat {
            let mut message = OutgoingMessage::new(line.clone());
            if let Some(key) = &args.key {
                message = message.key(key);
            }
            for (key, value) in &properties {
                message = message.property(key, value);
            }
            sender
                .send(message, args.key.as_deref())
                .await
                .map_err(|error| opened.error(error))?;
        }
    }
    let sent = sender.finish().await.map_err(|error| opened.error(error))?;
    Ok(format!("{sent} messages published\n"))
}

struct Sender {
    producers: Vec<Producer>,
    /// Which partition is next for a message without a key.
    turn: usize,
    pending: VecDeque<PendingSend>,
    sent: u64,
}

impl Sender {
    async fn send(
        &mut self,
        message: OutgoingMessage,
        key: Option<&str>,
    ) -> Result<(), pharos_client::ClientError> {
        let count = self.producers.len().max(1);
        let index = match key {
            Some(key) => key_hash(key) % count,
            None => self.turn % count,
        };
        self.turn = self.turn.wrapping_add(1);
        if self.pending.len() >= PENDING_MAX {
            self.confirm_one().await?;
        }
        if let Some(producer) = self.producers.get(index) {
            self.pending.push_back(producer.begin_send(message).await?);
        }
        Ok(())
    }

    async fn confirm_one(&mut self) -> Result<(), pharos_client::ClientError> {
        if let Some(pending) = self.pending.pop_front() {
            pending.receipt().await?;
            self.sent += 1;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<u64, pharos_client::ClientError> {
        while !self.pending.is_empty() {
            self.confirm_one().await?;
        }
        for producer in self.producers {
            producer.close().await?;
        }
        Ok(self.sent)
    }
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
