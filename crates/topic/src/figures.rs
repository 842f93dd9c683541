//! A topic's numbers as plain data that may travel to the thread that asked for them.
//!
//! Taken in one go on the topic's home; what stream consumers know better of the cursors that are handed over to them is asked of
//! their shards afterwards ([`StreamConsumerFigures`]) and put over it by [`ConsumerKey`]. Texts are shared, not copied, because
//! there may be a hundred thousand of each.

use std::collections::HashMap;
use std::sync::Arc;

use pharos_accounts::tally::BroadcastCounts;
use pharos_compaction::CompactionCounts;
use pharos_dispatch::{self as dispatch, DispatchStats, HashRange};
use pharos_feed::ids::{ConsumerKey, SlotId, TopicId};
use pharos_feed::{Activity, Moment, Sent, StreamConsumer};
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{LedgerRow, LedgerTable, OffloadStats};
use pharos_runtime::clock;
use pharos_types::{LedgerId, Ordinal, TopicName};

use super::consumers::Consumer;
use super::durable_cursors::DurableCursors;
use super::expiry::Expired;
use super::producers::Producer;
use super::subscription::{BroadcastMember, Cursor, Subscription};
use super::{
    AccessMode, CarrierFigures, ConsumerInfo, Counters, Evictions, HomeStages, Oldest, ProducerInfo, Rates,
    ReplicatorFigures, State, SubscriptionType, TopicContext,
};

/// Statistics to gather.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// A row per producer.
    pub producers: bool,
    /// A row per consumer.
    pub consumers: bool,
    /// Acknowledged ranges of each cursor.
    pub details: bool,
}

/// A topic.
#[derive(Clone, Debug)]
pub struct TopicFigures {
    /// Id of the topic, as loaded.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Its log.
    pub log: LogFigures,
    /// The lowest place that a durable cursor acknowledged up to.
    pub lowest: Option<Ordinal>,
    /// Totals since it was loaded.
    pub counters: Counters,
    /// Limits to its backlog, in bytes and in milliseconds.
    pub quotas: (Option<u64>, Option<u64>),
    /// The end of the slowest backlog, as of the last look.
    pub oldest: Option<Oldest>,
    /// Cursors that were moved on because of a quota.
    pub evictions: Evictions,
    /// Number of times that sends began to wait for the publish rate.
    pub throttled: u64,
    /// Latencies of messages at the topic's home shard.
    pub stages: HomeStages,
    /// Publish rate over about the last minute, per second.
    pub rate_in: Rates,
    /// State of deduplication, in Pulsar's words.
    pub deduplication: &'static str,
    /// The epoch of its exclusive producer, if it ever had one.
    pub epoch: Option<u64>,
    /// Producers that are attached.
    pub producer_count: usize,
    /// Producers that wait to be the exclusive one.
    pub waiting_producers: usize,
    /// The attached ones, when asked for.
    pub producers: Vec<ProducerFigures>,
    /// Producers of other clusters' replicators, which count in neither of the above.
    pub inbound: Vec<ProducerFigures>,
    /// Replication to other clusters.
    pub replication: Vec<ReplicatorFigures>,
    /// All subscriptions, in no order.
    pub subscriptions: Vec<SubscriptionFigures>,
}

/// A topic's log.
#[derive(Clone, Debug)]
pub struct LogFigures {
    /// Start of each ledger.
    pub table: LedgerTable,
    /// With counts as of now.
    pub rows: Vec<LedgerRow>,
    /// The first entry that is kept.
    pub first: Ordinal,
    /// The durable end, exclusive.
    pub end: Ordinal,
    /// Bytes kept.
    pub bytes: u64,
    /// Appended, not yet durable.
    pub pending: usize,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// True if the topic is terminated.
    pub is_terminated: bool,
    /// True if nothing can be appended now.
    pub has_fault: bool,
    /// Entries that turned out to be unreadable, rising.
    pub unreadable: Vec<Ordinal>,
    /// Offload statistics.
    pub offload: OffloadStats,
    /// Compacted ledger: its id, its horizon, its number of entries, and their bytes.
    pub compacted: Option<(LedgerId, Ordinal, u64, u64)>,
    /// Runs of topic compaction.
    pub compaction: CompactionCounts,
    /// Properties of the topic.
    pub properties: std::collections::BTreeMap<String, String>,
}

