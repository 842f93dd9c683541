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

/// What to gather.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// A row per producer.
    pub producers: bool,
    /// A row per consumer.
    pub consumers: bool,
    /// Which acknowledged ranges each cursor has.
    pub details: bool,
}

/// A topic.
#[derive(Clone, Debug)]
pub struct TopicFigures {
    /// Which it is, as loaded.
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
    /// How often sends began to wait for the publish rate.
    pub throttled: u64,
    /// How long messages took at their home.
    pub stages: HomeStages,
    /// What was published in about the last minute, a second.
    pub rate_in: Rates,
    /// Whether deduplication is on, in Pulsar's words.
    pub deduplication: &'static str,
    /// The epoch of its exclusive producer, if it ever had one.
    pub epoch: Option<u64>,
    /// Producers that are attached.
    pub producer_count: usize,
    /// Producers that wait to be the exclusive one.
    pub waiting_producers: usize,
    /// The attached ones, when asked for.
    pub producers: Vec<ProducerFigures>,
    /// Those of other clusters' replicators, which are among neither.
    pub inbound: Vec<ProducerFigures>,
    /// What goes to other clusters.
    pub replication: Vec<ReplicatorFigures>,
    /// All subscriptions, in no order.
    pub subscriptions: Vec<SubscriptionFigures>,
}

/// A topic's log.
#[derive(Clone, Debug)]
pub struct LogFigures {
    /// Where the ledgers begin.
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
    /// When the topic was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// Whether nothing is ever appended again.
    pub is_terminated: bool,
    /// Whether nothing can be appended now.
    pub has_fault: bool,
    /// Entries that turned out to be unreadable, rising.
    pub unreadable: Vec<Ordinal>,
    /// What was offloaded.
    pub offload: OffloadStats,
    /// What was compacted: the ledger, its horizon, its entries, their bytes.
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
    /// How it holds the topic.
    pub access_mode: AccessMode,
    /// What stats say of it.
    pub info: ProducerInfo,
    /// What it published.
    pub published: Sent,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionFigures {
    /// Its name.
    pub name: String,
    /// What its consumers are, while there are any.
    pub kind: Option<SubscriptionType>,
    /// Whether each of its consumers gets everything.
    pub is_broadcast: bool,
    /// Whether its place is stored.
    pub is_durable: bool,
    /// Its properties.
    pub properties: Vec<(String, String)>,
    /// Whether other clusters are told how far it is.
    pub is_replicated: bool,
    /// Consumers that are attached.
    pub consumer_count: usize,
    /// These, when asked for.
    pub consumers: Vec<ConsumerFigures>,
    /// What went on since the topic was loaded, but for present stream consumers.
    pub activity: Activity,
    /// Messages that consumers of a non-persistent topic could not take.
    pub dropped: u64,
    /// What reached its time to live.
    pub expired: Expired,
    /// One, or of a broadcast subscription one per name.
    pub cursors: Vec<CursorFigures>,
    /// Of a broadcast subscription.
    pub broadcast: BroadcastCounts,
    /// What other brokers, or other parts of this one, have of it.
    pub carriers: Vec<CarrierFigures>,
    /// Of a dispatched one.
    pub dispatch: Option<DispatchStats>,
    /// How a Key_Shared one deals keys, in Pulsar's word.
    pub key_shared_mode: Option<&'static str>,
    /// Who listens, of an ordinary one.
    pub active: Option<(ConsumerKey, Arc<str>)>,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct ConsumerFigures {
    /// Unique in the process.
    pub key: ConsumerKey,
    /// Its name.
    pub name: Arc<str>,
    /// What stats say of it.
    pub info: Arc<ConsumerInfo>,
    /// What went on with it, without what does as a stream consumer now.
    pub activity: Activity,
    /// When it last gave permits, but for those of a stream consumer; in milliseconds since 1970.
    pub flow_at_ms: u64,
    /// Of a dispatched subscription.
    pub dispatch: Option<dispatch::ConsumerStats>,
    /// The keys that it gets, of a Key_Shared subscription.
    pub hash_ranges: Vec<HashRange>,
}

/// A cursor, as far as its topic's home knows.
#[derive(Clone, Debug)]
pub struct CursorFigures {
    /// The stream consumer it is handed over to, which may be further.
    pub handed_over_to: Option<ConsumerKey>,
    /// What it has acknowledged.
    pub acks: AckFigures,
    /// When its mark-delete position last moved, as far as is known at home.
    pub advanced: Moment,
    /// Of a broadcast cursor.
    pub member: Option<MemberFigures>,
}

/// What is particular to a broadcast cursor.
#[derive(Clone, Debug)]
pub struct MemberFigures {
    /// The consumer's name.
    pub name: Arc<str>,
    /// Whether its place outlives its connection.
    pub is_named: bool,
    /// Since when it is away, in milliseconds since 1970.
    pub absent_since_ms: Option<u64>,
    /// Whether its place was given up.
    pub is_dropped: bool,
    /// What happened to it.
    pub counts: BroadcastCounts,
}

/// What a cursor has acknowledged.
#[derive(Clone, Debug, Default)]
pub struct AckFigures {
    /// Everything before it is acknowledged.
    pub acked_to: Ordinal,
    /// Entries not acknowledged.
    pub backlog: u64,
    /// Acknowledged ranges beyond `acked_to`.
    pub holes: u32,
    /// What the cursor takes when it is stored, if there are any.
    pub holes_bytes: u64,
    /// These ranges, when details are wanted.
    pub ranges: Vec<(Ordinal, Ordinal)>,
}

/// A stream consumer, as its own shard knows it.
#[derive(Clone, Debug)]
pub struct StreamConsumerFigures {
    /// Unique in the process.
    pub key: ConsumerKey,
    /// What it has acknowledged.
    pub acks: AckFigures,
    /// The next entry to deliver to it.
    pub next: Ordinal,
    /// Entries delivered and not acknowledged.
    pub unacked: u64,
    /// Entries that it may still be sent.
    pub permits: i64,
    /// When it last gave some, in milliseconds since 1970; 0 for never.
    pub flow_at_ms: u64,
    /// What went on with it since it joined.
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

/// What a subscription's kind needs to give its numbers.
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

    /// What a cursor has acknowledged.
    pub(super) fn acks(&self, acks: &AckState) -> AckFigures {
        AckFigures::of(acks, self.end, self.wanted.details)
    }

    /// When the mark-delete position of a place last moved.
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
