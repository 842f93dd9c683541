//! A topic on its home shard: its log, its producers, its subscriptions and their cursors.
//!
//! All state is plain memory of the home shard, in parts that own what they know and what is done with it:
//!
//! ```text
//!   Topic            what is asked from outside, and what waits: it borrows the state again after each wait
//!   └ State          what concerns several parts: a send, what became durable, new policies
//!     ├ Stored       what must agree: trimming, a cursor log that refuses a record
//!     │ ├ TopicLog         the log, its upkeep, what of it cannot be read
//!     │ ├ Publishing       producers, the publish rate, what is appended and not durable, receipts
//!     │ └ DurableCursors   places, their records, the marks for trimming
//!     └ Attached     subscriptions with their bodies, each a `Kind` (stream, broadcast, dispatched), consumers, listening shards
//!   Moving, Dealing, Quotas, Expiring, …   one matter of a topic each: what is asked, as methods over the whole topic
//!   Staying          whether it stays loaded: what the home that holds it asks
//!   TopicHandle      what work beside it on its home shard may do, beyond what clients can
//!   TopicContext     name, id, the shard and what holds the topic there (`TopicHost`): what every part is given
//! ```
//! `on_message` handles what connections and listening shards send, each to its end; what must wait runs as a task of the shard.
//!
//! Always true:
//! - a receipt is sent only for an entry that is durable, and receipts of a producer leave in the order of its sends;
//! - an entry is fed to stream consumers only once it is durable;
//! - every durable cursor is counted at a place no later than what was persisted or is about to be, so trimming never outruns
//!   one ([`durable_cursors`]).

#![forbid(unsafe_code)]

mod absence;
mod attached_producers;
mod broadcast;
mod carried;
mod carrier;
mod commit;
mod compacted;
mod compaction;
mod consumers;
mod context;
mod create;
mod cursor_store;
mod cursors;
mod damage;
mod deduplication;
mod dispatch_rates;
mod dispatched;
mod dispatched_kind;
mod durable_cursors;
mod expiry;
mod failover;
mod fault;
mod figures;
mod handle;
mod host;
mod hosts;
mod inactive;
mod kind;
mod limits;
mod links;
mod log;
mod lookup;
mod maintenance;
mod manage;
mod nodes;
mod non_persistent;
mod offload;
mod open;
mod past;
mod producers;
mod publish;
mod quota;
mod rates;
mod reads;
mod replicated_subscriptions;
mod replication;
mod retire;
mod rivalry;
mod seek;
mod shadow;
mod stats;
mod staying;
mod stream;
mod subscribe;
mod subscription;
mod subscriptions;
mod throttle;
mod transaction_acks;
mod transactions;
mod unload;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use pharos_accounts::tenants::TenantShare;
use pharos_catalog::policy::EffectivePolicies;
use pharos_dispatch::KeySharedOptions;
use pharos_feed::ids::{ConsumerKey, TopicId};
use pharos_feed::{DispatchRateLimiter, Sent};
use pharos_mesh::HomeMessage;
use pharos_types::{Ordinal, TopicName};

pub use carried::{CarrierFigures, Dealing};
pub use expiry::Expired;
pub use figures::{
    AckFigures, ConsumerFigures, CursorFigures, LogFigures, MemberFigures, ProducerFigures,
    StreamConsumerFigures, SubscriptionFigures, TopicFigures, Wanted,
};
pub use handle::TopicHandle;
pub use host::TopicHost;
pub use lookup::LastMessage;
pub use maintenance::Maintenance;
pub use manage::DurableSubscription;
pub use open::{Access, ShadowOf, StoredTopic};
pub use past::Past;
pub use pharos_accounts::counts::{Counters, EntrySizes, HomeStages, PastTotals};
pub use pharos_accounts::rates::{RateWindow, Rates};
pub use pharos_accounts::tally::BroadcastCounts;
pub use pharos_compaction::{CompactionAskError, CompactionCounts, CompactionStatus};
pub use pharos_requests::consumer::{
    Attach, ConsumerInfo, StartAt, SubscribeRequest, Subscribed, SubscriptionType,
};
pub use pharos_requests::producer::{
    AccessMode, ExclusiveTurn, ProducerGrant, ProducerInfo, ProducerRequest,
};
pub use quota::{Evictions, Oldest};
pub use replication::ReplicatorFigures;
pub use seek::{Moving, SeekTo};
pub use stats::ConsumerNumbers;
pub use staying::Staying;
pub use transaction_acks::TxnAcks;
pub use transactions::{TransactingTopic, TransactionFigures};

use carried::Carrying;
use carrier::CarrierHold;
use commit::Commits;
use compacted::CompactedReads;
use compaction::{Compacting, Compaction};
use consumers::Consumer;
use context::TopicContext;
use deduplication::Deduplication;
use durable_cursors::DurableCursors;
use hosts::Hosts;
use limits::Subscribes;
use links::Links;
use log::TopicLog;
use producers::Producers;
use publish::Pending;
use quota::Backlog;
use reads::LogReads;
use replication::Replication;
use subscriptions::Subscriptions;
use throttle::Throttle;

/// A loaded topic: what is asked of it, each question over the parts of its state.
pub struct Topic {
    pub(crate) cx: TopicContext,
    /// Time of the last request for the topic, in milliseconds since 1970.
    pub(crate) used_ms: Cell<u64>,
    pub(crate) state: RefCell<State>,
}

