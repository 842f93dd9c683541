//! Making subscriptions and the durable places of their cursors. Records are queued here; the caller commits them.

use pharos_accounts::tenants::TenantShare;
use pharos_catalog::CarrierSlots;
use pharos_feed::Activity;
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::SubscribeError;
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName};
use std::collections::BTreeSet;

use super::cursor_store;
use super::subscription::{Body, Cursor, CursorPlace, Subscription};
use super::{Attached, Stored, SubscribeRequest, SubscriptionType, TopicContext};

/// Parameters of a new subscription.
pub(super) struct NewSubscription<'a> {
    pub(super) name: &'a SubscriptionName,
    pub(super) is_durable: bool,
    pub(super) is_broadcast: bool,
    /// Start position of its cursor.
    pub(super) start: Ordinal,
    pub(super) properties: &'a [(String, String)],
    /// True if its state is replicated to other clusters.
    pub(super) is_replicated: bool,
}

impl Attached {
    /// Makes a subscription that does not exist; its record is queued, not yet durable.
    pub(super) fn create_subscription(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        request: &SubscribeRequest,
    ) -> Result<(), SubscribeError> {
        if request.durable && !request.may_create {
            return Err(SubscribeError::NotFound(request.subscription.to_string()));
        }
        let new = NewSubscription {
            name: &request.subscription,
            is_durable: request.durable,
            is_broadcast: request.kind == SubscriptionType::Broadcast,
            start: stored.log.start_of(request.start),
            properties: &request.properties,
            is_replicated: request.is_replicated && request.durable,
        };
        self.insert_subscription(cx, stored, new);
        Ok(())
    }

    /// Puts a new subscription in, with its cursor at `start`.
    pub(super) fn insert_subscription(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        new: NewSubscription<'_>,
    ) {
        let NewSubscription {
            name,
            is_durable,
            is_broadcast,
            start,
            properties,
            is_replicated,
        } = new;
        // Those of a carrier say it already.
        let carried = (is_broadcast && is_durable && !cx.is_carrier())
            .then(|| cx.carried_anew())
            .flatten();
        let mut properties = properties.to_vec();
        properties.extend(carried.map(CarrierSlots::to_property));
        let number = is_durable.then(|| stored.cursors.log().subscription_free().0);
        if let Some(number) = number {
            let record = cursor_store::subscription_created(
                number,
                name.as_str(),
                is_broadcast,
                &properties,
                is_replicated,
            );
            stored.change_cursors(cx, |cursors| cursors.queue(record));
        }
        let body = if is_broadcast {
            Body::Broadcast(Box::default())
        } else {
            let slot = number.map(|number| stored.new_slot(cx, None, number, AckState::new(start)));
            Body::Stream(Cursor {
                slot,
                place: CursorPlace::Home(AckState::new(start)),
            })
        };
        let subscription = Subscription {
            name: name.clone(),
            number,
            kind: None,
            properties,
            replicated: is_replicated.then(Box::default),
            consumers: BTreeSet::new(),
            body,
            sharing: None,
            fenced: false,
            creating: is_durable,
            failover: None,
            activation: None,
            generation: 0,
            idle_since_ms: clock::wall_ms(),
            activity: Activity::default(),
            dropped: 0,
            expired: Default::default(),
            rate: stored.subscription_rate(),
            pending_acks: None,
            _seat: self
                .tenant
                .as_ref()
                .filter(|_| is_durable)
                .map(TenantShare::enter),
        };
        self.subscriptions.insert(name.clone(), Box::new(subscription));
    }
}
