//! The protocol of NATS, with and without JetStream, as far as a load needs it.
//!
//! Written here instead of taken from a client library for the same reason as Kafka's: the library hands every message over a
//! channel to a task of its own, which on a machine that is shared with the server is taken from the server.
//!
//! A topic is a stream `bT`, a partition a subject `bT.P` of it. JetStream's messages go in one by one, each with an
//! acknowledgement of its own, and come out over pull consumers; without JetStream there are subjects alone, and what stands for
//! a receipt is the answer to a PING behind a batch: the server has seen it. Source: the client protocol of NATS, and the
//! reference of JetStream's wire API.

pub(crate) mod publish;
pub(crate) mod receive;
mod setup;
mod wire;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::share::Slot;
use crate::spec::Load;

pub(crate) use setup::is_ready;

/// Address and mode of a NATS server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NatsDoor {
    /// Address of the server.
    pub(crate) address: SocketAddr,
    /// Messages are stored in streams.
    pub(crate) jetstream: bool,
}

impl NatsDoor {
    /// Makes the streams.
    pub(super) fn prepare(&self, load: &Load) -> anyhow::Result<()> {
        if self.jetstream {
            let mut session = setup::Session::open(self.address)?;
            for topic in 0..load.topics {
                session.create_stream(topic)?;
            }
        }
        Ok(())
    }
}

fn stream_name(topic: u32) -> String {
    format!("b{topic}")
}

fn subject(slot: Slot) -> String {
    format!("b{}.{}", slot.topic, slot.partition)
}

/// The slot of a subject.
fn slot(subject: &str) -> Option<Slot> {
    let (topic, partition) = subject.strip_prefix('b')?.split_once('.')?;
    Some(Slot {
        topic: topic.parse().ok()?,
        partition: partition.parse().ok()?,
    })
}
