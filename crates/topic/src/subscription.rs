//! Subscriptions, and the location of their cursors.
//!
//! ```text
//!   Stream      Exclusive, Failover, readers: one cursor, at home or handed over to the one consumer that listens
//!   Broadcast   one cursor per consumer name, each at home (absent) or handed over
//!   Dispatched  Shared, Key_Shared: the cursor stays at home, in the dispatcher
//! ```
//! A subscription without consumers is `Stream` with its cursor at home, whatever it was: the next consumer's type
//! decides what it becomes. A broadcast subscription stays one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pharos_accounts::tally::BroadcastCounts;
use pharos_accounts::tenants::SubscriptionSeat;
use pharos_catalog::properties::is_reserved_of_subscription;
use pharos_dispatch::Dispatcher;
use pharos_feed::ids::{ConnectionId, ConsumerKey, SlotId, TopicId};
use pharos_feed::rivalry::Rivalry;
use pharos_feed::{Activity, DispatchRateLimiter};
use pharos_managed_ledger::cursor::AckState;
use pharos_replication::SnapshotsAhead;
use pharos_runtime::clock::Nanos;
use pharos_transactions::PendingAcks;
use pharos_types::{Ordinal, SubscriptionName};
use tokio::sync::oneshot;

use super::SubscriptionType;
use super::absence::Presence;
use super::expiry::Expired;
use super::failover::Failover;
use super::non_persistent::Sharing;

/// A subscription of a topic.
pub(crate) struct Subscription {
    pub(crate) name: SubscriptionName,
    /// Its number in the cursor log; `None` for a non-durable one.
    pub(crate) number: Option<u32>,
    /// Type of its consumers, while there are any.
    pub(crate) kind: Option<SubscriptionType>,
    pub(crate) properties: Vec<(String, String)>,
    /// Snapshots that it has not passed, if its position is replicated to other clusters.
    pub(crate) replicated: Option<Box<SnapshotsAhead>>,
    /// Attached consumers, in the order in which they came: keys rise.
    pub(crate) consumers: BTreeSet<ConsumerKey>,
    pub(crate) body: Body,
    /// On a non-persistent topic, while there are consumers: who gets what. The body rests then.
    pub(crate) sharing: Option<Sharing>,
    /// A cursor reset is running: no consumer may attach.
    pub(crate) fenced: bool,
    /// Created, but not yet durable.
    pub(crate) creating: bool,
    /// Of Failover: its consumers, while there are any.
    pub(crate) failover: Option<Box<Failover>>,
    /// Hand-over of a Failover subscription's cursor that waits for the configured delay, if any.
    pub(crate) activation: Option<u64>,
    /// Rises when the body becomes another one, so that a read that was under way knows it is void.
    pub(crate) generation: u64,
    /// Time when its last consumer left, in milliseconds since 1970; 0 while there is one.
    pub(crate) idle_since_ms: u64,
    /// Activity of its consumers since the topic was loaded; that of present stream consumers is counted when they
    /// leave.
    pub(crate) activity: Activity,
    /// On a non-persistent topic: messages that a consumer should have got and could not take.
    pub(crate) dropped: u64,
    /// Messages acknowledged by expiry.
    pub(crate) expired: Expired,
    /// Dispatch rate limiter of the subscription.
    pub(crate) rate: Arc<DispatchRateLimiter>,
    /// Acknowledgements in transactions that have not ended; usually none.
    pub(crate) pending_acks: Option<Box<PendingAcks>>,
    /// Share of a durable subscription in its tenant's limit.
    pub(crate) _seat: Option<SubscriptionSeat>,
}

/// Cursors of a subscription.
pub(crate) enum Body {
    Stream(Cursor),
    Broadcast(Box<BroadcastBody>),
    Dispatched(Box<DispatchedBody>),
}

/// Cursor that is handed over whole.
pub(crate) struct Cursor {
    pub(crate) slot: Option<SlotId>,
    pub(crate) place: CursorPlace,
}

/// Location of a cursor.
pub(crate) enum CursorPlace {
    /// Here.
    Home(AckState),
    /// With the stream consumer of this consumer.
    HandedOver(HandedOver),
}

/// Stream consumer that a cursor is handed over to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOver {
    pub(crate) key: ConsumerKey,
    pub(crate) connection: ConnectionId,
    pub(crate) consumer_id: u64,
    /// As its shard knows the topic.
    pub(crate) feed: TopicId,
    /// Asked to come back: the consumer was told to close or to stand down.
    pub(crate) recalled: bool,
    /// The stream consumer was told to skip everything before this. What it made of that comes home later.
    pub(crate) skipped_to: Ordinal,
}