/// A producer.
#[derive(Clone, Debug)]
pub struct ProducerFigures {
    /// Unique in the process.
    pub key: u64,
    /// The number that its client gave it.
    pub producer_id: u64,
    /// Its name.
    pub name: String,
    /// Access mode of the producer.
    pub access_mode: AccessMode,
    /// Producer information for statistics.
    pub info: ProducerInfo,
    /// Messages published by it.
    pub published: Sent,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionFigures {
    /// Its name.
    pub name: String,
    /// Type of its consumers, while there are any.
    pub kind: Option<SubscriptionType>,
    /// True if each of its consumers gets every message.
    pub is_broadcast: bool,
    /// True if its cursor is durable.
    pub is_durable: bool,
    /// Its properties.
    pub properties: Vec<(String, String)>,
    /// True if its position is replicated to other clusters.
    pub is_replicated: bool,
    /// Consumers that are attached.
    pub consumer_count: usize,
    /// These, when asked for.
    pub consumers: Vec<ConsumerFigures>,
    /// Activity since the topic was loaded, without that of present stream consumers.
    pub activity: Activity,
    /// Messages that consumers of a non-persistent topic could not take.
    pub dropped: u64,
    /// Messages that reached their time to live.
    pub expired: Expired,
    /// One, or of a broadcast subscription one per name.
    pub cursors: Vec<CursorFigures>,
    /// Counts of a broadcast subscription.
    pub broadcast: BroadcastCounts,
    /// Parts of it at carriers: other brokers, or other parts of this one.
    pub carriers: Vec<CarrierFigures>,
    /// Statistics of its dispatcher, if it has one.
    pub dispatch: Option<DispatchStats>,
    /// Key_Shared mode, in Pulsar's word.
    pub key_shared_mode: Option<&'static str>,
    /// Active consumer, if its type has one.
    pub active: Option<(ConsumerKey, Arc<str>)>,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct ConsumerFigures {
    /// Unique in the process.
    pub key: ConsumerKey,
    /// Its name.
    pub name: Arc<str>,
    /// Consumer information for statistics.
    pub info: Arc<ConsumerInfo>,
    /// Activity of the consumer, without its present activity as a stream consumer.
    pub activity: Activity,
    /// Time of its last permits, except those of a stream consumer; in milliseconds since 1970.
    pub flow_at_ms: u64,
    /// Statistics of its dispatcher, if its subscription has one.
    pub dispatch: Option<dispatch::ConsumerStats>,
    /// The keys that it gets, of a Key_Shared subscription.
    pub hash_ranges: Vec<HashRange>,
}

/// A cursor, as far as its topic's home knows.
#[derive(Clone, Debug)]
pub struct CursorFigures {
    /// The stream consumer it is handed over to, which may be further.
    pub handed_over_to: Option<ConsumerKey>,
    /// Acknowledgements of the consumer.
    pub acks: AckFigures,
    /// Time of the last move of its mark-delete position, as far as its home shard knows.
    pub advanced: Moment,
    /// Details of a broadcast cursor.
    pub member: Option<MemberFigures>,
}

/// Details of a broadcast cursor.
#[derive(Clone, Debug)]
pub struct MemberFigures {
    /// The consumer's name.
    pub name: Arc<str>,
    /// True if its position outlives its connection.
    pub is_named: bool,
    /// Start of its absence, in milliseconds since 1970.
    pub absent_since_ms: Option<u64>,
    /// True if its position was given up.
    pub is_dropped: bool,
    /// Counts of the cursor.
    pub counts: BroadcastCounts,
}

/// Acknowledgements of a cursor.
#[derive(Clone, Debug, Default)]
pub struct AckFigures {
    /// Everything before it is acknowledged.
    pub acked_to: Ordinal,
    /// Entries not acknowledged.
    pub backlog: u64,
    /// Acknowledged ranges beyond `acked_to`.
    pub holes: u32,
    /// Size of the cursor when stored, if it has such ranges.
    pub holes_bytes: u64,
    /// These ranges, when details are wanted.
    pub ranges: Vec<(Ordinal, Ordinal)>,
}

/// A stream consumer, as its own shard knows it.
#[derive(Clone, Debug)]
pub struct StreamConsumerFigures {
    /// Unique in the process.
    pub key: ConsumerKey,
    /// Acknowledgements of the consumer.
    pub acks: AckFigures,
    /// The next entry to deliver to it.
    pub next: Ordinal,
    /// Entries delivered and not acknowledged.
    pub unacked: u64,
    /// Entries that it may still be sent.
    pub permits: i64,
    /// Time of its last permits, in milliseconds since 1970; 0 for never.
    pub flow_at_ms: u64,
    /// Activity since it joined.
    pub activity: Activity,
}

impl AckFigures {
    fn of(acks: &AckState, end: Ordinal, with_ranges: bool) -> Self {
        let count = if acks.has_holes() {
            acks.acked_ranges().count()
        } else {
            0
        };
        Self {
            acked_to: acks.acked_to(),
            backlog: acks.backlog(end),
            holes: u32::try_from(count).unwrap_or(u32::MAX),
            holes_bytes: if count > 0 { stored_bytes(acks) } else { 0 },
            ranges: if with_ranges {
                acks.acked_ranges().collect()
            } else {
                Vec::new()
            },
        }
    }
}

fn stored_bytes(acks: &AckState) -> u64 {
    let mut bytes = Vec::new();
    acks.encode(&mut bytes);
    bytes.len() as u64
}

impl StreamConsumerFigures {
    /// The figures of a stream consumer on a topic that ends at `end`.
    #[must_use]
    pub fn of(consumer: &StreamConsumer, end: Ordinal, with_ranges: bool) -> Self {
        Self {
            key: consumer.key,
            acks: AckFigures::of(&consumer.acks, end, with_ranges),
            next: consumer.next,
            unacked: consumer.acks.backlog(consumer.next),
            permits: consumer.permits,
            flow_at_ms: u64::from(consumer.flow_at_s) * 1000,
            activity: consumer.activity.in_messages(),
        }
    }
}

impl State {
    /// The topic's numbers.
    pub(crate) fn figures(&self, cx: &TopicContext, wanted: Wanted) -> TopicFigures {
        let published = Sent {
            messages: self.stored.publishing.counters.messages_in,
            bytes: self.stored.publishing.counters.bytes_in,
        };
        TopicFigures {
            id: cx.id,
            name: cx.name.clone(),
            log: log_figures(self),
            lowest: self.stored.cursors.lowest(),
            counters: Counters {
                sent: self.attached.sent,
                ..self.stored.publishing.counters
            },
            quotas: (
                self.stored.policies.backlog_quotas.size.map(|quota| quota.limit),
                self.stored.policies.backlog_quotas.age.map(|quota| quota.limit),
            ),
            oldest: self.stored.backlog.oldest.clone(),
            evictions: self.stored.backlog.evictions,
            throttled: self.stored.publishing.throttle.times,
            stages: self.stored.publishing.stages.clone(),
            rate_in: self.stored.publishing.rate_in.rates(clock::wall_ms(), published),
            deduplication: self.stored.publishing.dedup.status(),
            epoch: self.stored.publishing.producers.epoch(),
            producer_count: {
                let producers = &self.stored.publishing.producers;
                producers.len() - producers.replicators()
            },
            waiting_producers: self.stored.publishing.producers.waiting_len(),
            producers: match wanted.producers {
                true => producers(self, |producer| !producer.is_replicator()),
                false => Vec::new(),
            },
            inbound: match self.stored.publishing.producers.replicators() {
                0 => Vec::new(),
                _ => producers(self, Producer::is_replicator),
            },
            replication: self.stored.replication.figures(),
            subscriptions: self
                .attached
                .subscriptions
                .values()
                .map(|s| SubscriptionFigures {
                    carriers: self.stored.carrier_figures(cx, s.name.as_str()),
                    ..subscription(self, s, wanted)
                })
                .collect(),
        }
    }
}

fn log_figures(state: &State) -> LogFigures {
    let stats = state.stored.log.ledger.stats();
    LogFigures {
        table: state.stored.log.ledger.table(),
        rows: state.stored.log.ledger.ledgers().to_vec(),
        first: stats.first,
        end: stats.durable_end,
        bytes: stats.bytes,
        pending: state.stored.publishing.pending.len(),
        created_ms: state.stored.log.ledger.created_ms(),
        is_terminated: state.stored.log.ledger.is_terminated(),
        has_fault: state.stored.publishing.fault.is_some(),
        unreadable: state
            .stored
            .log
            .damage
            .places(state.stored.log.ledger.first())
            .collect(),
        offload: state.stored.log.ledger.offloads().stats(),
        compacted: state
            .stored
            .compaction
            .view
            .as_ref()
            .map(|view| (view.ledger(), view.horizon(), view.entries(), view.bytes())),
        compaction: state.stored.compaction.counts,
        properties: state.stored.log.ledger.properties(),
    }
}

impl LogFigures {
    /// About how many bytes lie after a place.
    #[must_use]
    pub fn bytes_after(&self, place: Ordinal) -> u64 {
        super::retire::bytes_after(&self.rows, place)
    }
}

fn producers(state: &State, is_wanted: impl Fn(&Producer) -> bool) -> Vec<ProducerFigures> {
    let producers = state.stored.publishing.producers.iter();
    let figures = producers
        .filter(|producer| is_wanted(producer))
        .map(|producer| ProducerFigures {
            key: producer.key.0,
            producer_id: producer.producer_id,
            name: producer.name.to_string(),
            access_mode: producer.access_mode,
            info: producer.info.clone(),
            published: Sent {
                messages: producer.counters.messages,
                bytes: producer.counters.bytes,
            },
        });
    figures.collect()
}

fn subscription(state: &State, subscription: &Subscription, wanted: Wanted) -> SubscriptionFigures {
    let view = FiguresView {
        cursors: &state.stored.cursors,
        consumers: &state.attached.consumers,
        end: state.stored.log.ledger.durable_end(),
        wanted,
    };
    let mut figures = SubscriptionFigures {
        name: subscription.name.to_string(),
        kind: subscription.kind,
        is_broadcast: subscription.is_broadcast(),
        is_durable: subscription.is_durable(),
        properties: subscription.callers_properties(),
        is_replicated: subscription.replicated.is_some(),
        consumer_count: subscription.consumers.len(),
        consumers: Vec::new(),
        activity: subscription.activity,
        dropped: subscription.dropped,
        expired: subscription.expired,
        cursors: Vec::new(),
        broadcast: BroadcastCounts::default(),
        carriers: Vec::new(),
        dispatch: None,
        key_shared_mode: None,
        active: None,
    };
    subscription.body.kind().describe(&view, &mut figures);
    if wanted.consumers {
        figures.consumers = consumers(state, subscription);
    }
    figures
}

/// Input that each kind of subscription needs to report its statistics.
pub(super) struct FiguresView<'a> {
    pub(super) cursors: &'a DurableCursors,
    pub(super) consumers: &'a HashMap<ConsumerKey, Consumer>,
    pub(super) end: Ordinal,
    wanted: Wanted,
}

impl FiguresView<'_> {
    /// A cursor that is, or can be, handed over.
    pub(super) fn cursor(&self, cursor: &Cursor, member: Option<MemberFigures>) -> CursorFigures {
        // A non-durable cursor that is handed over is known to its stream consumer only.
        let unknown = || AckFigures {
            acked_to: self.end,
            ..AckFigures::default()
        };
        let acks = cursor.known(self.cursors);
        CursorFigures {
            handed_over_to: cursor.handed_over().map(|handed_over| handed_over.key),
            acks: acks.map_or_else(unknown, |acks| self.acks(acks)),
            advanced: self.advanced(cursor.slot),
            member,
        }
    }

