//! Broadcast subscriptions: their stream consumers in numbers, and the slowest by name.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::mem::size_of;

use pharos_admin_api::{BroadcastCarrier, BroadcastConsumer, BroadcastDetails, BroadcastSummary};
use pharos_catalog::carrier_name;
use pharos_managed_ledger::AckState;
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName, TopicName};

use crate::error::AdminError;
use crate::gather::Live;
use crate::homes::Homes;
use crate::internals::mark_delete_text;
use pharos_broker::ids::ConsumerKey;
use pharos_runtime::iso_time;
use pharos_topic::{ConsumerFigures, CursorFigures, SubscriptionFigures, TopicFigures, Wanted};

/// The most that are listed as the slowest.
const SLOWEST_MAX: usize = 1000;
/// Approximate memory of an acknowledged range, in bytes.
const RANGE_BYTES: u64 = 32;

/// Selection of broadcast stream consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastQuery {
    /// Number of the slowest to list; at most 1000.
    pub slowest: usize,
    /// True to list all of them as well.
    pub consumers: bool,
}

/// Returns the details of a broadcast subscription and its stream consumers.
pub(crate) async fn details(
    homes: &Homes,
    name: TopicName,
    subscription: SubscriptionName,
    query: BroadcastQuery,
) -> Result<BroadcastDetails, AdminError> {
    let wanted = Wanted {
        consumers: true,
        ..Wanted::default()
    };
    let (figures, live) = homes.gather(name, wanted).await?;
    let asked = figures
        .subscriptions
        .iter()
        .find(|found| found.name == subscription.as_str());
    let Some(asked) = asked else {
        return Err(AdminError::NotFound(format!(
            "Subscription {subscription} not found"
        )));
    };
    if !asked.is_broadcast {
        let reason = format!("subscription {subscription} is not a broadcast subscription");
        return Err(AdminError::Precondition(reason));
    }
    let rows = Rows::new(&figures, asked, &live);
    let slowest = slowest(asked, &live, query.slowest.min(SLOWEST_MAX));
    let consumers = query.consumers.then(|| {
        let mut all: Vec<_> = asked.cursors.iter().map(|cursor| rows.row(cursor)).collect();
        all.sort_by(|one, two| one.consumer_name.cmp(&two.consumer_name));
        all
    });
    Ok(BroadcastDetails {
        summary: summary(&figures, asked, &live),
        mark_delete_position: mark_delete_text(&figures.log, rows.lowest),
        slowest: slowest.into_iter().map(|cursor| rows.row(cursor)).collect(),
        consumers,
    })
}

/// The stream consumers in numbers.
pub(crate) fn summary(
    topic: &TopicFigures,
    subscription: &SubscriptionFigures,
    live: &Live,
) -> BroadcastSummary {
    let mut summary = BroadcastSummary {
        absent_dropped_total: subscription.broadcast.absent_dropped,
        returned_late_total: subscription.broadcast.returned_late,
        entries_skipped_total: subscription.broadcast.entries_skipped,
        takeovers_total: subscription.broadcast.takeovers,
        takeovers_refused_total: subscription.broadcast.takeovers_refused,
        ..BroadcastSummary::default()
    };
    let mut places: HashSet<Ordinal> = HashSet::new();
    for cursor in &subscription.cursors {
        let acks = live.acks(cursor);
        summary.cursor_bytes += size_of::<AckState>() as u64 + u64::from(acks.holes) * RANGE_BYTES;
        if cursor.handed_over_to.is_none() {
            let is_kept = cursor
                .member
                .as_ref()
                .is_some_and(|member| member.is_named && !member.is_dropped);
            summary.consumers_absent += u64::from(is_kept);
            continue;
        }
        summary.consumers_connected += 1;
        let next = live.of(cursor).map_or(acks.acked_to, |stream| stream.next);
        if next >= topic.log.end {
            summary.consumers_at_tail += 1;
        } else {
            places.insert(next);
        }
    }
    summary.cohorts = places.len() as u64;
    for carrier in &subscription.carriers {
        summary.consumers_connected += carrier.part.connected;
        summary.consumers_absent += carrier.part.absent;
        summary.carriers.push(BroadcastCarrier {
            slot: carrier.slot,
            broker: carrier.broker.clone(),
            topic: carrier_name(&topic.name, carrier.slot).map_or_else(String::new, |name| name.to_string()),
            connected: carrier.part.connected,
            absent: carrier.part.absent,
            backlog: carrier.part.backlog,
        });
    }
    summary
}

