//! Meaning of the cursor log's records for the broker: kinds, facts, and restoring everything after a start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pharos_accounts::tenants::TenantShare;
use pharos_feed::Activity;
use pharos_feed::ids::SlotId;
use pharos_feed::slots::Slot;
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::{
    self, CursorLog, CursorLogOptions, REPLICATED, Record, SubscriptionId,
};
use pharos_managed_ledger::{ManagedLedger, OpenError};
use pharos_requests::error::chain;
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Ordinal, SubscriptionName};

use super::absence::Presence;
use super::subscription::{Body, BroadcastBody, BroadcastMember, Cursor, CursorPlace, Subscription};
use super::transaction_acks::PendingBySubscription;
use super::{State, Stored, TopicContext};

/// Subscription kinds as stored; never reuse a number.
const KIND_ORDINARY: u8 = 0;
const KIND_BROADCAST: u8 = 1;
/// Interval of looks at a cursor log for which the engine has no room at the moment.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Opens the cursors of a topic whose log was just opened.
pub(super) async fn open(ledger: &ManagedLedger) -> Result<CursorLog, OpenError> {
    let options = CursorLogOptions {
        replication: ledger.replication(),
        affinity: ledger.affinity(),
        node_kind: KIND_ORDINARY,
        ..CursorLogOptions::default()
    };
    CursorLog::open(ledger, options, clock::wall_ms()).await
}

/// A subscription was made.
pub(super) fn subscription_created(
    number: u32,
    name: &str,
    broadcast: bool,
    properties: &[(String, String)],
    is_replicated: bool,
) -> Record {
    Record::SubscriptionCreated {
        subscription: SubscriptionId(number),
        name: name.to_owned(),
        kind: if broadcast { KIND_BROADCAST } else { KIND_ORDINARY },
        properties: map(properties, is_replicated),
        facts: Vec::new(),
    }
}

/// A subscription's properties were replaced, or whether it is replicated.
pub(super) fn subscription_changed(
    number: u32,
    broadcast: bool,
    properties: &[(String, String)],
    is_replicated: bool,
) -> Record {
    Record::SubscriptionChanged {
        subscription: SubscriptionId(number),
        kind: if broadcast { KIND_BROADCAST } else { KIND_ORDINARY },
        properties: map(properties, is_replicated),
        facts: Vec::new(),
    }
}

/// A subscription is gone, with its cursors.
pub(super) fn subscription_removed(number: u32) -> Record {
    Record::SubscriptionRemoved {
        subscription: SubscriptionId(number),
    }
}

/// A cursor was made.
pub(super) fn cursor_created(slot: SlotId, number: u32, member: Option<&str>, acks: AckState) -> Record {
    Record::CursorCreated {
        slot: cursor_log::Slot(slot.0),
        subscription: SubscriptionId(number),
        consumer: member.unwrap_or_default().to_owned(),
        facts: Vec::new(),
        acks,
    }
}

/// A cursor moved.
pub(super) fn cursor_moved(slot: SlotId, acks: AckState) -> Record {
    Record::CursorMoved {
        slot: cursor_log::Slot(slot.0),
        acks,
    }
}

/// Returns the record of further facts about a cursor: see [`Presence`].
pub(super) fn cursor_facts(slot: SlotId, facts: Vec<u8>) -> Record {
    Record::CursorFacts {
        slot: cursor_log::Slot(slot.0),
        facts,
    }
}

/// A cursor is gone.
pub(super) fn cursor_removed(slot: SlotId) -> Record {
    Record::CursorRemoved {
        slot: cursor_log::Slot(slot.0),
    }
}

/// A system cursor was made, or moved.
pub(super) fn system_cursor_put(name: &str, position: Ordinal, properties: BTreeMap<String, i64>) -> Record {
    Record::SystemCursorPut {
        name: name.to_owned(),
        position,
        properties,
    }
}

/// A system cursor is gone.
pub(super) fn system_cursor_removed(name: &str) -> Record {
    Record::SystemCursorRemoved {
        name: name.to_owned(),
    }
}

/// Returns the stored properties of a subscription. Replication is one of them in storage, and nowhere else.
fn map(properties: &[(String, String)], is_replicated: bool) -> BTreeMap<String, String> {
    let replicated = is_replicated.then(|| (REPLICATED.to_owned(), "true".to_owned()));
    properties.iter().cloned().chain(replicated).collect()
}