    /// Acknowledgements of a cursor.
    pub(super) fn acks(&self, acks: &AckState) -> AckFigures {
        AckFigures::of(acks, self.end, self.wanted.details)
    }

    /// Time of the last move of a slot's mark-delete position.
    pub(super) fn advanced(&self, slot: Option<SlotId>) -> Moment {
        let slot = slot.and_then(|id| self.cursors.get(id));
        slot.map(|slot| slot.advanced).unwrap_or_default()
    }
}

impl MemberFigures {
    pub(super) fn of(name: &Arc<str>, member: &BroadcastMember) -> Self {
        Self {
            name: name.clone(),
            is_named: member.named,
            absent_since_ms: member.presence.absent_since_ms(),
            is_dropped: member.presence.is_given_up(),
            counts: member.counts.as_deref().copied().unwrap_or_default(),
        }
    }
}

fn consumers(state: &State, subscription: &Subscription) -> Vec<ConsumerFigures> {
    let known = subscription
        .consumers
        .iter()
        .filter_map(|key| Some((*key, state.attached.consumers.get(key)?)));
    let figures = known.map(|(key, consumer)| {
        let mut figures = ConsumerFigures {
            key,
            name: consumer.name.clone(),
            info: consumer.info.clone(),
            activity: consumer.activity,
            flow_at_ms: consumer.flow_at_ms,
            dispatch: None,
            hash_ranges: Vec::new(),
        };
        subscription.body.kind().describe_consumer(&mut figures);
        figures
    });
    figures.collect()
}
