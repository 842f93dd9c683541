//! Making subscriptions and the durable places of their cursors. Records are queued here; the caller commits them.

use pharos_managed_ledger::cursor::AckState;
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName};

use super::cursor_store;
use super::request::{SubscribeRequest, SubscriptionType};
use super::subscription::{Body, Cursor, CursorPlace, Subscription};
use super::{State, Topic};
use crate::error::SubscribeError;
use crate::feed::Activity;

impl Topic {
    /// Makes a subscription that does not exist; its record is queued, not yet durable.
    pub(super) fn create_subscription(
        &self,
        state: &mut State,
        request: &SubscribeRequest,
    ) -> Result<(), SubscribeError> {
        if request.durable && !request.may_create {
            return Err(SubscribeError::NotFound(request.subscription.to_string()));
        }
        let start = state.stored.log.start_of(request.start);
        let broadcast = request.kind == SubscriptionType::Broadcast;
        self.insert_subscription(
            state,
            &request.subscription,
            request.durable,
            broadcast,
            start,
            &request.properties,
        );
        Ok(())
    }

    /// Puts a new subscription in, with its cursor at `start`.
    pub(super) fn insert_subscription(
        &self,
        state: &mut State,
        name: &SubscriptionName,
        durable: bool,
        broadcast: bool,
        start: Ordinal,
        properties: &[(String, String)],
    ) {
        let number = durable.then(|| state.stored.cursors.log().subscription_free().0);
        if let Some(number) = number {
            let record = cursor_store::subscription_created(number, name.as_str(), broadcast, properties);
            state
                .stored
                .change_cursors(&self.cx, |cursors| cursors.queue(record));
        }
        let body = if broadcast {
            Body::Broadcast(Box::default())
        } else {
            let slot = number.map(|number| {
                state
                    .stored
                    .new_slot(&self.cx, None, number, AckState::new(start))
            });
            Body::Stream(Cursor {
                slot,
                place: CursorPlace::Home(AckState::new(start)),
            })
        };
        let subscription = Subscription {
            name: name.clone(),
            number,
            kind: None,
            properties: properties.to_vec(),
            consumers: Vec::new(),
            body,
            sharing: None,
            fenced: false,
            creating: durable,
            activation: None,
            generation: 0,
            idle_since_ms: clock::wall_ms(),
            activity: Activity::default(),
            dropped: 0,
            expired: Default::default(),
        };
        state
            .attached
            .subscriptions
            .insert(name.clone(), Box::new(subscription));
    }
}