impl Stored {
    /// Starts whatever the cursor log wants done (rolling over), and comes again while it waits for the engine.
    pub(super) fn maintain_cursors(&mut self, cx: &TopicContext) {
        while let Some(work) = self.cursors.log_mut().take_maintenance(clock::wall_ms()) {
            let Some(me) = cx.me() else { return };
            spawn_local(async move {
                let done = work.await;
                me.state.borrow_mut().stored.on_cursors_maintained(&me.cx, done);
            });
        }
        if self.cursors.log().is_behind() && !std::mem::replace(&mut self.commits.comes_again, true) {
            let me = cx.me.clone();
            spawn_local(async move {
                tokio::time::sleep(CATCH_UP_INTERVAL).await;
                if let Some(me) = me.upgrade() {
                    let mut state = me.state.borrow_mut();
                    state.stored.commits.comes_again = false;
                    state.stored.maintain_cursors(&me.cx);
                }
            });
        }
    }

    fn on_cursors_maintained(&mut self, cx: &TopicContext, done: cursor_log::RollDone) {
        match self.cursors.log_mut().on_maintenance(done, clock::wall_ms()) {
            cursor_log::RollEvent::Nothing | cursor_log::RollEvent::Rolled => {}
            cursor_log::RollEvent::Retrying(error) => {
                tracing::warn!(topic = %cx.name, error = chain(&error), "rolling the cursor log is tried again");
            }
            cursor_log::RollEvent::Failed(error) => {
                let reason = chain(&error);
                self.publishing
                    .fail(cx, &format!("cursor log: {reason}"), error.kind());
            }
        }
        self.maintain_cursors(cx);
    }
}

/// Puts subscriptions and cursors back as the log knows them.
pub(super) fn restore(state: &mut State, mut pending_acks: PendingBySubscription) {
    let now_ms = clock::wall_ms();
    let first = state.stored.log.ledger.first();
    let mut slots = Vec::new();
    for (id, stored) in state.stored.cursors.log().subscriptions() {
        let Ok(name) = SubscriptionName::new(&stored.name) else {
            continue;
        };
        let mut body = if stored.kind == KIND_BROADCAST {
            Body::Broadcast(Box::<BroadcastBody>::default())
        } else {
            // Its cursor follows below; one that was never written starts at the first entry, so nothing is missed.
            Body::Stream(Cursor {
                slot: None,
                place: CursorPlace::Home(AckState::new(first)),
            })
        };
        for slot in &stored.slots {
            let Some(cursor) = state.stored.cursors.log().cursor(*slot) else {
                continue;
            };
            slots.extend(restore_cursor(&mut body, SlotId(slot.0), cursor, now_ms));
        }
        let properties = stored.properties.clone().into_iter();
        let subscription = Subscription {
            name: name.clone(),
            number: Some(id.0),
            kind: None,
            replicated: stored.properties.contains_key(REPLICATED).then(Box::default),
            properties: properties.filter(|(name, _)| name != REPLICATED).collect(),
            consumers: BTreeSet::new(),
            body,
            sharing: None,
            fenced: false,
            creating: false,
            failover: None,
            activation: None,
            generation: 0,
            idle_since_ms: now_ms,
            activity: Activity::default(),
            dropped: 0,
            expired: Default::default(),
            rate: state.stored.subscription_rate(),
            pending_acks: pending_acks.remove(&id.0),
            _seat: state.attached.tenant.as_ref().map(TenantShare::enter),
        };
        state.attached.subscriptions.insert(name, Box::new(subscription));
    }
    state.stored.cursors.restore(slots);
}

/// Puts one cursor of a subscription back. Returns its place; `None` of one that the subscription cannot have.
fn restore_cursor(
    body: &mut Body,
    id: SlotId,
    cursor: &cursor_log::Cursor,
    now_ms: u64,
) -> Option<(SlotId, Slot)> {
    let presence = Presence::of_facts(&cursor.facts, cursor.acks.acked_to(), now_ms);
    let home = Cursor {
        slot: Some(id),
        place: CursorPlace::Home(cursor.acks.clone()),
    };
    let dropped = match body {
        Body::Broadcast(body) if !cursor.consumer.is_empty() => {
            let place = BroadcastMember {
                cursor: home,
                named: true,
                presence,
                counts: None,
                rivalry: None,
                newest: 0,
            };
            body.members.insert(Arc::from(&*cursor.consumer), place);
            presence.is_given_up()
        }
        Body::Stream(place) => {
            *place = home;
            false
        }
        Body::Broadcast(_) | Body::Dispatched(_) => return None,
    };
    let slot = Slot {
        acks: cursor.acks.clone(),
        logged: true,
        dropped,
        advanced: Default::default(),
    };
    Some((id, slot))
}