/// The cursors furthest behind, slowest first. Looks at each once and keeps no more than `count`.
pub(crate) fn slowest<'a>(
    subscription: &'a SubscriptionFigures,
    live: &Live,
    count: usize,
) -> Vec<&'a CursorFigures> {
    let mut heap: BinaryHeap<(Ordinal, Reverse<u64>, usize)> = BinaryHeap::new();
    for (index, cursor) in subscription.cursors.iter().enumerate() {
        if cursor.member.as_ref().is_some_and(|member| member.is_dropped) {
            continue;
        }
        let acks = live.acks(cursor);
        heap.push((acks.acked_to, Reverse(acks.backlog), index));
        if heap.len() > count {
            heap.pop();
        }
    }
    let sorted = heap.into_sorted_vec();
    sorted
        .into_iter()
        .filter_map(|(_, _, index)| subscription.cursors.get(index))
        .collect()
}

/// The lowest place of all cursors that hold one.
pub(crate) fn lowest(topic: &TopicFigures, subscription: &SubscriptionFigures, live: &Live) -> Ordinal {
    let kept = subscription
        .cursors
        .iter()
        .filter(|c| !c.member.as_ref().is_some_and(|member| member.is_dropped));
    kept.map(|cursor| live.acks(cursor).acked_to)
        .min()
        .unwrap_or(topic.log.end)
}

/// Sources of the rows.
struct Rows<'a> {
    topic: &'a TopicFigures,
    live: &'a Live,
    consumers: HashMap<ConsumerKey, &'a ConsumerFigures>,
    lowest: Ordinal,
    now_ms: u64,
}

impl<'a> Rows<'a> {
    fn new(topic: &'a TopicFigures, subscription: &'a SubscriptionFigures, live: &'a Live) -> Self {
        Self {
            topic,
            live,
            consumers: subscription
                .consumers
                .iter()
                .map(|consumer| (consumer.key, consumer))
                .collect(),
            lowest: lowest(topic, subscription, live),
            now_ms: clock::wall_ms(),
        }
    }

    fn row(&self, cursor: &CursorFigures) -> BroadcastConsumer {
        let acks = self.live.acks(cursor);
        let stream = self.live.of(cursor);
        let consumer = cursor.handed_over_to.and_then(|key| self.consumers.get(&key));
        let member = cursor.member.as_ref();
        let absent_ms = member
            .and_then(|member| member.absent_since_ms)
            .map(|at| self.now_ms.saturating_sub(at));
        let counts = member.map(|member| member.counts).unwrap_or_default();
        BroadcastConsumer {
            consumer_name: member.map(|member| member.name.to_string()).unwrap_or_default(),
            connected: cursor.handed_over_to.is_some(),
            durable: member.is_some_and(|member| member.is_named),
            mark_delete_position: mark_delete_text(&self.topic.log, acks.acked_to),
            increment: self.lowest.count_to(acks.acked_to),
            backlog: acks.backlog,
            holes: acks.holes,
            available_permits: stream.map_or(0, |stream| stream.permits),
            unacked_messages: stream.map_or(0, |stream| stream.unacked),
            address: consumer.map(|consumer| consumer.info.address.to_string()),
            connected_since: consumer.map(|consumer| iso_time(consumer.info.connected_since_ms)),
            dropped: member.is_some_and(|member| member.is_dropped),
            returned_late_total: counts.returned_late,
            entries_skipped_total: counts.entries_skipped,
            takeovers_total: counts.takeovers,
            takeovers_refused_total: counts.takeovers_refused,
            absent_seconds: absent_ms
                .filter(|_| cursor.handed_over_to.is_none())
                .map(|ms| ms / 1000),
        }
    }
}
