//! What a test works with: a client of its own, names of its own, and ways to say what must be true.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, InitialPosition, Message};
use pulsar::message::proto::MessageIdData;
use pulsar::producer::{Message as Outgoing, ProducerOptions};
use pulsar::{Consumer, ConsumerBuilder, OperationRetryOptions, Producer, Pulsar, SubType, TokioExecutor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long to wait for a message that must come.
const RECEIVE_TIME: Duration = Duration::from_secs(15);

pub type Failure = Box<dyn Error + Send + Sync>;
pub type Outcome = Result<(), Failure>;
pub type Listener = Consumer<Vec<u8>, TokioExecutor>;
pub type Sender = Producer<TokioExecutor>;
pub type Received = Message<Vec<u8>>;

pub struct Env {
    pub client: Pulsar<TokioExecutor>,
    admin: String,
}

impl Env {
    pub async fn connect() -> Result<Env, Failure> {
        // A refusal that may pass is tried again for two seconds, not for ever.
        let retry = OperationRetryOptions {
            retry_delay: Duration::from_millis(100),
            max_retries: Some(20),
            ..Default::default()
        };
        let builder = Pulsar::builder(std::env::var("PHAROS_URL")?, TokioExecutor);
        let client = builder.with_operation_retry_options(retry).build().await?;
        let admin = std::env::var("PHAROS_ADMIN")?.trim_end_matches('/').to_owned();
        Ok(Env { client, admin })
    }

    pub fn topic(&self, test: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros();
        format!(
            "persistent://public/default/rust-{test}-{now:x}-{}",
            NEXT.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// A consumer to be finished by the caller; earliest, so that nothing depends on who comes first.
    pub fn listen(
        &self,
        topic: &str,
        subscription: &str,
        sub_type: SubType,
    ) -> ConsumerBuilder<TokioExecutor> {
        let builder = self
            .client
            .consumer()
            .with_subscription(subscription)
            .with_subscription_type(sub_type);
        let builder = if topic.is_empty() {
            builder
        } else {
            builder.with_topic(topic)
        };
        builder.with_options(ConsumerOptions {
            initial_position: InitialPosition::Earliest,
            ..Default::default()
        })
    }

    pub async fn subscribe(
        &self,
        topic: &str,
        subscription: &str,
        sub_type: SubType,
    ) -> Result<Listener, Failure> {
        Ok(self.listen(topic, subscription, sub_type).build().await?)
    }

    /// A producer that sends each message alone, unless `options` say otherwise.
    pub async fn produce(&self, topic: &str, options: ProducerOptions) -> Result<Sender, Failure> {
        let options = ProducerOptions {
            block_queue_if_full: true,
            ..options
        };
        Ok(self
            .client
            .producer()
            .with_topic(topic)
            .with_options(options)
            .build()
            .await?)
    }

    pub async fn create_partitioned(&self, topic: &str, partitions: u32) -> Outcome {
        let host = self
            .admin
            .strip_prefix("http://")
            .ok_or("the admin address is not http")?;
        let path = topic.replace("persistent://", "/admin/v2/persistent/") + "/partitions";
        let body = partitions.to_string();
        let mut stream = tokio::net::TcpStream::connect(host).await?;
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        expect(
            answer.starts_with("HTTP/1.1 20"),
            format!("create partitions: {answer}"),
        )
    }
}

/// Options for batches of `size`, which otherwise wait for `send_batch`.
pub fn batches(size: u32) -> ProducerOptions {
    ProducerOptions {
        batch_size: Some(size),
        ..Default::default()
    }
}

pub fn expect(condition: bool, what: impl Into<String>) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

pub fn expect_equal<T: PartialEq + Debug>(actual: &T, expected: &T, what: impl AsRef<str>) -> Outcome {
    let brief = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    expect(
        actual == expected,
        format!(
            "{}: expected {}, got {}",
            what.as_ref(),
            brief(expected),
            brief(actual)
        ),
    )
}

/// The call must fail with an error that names `kind`, as the client prints the broker's error codes.
pub async fn expect_error<T>(
    kind: &str,
    what: &str,
    call: impl Future<Output = Result<T, impl Debug>>,
) -> Outcome {
    match call.await {
        Ok(_) => Err(format!("{what}: expected {kind}, but it succeeded").into()),
        Err(error) => expect(
            format!("{error:?}").contains(kind),
            format!("{what}: expected {kind}, got {error:?}"),
        ),
    }
}

pub async fn receive(consumer: &mut Listener, count: usize) -> Result<Vec<Received>, Failure> {
    let mut messages = Vec::new();
    while messages.len() < count {
        match tokio::time::timeout(RECEIVE_TIME, consumer.try_next()).await {
            Ok(Ok(Some(message))) => messages.push(message),
            Ok(other) => return Err(format!("the consumer ended: {:?}", other.err()).into()),
            Err(_) => {
                return Err(format!(
                    "no message within {RECEIVE_TIME:?} after {} of {count}",
                    messages.len()
                )
                .into());
            }
        }
    }
    Ok(messages)
}

/// The next messages, each acknowledged; returns their contents.
pub async fn receive_ack(consumer: &mut Listener, count: usize) -> Result<Vec<String>, Failure> {
    let messages = receive(consumer, count).await?;
    for message in &messages {
        consumer.ack(message).await?;
    }
    Ok(messages.iter().map(text).collect())
}

/// Polls all consumers until `count` messages came in all; returns which consumer got each.
pub async fn collect(
    consumers: &mut [Listener],
    count: usize,
    acknowledge: bool,
) -> Result<Vec<(usize, Received)>, Failure> {
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while got.len() < count {
        expect(
            Instant::now() < end,
            format!("only {} of {count} messages within 20 s", got.len()),
        )?;
        for (index, consumer) in consumers.iter_mut().enumerate() {
            while got.len() < count {
                let Ok(message) = tokio::time::timeout(Duration::from_millis(20), consumer.try_next()).await
                else {
                    break;
                };
                let message = message?.ok_or("the consumer ended")?;
                if acknowledge {
                    consumer.ack(&message).await?;
                }
                got.push((index, message));
            }
        }
    }
    Ok(got)
}

/// Sends without waiting for each and returns the message ids in order.
pub async fn send_messages(
    producer: &mut Sender,
    messages: Vec<Outgoing>,
) -> Result<Vec<MessageIdData>, Failure> {
    let mut receipts = Vec::new();
    for message in messages {
        receipts.push(producer.send_non_blocking(message).await?);
    }
    if producer.options().batch_size.is_some() {
        producer.send_batch().await?;
    }
    let mut ids = Vec::new();
    for receipt in receipts {
        let receipt = tokio::time::timeout(RECEIVE_TIME, receipt)
            .await
            .map_err(|_| "no receipt within 15 s")??;
        ids.push(receipt.message_id.ok_or("a receipt without a message id")?);
    }
    Ok(ids)
}

pub async fn send_all(producer: &mut Sender, contents: &[String]) -> Result<Vec<MessageIdData>, Failure> {
    let outgoing = |content: &String| Outgoing {
        payload: content.clone().into_bytes(),
        ..Default::default()
    };
    send_messages(producer, contents.iter().map(outgoing).collect()).await
}

/// Closes after what was acknowledged has gone out: acknowledgements pass through the client's own queue, closing does not.
pub async fn close(mut consumer: Listener) -> Outcome {
    consumer.check_connection().await?;
    Ok(consumer.close().await?)
}

pub fn text(message: &Received) -> String {
    String::from_utf8_lossy(&message.payload.data).into_owned()
}

pub fn texts(got: &[(usize, Received)]) -> Vec<String> {
    got.iter().map(|(_, message)| text(message)).collect()
}

pub fn numbered(count: usize) -> Vec<String> {
    named("m", count)
}

pub fn named(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}

pub fn one(content: &str) -> Vec<String> {
    vec![content.to_owned()]
}

pub fn sorted(mut contents: Vec<String>) -> Vec<String> {
    contents.sort();
    contents
}