/// The cursors of a broadcast subscription.
#[derive(Default)]
pub(crate) struct BroadcastBody {
    pub(crate) members: HashMap<Arc<str>, BroadcastMember>,
    /// Names whose place is being moved, and who waits to take it; resolved by being dropped.
    pub(crate) moving: HashMap<Arc<str>, Vec<oneshot::Sender<()>>>,
    pub(crate) counts: BroadcastCounts,
    /// Time of the last warning about two consumers of one name.
    pub(crate) warned_at: Option<Nanos>,
}

/// Member of a broadcast subscription: one consumer name.
pub(crate) struct BroadcastMember {
    pub(crate) cursor: Cursor,
    /// True if the position outlives its consumer.
    pub(crate) named: bool,
    /// Presence, and the start of an absence.
    pub(crate) presence: Presence,
    /// Counts of its position, once there are any: rarely needed.
    pub(crate) counts: Option<Box<BroadcastCounts>>,
    /// Its take-overs lately, if there were any.
    pub(crate) rivalry: Option<Box<Rivalry>>,
    /// The newest request for the place. Older ones that waited for its holder to leave come too late.
    pub(crate) newest: u64,
}

/// The cursor and dispatcher of a subscription that chooses one consumer per message.
pub(crate) struct DispatchedBody {
    pub(crate) slot: Option<SlotId>,
    pub(crate) dispatcher: Dispatcher,
    /// A read is under way.
    pub(crate) reading: bool,
    /// Paused until sockets have taken some of what was dispatched; a task waits for that.
    pub(crate) awaits_room: bool,
    /// Number of failed reads since the last successful one.
    pub(crate) read_failures: u32,
    /// The state of the cursor changed since it was last queued for the log.
    pub(crate) dirty: bool,
    /// A task will persist it within the flush interval.
    pub(crate) flush_set: bool,
    /// Time of the next check that the dispatcher wants, in milliseconds since 1970.
    pub(crate) alarm_ms: Option<i64>,
}

impl Cursor {
    /// The state, when it is here.
    pub(crate) fn home(&self) -> Option<&AckState> {
        match &self.place {
            CursorPlace::Home(acks) => Some(acks),
            CursorPlace::HandedOver(_) => None,
        }
    }

    pub(crate) fn home_mut(&mut self) -> Option<&mut AckState> {
        match &mut self.place {
            CursorPlace::Home(acks) => Some(acks),
            CursorPlace::HandedOver(_) => None,
        }
    }

    pub(crate) fn handed_over(&self) -> Option<HandedOver> {
        match &self.place {
            CursorPlace::Home(_) => None,
            CursorPlace::HandedOver(handed_over) => Some(*handed_over),
        }
    }
}

impl Subscription {
    pub(crate) fn is_durable(&self) -> bool {
        self.number.is_some()
    }

    /// Its properties, without the broker's own.
    pub(crate) fn callers_properties(&self) -> Vec<(String, String)> {
        let all = self.properties.iter();
        let callers = all.filter(|(name, _)| !is_reserved_of_subscription(name));
        callers.cloned().collect()
    }

    pub(crate) fn is_broadcast(&self) -> bool {
        matches!(self.body, Body::Broadcast(_))
    }

    /// All cursors, with the broadcast name where there is one.
    pub(crate) fn cursors(&self) -> Box<dyn Iterator<Item = (Option<&Arc<str>>, &Cursor)> + '_> {
        match &self.body {
            Body::Stream(cursor) => Box::new(std::iter::once((None, cursor))),
            Body::Broadcast(body) => Box::new(
                body.members
                    .iter()
                    .map(|(name, member)| (Some(name), &member.cursor)),
            ),
            Body::Dispatched(_) => Box::new(std::iter::empty()),
        }
    }

    /// The cursor that is handed over to this consumer.
    pub(crate) fn handed_over_to(&mut self, key: ConsumerKey, name: &Arc<str>) -> Option<&mut Cursor> {
        let cursor = match &mut self.body {
            Body::Stream(cursor) => cursor,
            Body::Broadcast(body) => &mut body.members.get_mut(name)?.cursor,
            Body::Dispatched(_) => return None,
        };
        cursor
            .handed_over()
            .is_some_and(|handed_over| handed_over.key == key)
            .then_some(cursor)
    }
}
