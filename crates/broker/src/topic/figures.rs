//! A topic's numbers as plain data that may travel to the thread that asked for them.
//!
//! Taken in one go on the topic's home; what stream consumers know better of the cursors that are handed over to them is asked of
//! their shards afterwards ([`StreamConsumerFigures`]) and put over it by [`ConsumerKey`]. Texts are shared, not copied, because
//! there may be a hundred thousand of each.

use std::sync::Arc;

use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{LedgerRow, LedgerTable, OffloadStats};
use pharos_runtime::clock;
use pharos_types::{Ordinal, TopicName};

use super::absence::BroadcastCounts;
use super::expiry::Expired;
use super::subscription::{Body, BroadcastMember, Cursor, CursorPlace, Subscription};
use super::{
    AccessMode, ConsumerInfo, Counters, Evictions, HomeStages, Oldest, ProducerInfo, Rates, State,
    SubscriptionType, Topic,
};
use crate::feed::{Activity, Moment, Sent, StreamConsumer};
use crate::ids::{ConsumerKey, SlotId, TopicId};
use pharos_dispatch::{self as dispatch, DispatchStats, HashRange};

/// What to gather.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// A row per producer.
    pub(crate) producers: bool,
    /// A row per consumer.
    pub(crate) consumers: bool,
    /// Which acknowledged ranges each cursor has.
    pub(crate) details: bool,
}

/// A topic.
#[derive(Clone, Debug)]
pub(crate) struct TopicFigures {
    pub(crate) id: TopicId,
    pub(crate) name: TopicName,
    pub(crate) log: LogFigures,
    /// The lowest place that a durable cursor acknowledged up to.
    pub(crate) lowest: Option<Ordinal>,
    pub(crate) counters: Counters,
    /// Limits to its backlog, in bytes and in milliseconds.
    pub(crate) quotas: (Option<u64>, Option<u64>),
    /// The end of the slowest backlog, as of the last look.
    pub(crate) oldest: Option<Oldest>,
    pub(crate) evictions: Evictions,
    /// How often sends began to wait for the publish rate.
    pub(crate) throttled: u64,
    pub(crate) stages: HomeStages,
    pub(crate) rate_in: Rates,
    pub(crate) epoch: Option<u64>,
    pub(crate) producer_count: usize,
    pub(crate) waiting_producers: usize,
    pub(crate) producers: Vec<ProducerFigures>,
    pub(crate) subscriptions: Vec<SubscriptionFigures>,
}

/// A topic's log.
#[derive(Clone, Debug)]
pub(crate) struct LogFigures {
    pub(crate) table: LedgerTable,
    /// With counts as of now.
    pub(crate) rows: Vec<LedgerRow>,
    pub(crate) first: Ordinal,
    /// The durable end, exclusive.
    pub(crate) end: Ordinal,
    pub(crate) bytes: u64,
    /// Appended, not yet durable.
    pub(crate) pending: usize,
    pub(crate) created_ms: u64,
    pub(crate) is_terminated: bool,
    pub(crate) has_fault: bool,
    /// Entries that turned out to be unreadable, rising.
    pub(crate) unreadable: Vec<Ordinal>,
    pub(crate) offload: OffloadStats,
    pub(crate) properties: std::collections::BTreeMap<String, String>,
}

/// A producer.
#[derive(Clone, Debug)]
pub(crate) struct ProducerFigures {
    pub(crate) key: u64,
    pub(crate) producer_id: u64,
    pub(crate) name: String,
    pub(crate) access_mode: AccessMode,
    pub(crate) info: ProducerInfo,
    pub(crate) published: Sent,
}

/// A subscription.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionFigures {
    pub(crate) name: String,
    /// What its consumers are, while there are any.
    pub(crate) kind: Option<SubscriptionType>,
    pub(crate) is_broadcast: bool,
    pub(crate) is_durable: bool,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) consumer_count: usize,
    pub(crate) consumers: Vec<ConsumerFigures>,
    /// What went on since the topic was loaded, but for present stream consumers.
    pub(crate) activity: Activity,
    /// Messages that consumers of a non-persistent topic could not take.
    pub(crate) dropped: u64,
    pub(crate) expired: Expired,
    /// One, or of a broadcast subscription one per name.
    pub(crate) cursors: Vec<CursorFigures>,
    /// Of a broadcast subscription.
    pub(crate) broadcast: BroadcastCounts,
    /// Of a dispatched one.
    pub(crate) dispatch: Option<DispatchStats>,
    pub(crate) key_shared_mode: Option<&'static str>,
    /// Who listens, of an ordinary one.
    pub(crate) active: Option<(ConsumerKey, Arc<str>)>,
}

