//! What the parent of a broadcast run tells its consumer processes, and what they tell it: lines of JSON.
//!
//! Parent to process: one [`WorkerPlan`], then any number of [`Order`]s. Process to parent: [`Report`]s. A process whose
//! standard input ends leaves at once, so none outlives its parent.

use std::net::{IpAddr, SocketAddr};

use pharos_types::hash;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::order::OrderCounts;
use crate::proto::ack::AckMode;
use crate::proto::command::SubscriptionType;

/// How consumers hang on the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// All on one broadcast subscription (a Pharos broker).
    Broadcast,
    /// Each on a durable subscription of its own.
    Exclusive,
    /// Each a reader: a subscription that is forgotten with its connection.
    Reader,
}

/// A name for a consumer whose slot is this one: its number, and what makes it fit.
pub(crate) fn name_in(number: u32, (slot, slots): (u32, u32)) -> String {
    let name = format!("c-{number:06}");
    let fits = |name: &String| slots < 2 || hash::bundle_hash(name) % slots == slot;
    let mut others = (0..u32::MAX).map(|again| format!("{name}-{again}"));
    match fits(&name) {
        true => name,
        false => others.find(fits).unwrap_or_default(),
    }
}

/// Everything one consumer process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerPlan {
    /// Where the topic's broker listens.
    pub(crate) broker: SocketAddr,
    /// Of how many slots this broker has which; consumers have names of that slot.
    pub(crate) slot: (u32, u32),
    /// Local address to connect from, when one address has too few ports.
    pub(crate) source: Option<IpAddr>,
    /// How to get in there.
    pub(crate) access: Access,
    /// Full topic name.
    pub(crate) topic: String,
    /// Subscription name, or its prefix when each consumer has its own.
    pub(crate) subscription: String,
    /// How consumers hang on the topic.
    pub(crate) mode: Mode,
    /// Type asked for in `SUBSCRIBE`.
    pub(crate) subscription_type: SubscriptionType,
    /// Number of this process's first consumer within the run; names are `c-%06d`.
    pub(crate) first_consumer: u32,
    /// How many consumers this process holds.
    pub(crate) consumers: u32,
    /// Over how many connections.
    pub(crate) connections: u32,
    /// Connections being opened at once.
    pub(crate) connect_parallel: u32,
    /// Subscribes unanswered at once on a connection.
    pub(crate) subscribe_in_flight: u32,
    /// How deliveries are acknowledged.
    pub(crate) ack: AckMode,
    /// Permits granted at first; half of it is granted again each time half is used.
    pub(crate) receiver_queue: u32,
    /// Messages not measured, sent first.
    pub(crate) warmup_messages: u32,
    /// Messages measured.
    pub(crate) messages: u32,
    /// Whether each message's checksum is computed and compared.
    pub(crate) verify_checksum: bool,
    /// Whether lost connections are opened again.
    pub(crate) reconnect: bool,
    /// Whether these consumers stop reading once subscribed.
    pub(crate) slow: bool,
    /// Bytes asked for per read.
    pub(crate) read_bytes: u32,
    /// Socket receive buffer; 0 leaves it to the system.
    pub(crate) rcvbuf: u32,
    /// How long acknowledgements are gathered at most in a burst, in milliseconds.
    pub(crate) ack_group_ms: u64,
    /// Monotonic time the connect phase began, nanoseconds.
    pub(crate) epoch_ns: u64,
    /// Connecting and subscribing may take this long, milliseconds.
    pub(crate) connect_timeout_ms: u64,
    /// After the last message was sent, this long without any delivery ends the run, milliseconds.
    pub(crate) drain_ms: u64,
}

/// From the parent, once the process is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// `total` messages have been sent, warm-up included: report once all have come, or none comes any more.
    Finish {
        /// Messages sent, warm-up included.
        total: u32,
    },
}

/// From a consumer process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// Now and then.
    Progress {
        /// Consumers subscribed.
        subscribed: u32,
        /// Messages delivered.
        delivered: u64,
    },
    /// Every consumer is subscribed.
    Ready(ReadyReport),
    /// The end.
    Done(Box<WorkerResult>),
    /// The run cannot go on.
    Failed {
        /// Why.
        message: String,
    },
}

/// How subscribing went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReadyReport {
    /// Consumers subscribed in each second since the connect phase began.
    pub(crate) per_second: Vec<u64>,
    /// From the phase's start to the last subscribe's answer, nanoseconds.
    pub(crate) took_ns: u64,
    /// Time from `SUBSCRIBE` to its answer; see `Latencies::to_text`.
    pub(crate) subscribe: String,
}

/// What a consumer process measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerResult {
    /// End-to-end latency of measured messages; see `Latencies::to_text`.
    pub(crate) latency: String,
    /// The order check's sums.
    pub(crate) order: OrderCounts,
    /// Messages delivered for the first time, warm-up included.
    pub(crate) delivered: u64,
    /// Bytes of frames received as `MESSAGE`.
    pub(crate) message_bytes: u64,
    /// Monotonic time each message reached this process's last consumer, by sequence; 0 if none.
    pub(crate) last_ns: Vec<u64>,
    /// Messages whose checksum was wrong.
    pub(crate) bad_checksums: u64,
    /// Messages that no benchmark sent.
    pub(crate) foreign: u64,
    /// Connections lost and opened again.
    pub(crate) reconnects: u64,
    /// CPU time used from the first message on, nanoseconds.
    pub(crate) cpu_ns: u64,
}