/// State of a topic, in components that each own theirs.
pub(crate) struct State {
    pub(crate) stored: Stored,
    pub(crate) attached: Attached,
}

/// Stored state of a topic, and its writers.
pub(crate) struct Stored {
    pub(crate) log: TopicLog,
    pub(crate) publishing: Publishing,
    pub(crate) cursors: DurableCursors,
    /// Its carriers, if broadcast consumers are dealt among brokers.
    carrying: Option<Carrying>,
    pub(crate) compaction: Compaction,
    /// Replication to other clusters.
    pub(crate) replication: Replication,
    /// Entries that it holds back from trimming, as a carrier.
    holder: Option<CarrierHold>,
    /// Callers that wait for the cursor log.
    commits: Commits,
    /// The topic is on its way out; everything is refused with "try again".
    pub(crate) closing: bool,
    /// Policies in effect for this topic, and the version of all policies that they were computed from.
    pub(crate) policies: Rc<EffectivePolicies>,
    policy_version: u64,
    /// Options of Key_Shared subscriptions.
    key_shared: KeySharedOptions,
    /// Dispatch rate limiter of the topic.
    rate: Arc<DispatchRateLimiter>,
    /// Results of the backlog checks.
    backlog: Backlog,
    /// Time of the last use, as of the last check; in milliseconds since 1970.
    pub(crate) last_used_ms: u64,
}

/// Publishing state of a topic.
pub(crate) struct Publishing {
    pub(crate) producers: Producers,
    /// Sends beyond the publish rate.
    throttle: Throttle,
    /// Deduplication of sends.
    dedup: Deduplication,
    /// Appended, not yet durable.
    pending: VecDeque<Pending>,
    /// Callers that wait until nothing is pending; told by dropping the sender.
    draining: Vec<tokio::sync::oneshot::Sender<()>>,
    /// True if a task waits for the durable end to move.
    watching: bool,
    /// Reason why nothing can be appended any more, if so.
    pub(crate) fault: Option<String>,
    pub(crate) stages: HomeStages,
    pub(crate) counters: Counters,
    /// Publish rate over the last minute.
    pub(crate) rate_in: RateWindow,
}

/// Subscriptions and consumers of a topic.
pub(crate) struct Attached {
    pub(crate) subscriptions: Subscriptions,
    /// Limits of the topic's tenant, if any.
    tenant: Option<Arc<TenantShare>>,
    /// Attached consumers, each with its subscription and state.
    pub(crate) consumers: HashMap<ConsumerKey, Consumer>,
    /// Addresses of the consumers.
    consumer_hosts: Hosts,
    links: Links,
    /// Recent subscribe attempts per consumer, for the subscribe rate.
    subscribes: Subscribes,
    /// Sent to consumers; what present stream consumers got is counted when they leave.
    pub(crate) sent: Sent,
}

impl Topic {
    /// Id of the topic on its home shard.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.cx.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.cx.name
    }

    /// Does something with what is attached.
    fn with_attached<R>(&self, work: impl FnOnce(&mut Attached, &TopicContext, &mut Stored) -> R) -> R {
        let State { stored, attached } = &mut *self.state.borrow_mut();
        work(attached, &self.cx, stored)
    }

    /// Reads of the log.
    pub(crate) fn reads(&self) -> LogReads<'_> {
        LogReads::new(&self.cx, &self.state)
    }

    /// Handles one message from a connection or a listening shard.
    pub fn on_message(&self, message: HomeMessage) {
        match message {
            HomeMessage::Publish {
                from,
                producer,
                entries,
            } => self
                .state
                .borrow_mut()
                .on_publish(&self.cx, from, producer, entries),
            HomeMessage::Read {
                shard,
                feed,
                from,
                entries_max,
                bytes_max,
            } => match feed.is_compacted() {
                true => CompactedReads(self).on_read((shard, feed), from, entries_max, bytes_max),
                false => self.on_read(shard, from, entries_max, bytes_max),
            },
            HomeMessage::Progress(progress) => {
                self.state.borrow_mut().stored.on_progress(&self.cx, progress);
                self.start_commit();
            }
            HomeMessage::Detach { key, handoff } => self.on_detach(key, handoff),
            HomeMessage::Returned { key, handoff } => {
                if self.with_attached(|attached, cx, stored| attached.take_back(cx, stored, key, handoff)) {
                    self.start_commit();
                }
            }
            HomeMessage::Flow { key, permits } => {
                self.with_attached(|attached, cx, stored| attached.on_flow(cx, stored, key, permits));
            }
            HomeMessage::Ack {
                key,
                acks,
                cumulative,
            } => {
                let is_moved = self.with_attached(|attached, cx, stored| {
                    attached.on_ack(cx, stored, key, &acks, cumulative)
                });
                if is_moved {
                    self.start_commit();
                }
            }
            HomeMessage::Redeliver { key, positions } => {
                self.with_attached(|attached, cx, stored| {
                    attached.on_redeliver(cx, stored, key, positions.as_deref());
                });
            }
            HomeMessage::Written { key, bytes } => {
                self.with_attached(|attached, cx, stored| attached.on_written(cx, stored, key, bytes));
            }
            HomeMessage::CloseProducer(producer) => {
                self.state.borrow_mut().on_close_producer(&self.cx, producer);
            }
        }
    }

    /// The end of what readers may see, exclusive.
    pub(crate) fn durable_end(&self) -> Ordinal {
        self.state.borrow().stored.log.ledger.durable_end()
    }
}
