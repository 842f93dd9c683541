//! `pharos consume`.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use futures_util::future::select_all;
use pharos_client::{ClientError, Consumer, ConsumerOptions, Message};
use serde_json::json;

use crate::Output;
use crate::error::CliError;
use crate::service::Service;

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
    /// Name of the consumer; a broadcast consumer keeps its place under it
    #[arg(long)]
    name: Option<String>,
    /// Stop after this many messages; without it, go on for ever
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Stop when no message came for this many seconds
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Form of the result: text is the message alone, json one object per line with key, properties and id
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    service: Service,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Begin {
    /// The oldest message there is
    Earliest,
    /// The next message
    Latest,
}

pub(crate) async fn run(args: ConsumeArgs) -> Result<String, CliError> {
    let opened = args.service.open(&args.topic).await?;
    let mut consumers = Vec::new();
    for topic in &opened.topics {
        let consumer = opened.connection.subscribe(topic, options(&args)).await;
        consumers.push(consumer.map_err(|error| opened.error(error))?);
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && !consumers.is_empty() {
        match next(&mut consumers, args.idle).await {
            Next::Message(index, message) => {
                // First printed, then acknowledged: what did not reach the reader comes again.
                print(&message, args.output)?;
                if let Some(consumer) = consumers.get_mut(index) {
                    consumer
                        .ack(&message.id)
                        .await
                        .map_err(|error| opened.error(error))?;
                }
                left -= 1;
            }
            Next::End(index) => drop(consumers.remove(index)),
            Next::Failed(error) => return Err(opened.error(error)),
            Next::Idle => break,
        }
    }
    for consumer in consumers {
        consumer.close().await.map_err(|error| opened.error(error))?;
    }
    Ok(String::new())
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

enum Next {
    Message(usize, Box<Message>),
    /// The topic is terminated and read to its end.
    End(usize),
    Failed(ClientError),
    Idle,
}

/// The next message of any consumer. Receiving loses nothing when it is dropped, so the others just wait for their turn.
async fn next(consumers: &mut [Consumer], idle: Option<u64>) -> Next {
    let receives = consumers.iter_mut().map(|consumer| Box::pin(consumer.receive()));
    let first = select_all(receives);
    let outcome = match idle {
        Some(seconds) => match tokio::time::timeout(Duration::from_secs(seconds), first).await {
            Ok(outcome) => outcome,
            Err(_) => return Next::Idle,
        },
        None => first.await,
    };
    match outcome {
        (Ok(message), index, _) => Next::Message(index, Box::new(message)),
        (Err(ClientError::EndOfTopic), index, _) => Next::End(index),
        (Err(error), ..) => Next::Failed(error),
    }
}

fn print(message: &Message, output: Output) -> Result<(), CliError> {
    let is_compressed = message.metadata.compression.unwrap_or_default() != 0;
    let mut out = std::io::stdout().lock();
    let text = std::str::from_utf8(&message.payload)
        .ok()
        .filter(|_| !is_compressed);
    match output {
        Output::Text => {
            if is_compressed {
                let mut talk = std::io::stderr().lock();
                writeln!(
                    talk,
                    "pharos: a message is compressed, which this tool does not undo; its bytes follow"
                )?;
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
