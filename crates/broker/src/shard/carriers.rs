//! At which broker a consumer of a broadcast subscription is, where those are dealt among several.
//!
//! ```text
//!  SUBSCRIBE news ──► the owner of news ──► slot 0, or a carrier that is here: attached here
//!                                      └──► a carrier elsewhere: the client is told where, and subscribes there
//!  SUBSCRIBE news ──► another broker ──► it has the carrier of that name's slot: attached in the carrier
//!                                   └──► refused: look up again
//! ```

use std::sync::Arc;

use pharos_catalog::{CarrierMove, CarrierSlots, Carriers, carrier_name};
use pharos_cluster::BrokerAddresses;
use pharos_mesh::Placed;
use pharos_requests::error::{SubscribeError, TopicError};
use pharos_topic::{Dealing, SubscribeRequest, SubscriptionType};

use super::Shard;

/// Location of a consumer.
pub(super) enum DealtTo {
    /// Here, by this request.
    Here(Box<SubscribeRequest>),
    /// At another broker.
    Elsewhere(Arc<BrokerAddresses>),
}

impl Shard {
    /// Returns the location for a consumer of a topic of this broker.
    ///
    /// # Errors
    /// [`SubscribeError`]; if a carrier has no owner now, the client should try again.
    pub(super) async fn place_consumer(&self, request: SubscribeRequest) -> Result<DealtTo, SubscribeError> {
        let carriers = Carriers::of(&self.shared.catalog);
        let may_be = request.kind == SubscriptionType::Broadcast && carriers.wanted(&request.topic) > 1
            || carriers
                .of_subscription(&request.topic, &request.subscription)
                .is_some();
        let Some(name) = request
            .consumer_name
            .clone()
            .filter(|_| may_be && request.durable)
        else {
            return Ok(DealtTo::Here(Box::new(request)));
        };
        let carried = {
            let request = request.clone();
            let home = self.shared.placement.home(&request.topic)?;
            self.call(home, move |shard| async move {
                loop {
                    let topic = shard.home.ensured_topic(&request.topic).await?;
                    match Dealing(&topic).carried(&request).await {
                        Err(SubscribeError::Topic(TopicError::Closing(_))) => {}
                        outcome => return outcome,
                    }
                }
            })
            .await??
        };
        let Some(carried) = carried else {
            return Ok(DealtTo::Here(Box::new(request)));
        };
        let slot = carried.slot_of(&name);
        let Some(carrier) = carrier_name(&request.topic, slot) else {
            return Ok(DealtTo::Here(Box::new(request))); // Slot 0 is the topic.
        };
        let placed = self.shared.placement.claim_apart(&carrier, slot).await;
        match placed {
            Ok(Placed::Here(_)) => Ok(DealtTo::Here(Box::new(in_carrier(
                carriers, request, carrier, carried,
            )))),
            Ok(Placed::Elsewhere(addresses)) => Ok(DealtTo::Elsewhere(addresses)),
            Ok(Placed::Unowned) | Err(_) => Err(TopicError::NotServed(carrier.to_string()).into()),
        }
    }

    /// The request by which a consumer is attached here although the topic is another broker's: its carrier is here.
    pub(super) fn as_carrier(&self, request: &SubscribeRequest) -> Option<SubscribeRequest> {
        let name = request.consumer_name.as_deref().filter(|_| request.durable)?;
        let carriers = Carriers::of(&self.shared.catalog);
        let carried = carriers.of_subscription(&request.topic, &request.subscription)?;
        let carrier = carrier_name(&request.topic, carried.slot_of(name))?;
        match self.shared.placement.of(&carrier) {
            Placed::Here(_) => Some(in_carrier(carriers, request.clone(), carrier, carried)),
            Placed::Elsewhere(_) | Placed::Unowned => None,
        }
    }
}

/// Returns the request for the same consumer on the carrier. The permission to create the subscription was checked on
/// the topic.
fn in_carrier(
    carriers: Carriers<'_>,
    request: SubscribeRequest,
    carrier: pharos_types::TopicName,
    carried: CarrierSlots,
) -> SubscribeRequest {
    // A subscription that is made now need not follow what was done to all before.
    let moved = carriers.moved(&request.topic, &request.subscription);
    let properties = [carried.to_property()].into_iter();
    let properties = properties.chain(moved.map(CarrierMove::to_property));
    SubscribeRequest {
        topic: carrier,
        kind: SubscriptionType::Broadcast,
        may_create: true,
        properties: properties.collect(),
        is_replicated: false,
        key_shared: None,
        ..request
    }
}
