//! A small Pulsar client for tests, tools and the command line.
//!
//! One [`Connection`] is one TCP connection, with TLS if its address says so, shared by any number of producers and
//! consumers; [`Brokers`] holds one to each broker of a cluster that a caller needs, and tries several addresses to find the
//! first. There is no reconnecting and no retrying beyond that: what happens on the wire happens to the caller, which is
//! what a test wants to see, and [`ClientError::is_transient`] says whether another try makes sense. When the connection ends, everything on it says [`ClientError::Disconnected`].
//! [`RawConnection`] is for tests that must send what no client would.
//!
//! ```text
//! Connection ── writer task ◄── bounded queue ◄── producers, consumers, requests
//!     └──────── reader task ──► requests by request id
//!                           ──► receipts by producer id        (bounded by max_pending)
//!                           ──► messages by consumer id        (bounded queue; full: the reader waits, and TCP with it)
//! ```
//!
//! Dropping closes: a producer or consumer tells the broker, the last handle of a connection ends both tasks.
//! A broker that asks for new credentials gets those that a
//! [`CredentialSource`] has then. Works on any tokio runtime, single-threaded ones too. Messages are not compressed, and decompressed where a
//! consumer's options say so.
//!
//! ```no_run
//! use pharos_client::{Connection, ConsumerOptions, ConnectOptions, OutgoingMessage, ProducerOptions};
//!
//! # async fn example() -> Result<(), pharos_client::ClientError> {
//! let connection = Connection::connect("pulsar://127.0.0.1:6650", ConnectOptions::default()).await?;
//! let mut consumer = connection.subscribe("notices", ConsumerOptions::shared("cars")).await?;
//! let producer = connection.producer("notices", ProducerOptions::default()).await?;
//! producer.send(OutgoingMessage::new("road closed").key("A5")).await?;
//! let message = consumer.receive().await?;
//! consumer.ack(&message.id).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod credentials;
mod error;
mod event;
mod inside;
mod options;
pub mod plugin;

mod stream;
mod tls;

mod raw;

mod brokers;
mod connection;
mod driver;
mod refresh;
mod topics;

mod message;

mod producer;

mod relay;

mod consumer;
mod reader;

pub use brokers::Brokers;
pub use connection::Connection;
pub use consumer::{Consumer, ConsumerOptions};
pub use credentials::CredentialSource;
pub use error::ClientError;
pub use event::{AssignedBroker, ConsumerEvent};
pub use inside::{Inside, InsideStream};
pub use message::{Message, OutgoingMessage, earliest, latest};
pub use options::ConnectOptions;
pub use pharos_wire::proto::MessageIdData as MessageId;
pub use producer::{PendingSend, Producer, ProducerOptions, SendReceipt};
pub use raw::RawConnection;
pub use reader::Reader;
pub use relay::{RelayAnswer, RelayAnswers, RelayProducer};
/// For `https://` with the same trust: what [`TlsOptions::client_config`] is made for.
pub use rustls;
pub use tls::TlsOptions;
pub use topics::{Lookup, TopicList, TopicWatcher};
