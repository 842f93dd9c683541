//! The Kafka protocol, as far as a load needs it.
//!
//! Written here instead of taken from a client library, because what the load costs is taken from the broker on the same machine,
//! and because the libraries at hand would slow Kafka down: one opens a connection for each partition, which no usual client
//! does; the other is a C program whose build is longer than that of all the rest. One connection carries any number of
//! partitions here: produce requests are pipelined and hold the batches of many partitions, as the Java client's do, and fetches
//! are incremental.
//!
//! Versions of requests are the newest before "flexible" ones; Kafka 4 takes them all. Source: the protocol guide of Kafka.

pub(crate) mod publish;
pub(crate) mod receive;
mod setup;
mod wire;

pub(crate) use setup::{is_ready, prepare};

/// The name of a topic.
fn topic_name(topic: u32) -> String {
    format!("b{topic}")
}

/// Returns the length of the answer that begins with these bytes, including its four length bytes.
fn whole_len(start: &[u8]) -> Option<usize> {
    let length = start.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*length) as usize + 4)
}
