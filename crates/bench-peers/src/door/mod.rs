//! The protocols: what each brings to the load program.

pub(crate) mod kafka;
pub(crate) mod mqtt;
pub(crate) mod nats;
pub(crate) mod pulsar;

use std::net::SocketAddr;

use anyhow::ensure;
use pharos_bench::load::{Control, StageBuckets, Teller};
use serde::{Deserialize, Serialize};

use crate::share::{PublishShare, ReceiveShare};
use crate::spec::Load;

/// Work of a load thread.
pub(crate) type Work = Box<dyn FnOnce(&Control, Teller) -> anyhow::Result<()> + Send>;

/// Protocol and address of a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Door {
    /// The Pulsar protocol.
    Pulsar(pulsar::PulsarDoor),
    /// Kafka's.
    Kafka(SocketAddr),
    /// NATS.
    Nats(nats::NatsDoor),
    /// MQTT.
    Mqtt(SocketAddr),
}

impl Door {
    /// Makes topics, and the subscriptions that a backlog is kept for.
    ///
    /// # Errors
    /// The peer refuses.
    pub(crate) fn prepare(&self, load: &Load, kept: Option<&ReceiveShare>) -> anyhow::Result<()> {
        match self {
            Self::Pulsar(door) => door.prepare(load, kept),
            Self::Kafka(address) => kafka::prepare(*address, load),
            Self::Nats(door) => door.prepare(load),
            Self::Mqtt(_) => {
                ensure!(load.backlog_bytes == 0, "MQTT has no backlog to read");
                Ok(())
            }
        }
    }

    /// Returns the stage times of messages so far; `None` for a peer that does not measure them.
    pub(crate) fn stages(&self) -> Option<StageBuckets> {
        match self {
            Self::Pulsar(door) if door.times_stages => StageBuckets::fetch(&door.http_url).ok(),
            Self::Pulsar(_) | Self::Kafka(_) | Self::Nats(_) | Self::Mqtt(_) => None,
        }
    }

    /// The work of a publishing thread.
    pub(crate) fn publisher(&self, load: &Load, share: PublishShare) -> Work {
        let load = load.clone();
        match self.clone() {
            Self::Pulsar(door) => {
                Box::new(move |control, teller| door.publish(&load, &share, control, teller))
            }
            Self::Kafka(address) => {
                Box::new(move |control, teller| kafka::publish::run(address, &load, &share, control, teller))
            }
            Self::Nats(door) => {
                Box::new(move |control, teller| nats::publish::run(&door, &load, &share, control, teller))
            }
            Self::Mqtt(address) => {
                Box::new(move |control, teller| mqtt::publish::run(address, &load, &share, control, teller))
            }
        }
    }

    /// The work of a receiving thread.
    pub(crate) fn receiver(&self, load: &Load, share: ReceiveShare) -> Work {
        let load = load.clone();
        match self.clone() {
            Self::Pulsar(door) => {
                Box::new(move |control, teller| door.receive(&load, &share, control, teller))
            }
            Self::Kafka(address) => {
                Box::new(move |control, teller| kafka::receive::run(address, &load, &share, control, teller))
            }
            Self::Nats(door) => {
                Box::new(move |control, teller| nats::receive::run(&door, &load, &share, control, teller))
            }
            Self::Mqtt(address) => {
                Box::new(move |control, teller| mqtt::receive::run(address, &load, &share, control, teller))
            }
        }
    }
}