/// A consumer.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerFigures {
    pub(crate) key: ConsumerKey,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<ConsumerInfo>,
    /// What went on with it, without what does as a stream consumer now.
    pub(crate) activity: Activity,
    /// When it last gave permits, but for those of a stream consumer; in milliseconds since 1970.
    pub(crate) flow_at_ms: u64,
    pub(crate) dispatch: Option<dispatch::ConsumerStats>,
    pub(crate) hash_ranges: Vec<HashRange>,
}

/// A cursor, as far as its topic's home knows.
#[derive(Clone, Debug)]
pub(crate) struct CursorFigures {
    /// The stream consumer it is handed over to, which may be further.
    pub(crate) lent_to: Option<ConsumerKey>,
    pub(crate) acks: AckFigures,
    /// When its mark-delete position last moved, as far as is known at home.
    pub(crate) advanced: Moment,
    /// Of a broadcast cursor.
    pub(crate) member: Option<MemberFigures>,
}

/// What is particular to a broadcast cursor.
#[derive(Clone, Debug)]
pub(crate) struct MemberFigures {
    /// The consumer's name.
    pub(crate) name: Arc<str>,
    /// Whether its place outlives its connection.
    pub(crate) is_named: bool,
    pub(crate) absent_since_ms: Option<u64>,
    pub(crate) is_dropped: bool,
    pub(crate) counts: BroadcastCounts,
}

/// What a cursor has acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckFigures {
    pub(crate) acked_to: Ordinal,
    /// Entries not acknowledged.
    pub(crate) backlog: u64,
    /// Acknowledged ranges beyond `acked_to`.
    pub(crate) holes: u32,
    /// What the cursor takes when it is stored, if there are any.
    pub(crate) holes_bytes: u64,
    /// These ranges, when details are wanted.
    pub(crate) ranges: Vec<(Ordinal, Ordinal)>,
}

/// A stream consumer, as its own shard knows it.
#[derive(Clone, Debug)]
pub(crate) struct StreamConsumerFigures {
    pub(crate) key: ConsumerKey,
    pub(crate) acks: AckFigures,
    /// The next entry to deliver to it.
    pub(crate) next: Ordinal,
    /// Entries delivered and not acknowledged.
    pub(crate) unacked: u64,
    pub(crate) permits: i64,
    /// When it last gave some, in milliseconds since 1970; 0 for never.
    pub(crate) flow_at_ms: u64,
    pub(crate) activity: Activity,
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
    pub(crate) fn of(listener: &StreamConsumer, end: Ordinal, with_ranges: bool) -> Self {
        Self {
            key: listener.key,
            acks: AckFigures::of(&listener.acks, end, with_ranges),
            next: listener.next,
            unacked: listener.acks.backlog(listener.next),
            permits: listener.permits,
            flow_at_ms: u64::from(listener.flow_at_s) * 1000,
            activity: listener.activity.in_messages(),
        }
    }
}

impl Topic {
    /// The topic's numbers.
    pub(crate) fn figures(&self, wanted: Wanted) -> TopicFigures {
        let state = self.state.borrow();
        let published = Sent {
            messages: state.counters.messages_in,
            bytes: state.counters.bytes_in,
        };
        TopicFigures {
            id: self.id,
            name: self.name.clone(),
            log: log_figures(&state),
            lowest: state.cursors.lowest(),
            counters: state.counters,
            quotas: (
                state.rules.backlog_quotas.size.map(|quota| quota.limit),
                state.rules.backlog_quotas.age.map(|quota| quota.limit),
            ),
            oldest: state.oldest.clone(),
            evictions: state.evictions,
            throttled: state.throttle.times,
            stages: state.stages.clone(),
            rate_in: state.rate_in.rates(clock::wall_ms(), published),
            epoch: state.producers.epoch(),
            producer_count: state.producers.len(),
            waiting_producers: state.producers.waiting_len(),
            producers: if wanted.producers {
                producers(&state)
            } else {
                Vec::new()
            },
            subscriptions: state
                .subscriptions
                .values()
                .map(|s| subscription(&state, s, wanted))
                .collect(),
        }
    }
}

fn log_figures(state: &State) -> LogFigures {
    let stats = state.ledger.stats();
    LogFigures {
        table: state.ledger.table(),
        rows: state.ledger.ledgers().to_vec(),
        first: stats.first,
        end: stats.durable_end,
        bytes: stats.bytes,
        pending: state.pending.len(),
        created_ms: state.ledger.created_ms(),
        is_terminated: state.ledger.is_terminated(),
        has_fault: state.fault.is_some(),
        unreadable: state.damage.places(state.ledger.first()).collect(),
        offload: state.ledger.offload_stats(),
        properties: state.ledger.properties(),
    }
}

impl LogFigures {
    /// About how many bytes lie after a place.
    pub(crate) fn bytes_after(&self, place: Ordinal) -> u64 {
        super::retire::bytes_after(&self.rows, place)
    }
}

fn producers(state: &State) -> Vec<ProducerFigures> {
    let figures = state.producers.iter().map(|producer| ProducerFigures {
        key: producer.key.0,
        producer_id: producer.producer_id,
        name: producer.name.clone(),
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
    let end = state.ledger.durable_end();
    let mut figures = SubscriptionFigures {
        name: subscription.name.to_string(),
        kind: subscription.kind,
        is_broadcast: subscription.is_broadcast(),
        is_durable: subscription.is_durable(),
        properties: subscription.properties.clone(),
        consumer_count: subscription.consumers.len(),
        consumers: Vec::new(),
        activity: subscription.activity,
        dropped: subscription.dropped,
        expired: subscription.expired,
        cursors: Vec::new(),
        broadcast: BroadcastCounts::default(),
        dispatch: None,
        key_shared_mode: None,
        active: None,
    };
    match &subscription.body {
        Body::Stream(cursor) => {
            figures.active = cursor.handed_over().and_then(|handed_over| {
                let consumer = state.consumers.get(&handed_over.key)?;
                Some((handed_over.key, consumer.name.clone()))
            });
            figures.cursors.push(cursor_figures(state, cursor, None, wanted));
        }
        Body::Broadcast(body) => {
            let each = body.members.iter().map(|(name, member)| {
                cursor_figures(state, &member.cursor, Some(member_figures(name, member)), wanted)
            });
            figures.cursors = each.collect();
            figures.broadcast = body.counts;
        }
        Body::Dispatched(body) => {
            figures.dispatch = Some(body.dispatcher.stats(end));
            figures.key_shared_mode = body.dispatcher.key_shared_mode();
            let acks = AckFigures::of(body.dispatcher.acks(), end, wanted.details);
            figures.cursors.push(CursorFigures {
                lent_to: None,
                acks,
                advanced: advanced(state, body.slot),
                member: None,
            });
        }
    }
    if wanted.consumers {
        figures.consumers = consumers(state, subscription);
    }
    figures
}

fn cursor_figures(
    state: &State,
    cursor: &Cursor,
    member: Option<MemberFigures>,
    wanted: Wanted,
) -> CursorFigures {
    let end = state.ledger.durable_end();
    let acks = match (&cursor.place, cursor.slot) {
        (CursorPlace::Home(acks), _) => Some(acks),
        (CursorPlace::HandedOver(_), Some(slot)) => state.cursors.get(slot).map(|slot| &slot.acks),
        (CursorPlace::HandedOver(_), None) => None,
    };
    // A non-durable cursor that is handed over is known to its stream consumer only.
    let unknown = || AckFigures {
        acked_to: end,
        ..AckFigures::default()
    };
    CursorFigures {
        lent_to: cursor.handed_over().map(|handed_over| handed_over.key),
        acks: acks.map_or_else(unknown, |acks| AckFigures::of(acks, end, wanted.details)),
        advanced: advanced(state, cursor.slot),
        member,
    }
}

fn advanced(state: &State, slot: Option<SlotId>) -> Moment {
    let slot = slot.and_then(|id| state.cursors.get(id));
    slot.map(|slot| slot.advanced).unwrap_or_default()
}

fn member_figures(name: &Arc<str>, member: &BroadcastMember) -> MemberFigures {
    MemberFigures {
        name: name.clone(),
        is_named: member.named,
        absent_since_ms: member.presence.absent_since_ms(),
        is_dropped: member.presence.is_given_up(),
        counts: member.counts.as_deref().copied().unwrap_or_default(),
    }
}

fn consumers(state: &State, subscription: &Subscription) -> Vec<ConsumerFigures> {
    let known = subscription
        .consumers
        .iter()
        .filter_map(|key| Some((*key, state.consumers.get(key)?)));
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
        if let Body::Dispatched(body) = &subscription.body {
            let key = dispatch::ConsumerKey(key.0);
            figures.dispatch = body.dispatcher.consumer_stats(key);
            figures.hash_ranges = body.dispatcher.hash_ranges(key);
        }
        figures
    });
    figures.collect()
}
