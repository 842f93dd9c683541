//! A topic whose broadcast consumers are dealt among brokers, as its owner sees it: slot 0 is here, the others are carriers
//! ([`carrier`](super::carrier)), at brokers that may be this one.
//!
//! A task looks at them about once a second, through the metadata store: each carrier says there what it holds back and what it has.
//! No broker asks another one.
//!
//! Always true: no entry is trimmed before a look at the carriers that began when it was durable has found that none of them holds it.
//! A carrier says what it holds before its consumer is answered, so what that consumer is owed is younger than any look that missed it.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use pharos_catalog::{CarrierMoveKind, CarrierSlots, Carriers, Shadows, carrier_name, carrier_of};
use pharos_managed_ledger::{HeldBack, HeldBackPart, held_by, storage_name};
use pharos_mesh::Placed;
use pharos_metadata::MetadataLayout;
use pharos_requests::error::{CursorError, SubscribeError, TopicError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Ordinal, SubscriptionName};

use super::carrier::{CarrierHold, start_after};
use super::limits::Vacancy;
use super::{Attached, Stored, SubscribeRequest, SubscriptionType, Topic, TopicContext};

/// Interval of looks at carriers.
const INTERVAL: Duration = Duration::from_secs(1);

/// State that the owner keeps about the carriers of a topic.
#[derive(Default)]
pub(crate) struct Carrying {
    /// Entries from here on are kept for them.
    held: Ordinal,
    /// Reports of the carriers at the last look, by their number; `None` before the first one.
    said: Option<Vec<(u32, HeldBack)>>,
    /// Durable ends at the start of the last looks, the oldest one first.
    ends: VecDeque<Ordinal>,
}

/// Number of looks after which a carrier that has caught up has certainly reported what it does not hold: it reports
/// once a second, after its consumers have acknowledged, and the following look sees it.
const LOOKS_TO_HEAR: usize = 4;

/// State of a subscription on a carrier.
#[derive(Clone, Debug)]
pub struct CarrierFigures {
    /// Its slot.
    pub slot: u32,
    /// The broker that has it; `None`: none at this moment.
    pub broker: Option<String>,
    /// Report of the carrier.
    pub part: HeldBackPart,
}

impl TopicContext {
    /// True if the topic is a carrier of another one.
    pub(super) fn is_carrier(&self) -> bool {
        carrier_of(&self.name).is_some()
    }

    /// Returns the carrier slots for a new broadcast subscription of the topic.
    pub(super) fn carried_anew(&self) -> Option<CarrierSlots> {
        let shared = &self.shard.shared;
        let slots = Carriers::of(&shared.catalog).wanted(&self.name);
        // Of a broker that can have no other there is nothing to deal, and a shadow has no shadows.
        let is_shadow = || Shadows::of(&shared.catalog).source_of(&self.name).is_some();
        // In Pulsar's layout there is no place for shadows.
        let has_place = shared.options.managed_ledger.layout == MetadataLayout::Pharos;
        if slots < 2 || !has_place || shared.placement.brokers().is_none() || is_shadow() {
            return None;
        }
        carrier_name(&self.name, 1)?;
        let id = clock::wall_ms() << 16 | (self.shard.global_number() & 0xffff);
        Some(CarrierSlots { slots, id })
    }

    fn carriers(&self) -> Carriers<'_> {
        Carriers::of(&self.shard.shared.catalog)
    }
}

impl Attached {
    /// Returns the carrier slots of a subscription, if it has carriers.
    pub(super) fn carried(&self, name: &SubscriptionName) -> Option<CarrierSlots> {
        let subscription = self.subscriptions.get(name)?;
        CarrierSlots::of_properties(&subscription.properties).filter(|_| subscription.is_broadcast())
    }

    /// All that have.
    fn all_carried(&self) -> Vec<(SubscriptionName, CarrierSlots)> {
        let names = self.subscriptions.keys();
        names
            .filter_map(|name| Some((name.clone(), self.carried(name)?)))
            .collect()
    }
}

impl Stored {
    /// Carriers hold back what is from here on; `None` where there are none.
    pub(super) fn held_by_carriers(&self) -> Option<Ordinal> {
        self.carrying.as_ref().map(|carrying| carrying.held)
    }

    /// Returns the start of the unacknowledged entries of carriers, as far as they are older than what carriers
    /// report late.
    pub(super) fn owed_by_carriers(&self) -> Option<Ordinal> {
        let carrying = self.carrying.as_ref()?;
        let heard = *carrying.ends.front()?;
        (carrying.ends.len() == LOOKS_TO_HEAR && carrying.held < heard).then_some(carrying.held)
    }

    /// Consumers of a subscription that are connected to carriers; `None`: that is not known yet.
    pub(super) fn connected_elsewhere(&self, name: &SubscriptionName) -> Option<u64> {
        let Some(carrying) = &self.carrying else {
            return Some(0);
        };
        let parts = carrying.said.as_ref()?.iter().flat_map(|(_, held)| &held.parts);
        let of_it = parts.filter(|part| part.subscription == name.as_str());
        Some(of_it.map(|part| part.connected).sum())
    }

    /// Returns the state of a subscription on each of its carriers.
    pub(super) fn carrier_figures(&self, cx: &TopicContext, name: &str) -> Vec<CarrierFigures> {
        let said = self
            .carrying
            .iter()
            .flat_map(|carrying| carrying.said.iter().flatten());
        let of_it = said.filter_map(|(slot, held)| {
            let part = held.parts.iter().find(|part| part.subscription == name)?;
            Some(CarrierFigures {
                slot: *slot,
                broker: cx.broker_of(*slot),
                part: part.clone(),
            })
        });
        of_it.collect()
    }
}

impl TopicContext {
    fn broker_of(&self, slot: u32) -> Option<String> {
        match self.shard.shared.placement.of(&carrier_name(&self.name, slot)?) {
            Placed::Here(_) => Some("this one".to_owned()),
            Placed::Elsewhere(addresses) => Some(addresses.broker_id().to_owned()),
            Placed::Unowned => None,
        }
    }
}

/// Operations of a topic on its carriers.
pub struct Dealing<'a>(pub &'a Topic);

impl Dealing<'_> {
    /// Returns the carrier slots of a consumer's subscription, if it has carriers. A subscription that is to have
    /// some and does not exist yet is created.
    ///
    /// # Errors
    /// [`SubscribeError`]: the subscription may not be created, or could not be stored.
    pub async fn carried(&self, request: &SubscribeRequest) -> Result<Option<CarrierSlots>, SubscribeError> {
        if self.0.cx.is_non_persistent() || self.0.cx.is_carrier() {
            return Ok(None);
        }
        self.0.catch_up_policies();
        let name = &request.subscription;
        let is_new = |topic: &Topic| !topic.state.borrow().attached.subscriptions.contains_key(name);
        let is_broadcast = request.kind == SubscriptionType::Broadcast;
        if is_new(self.0) && is_broadcast && request.may_create && self.0.cx.carried_anew().is_some() {
            {
                let state = self.0.state.borrow();
                if state.stored.closing {
                    return Err(TopicError::Closing(self.0.cx.name.to_string()).into());
                }
                Vacancy(&state.attached).check_consumer(&self.0.cx, &state.stored, request)?;
            }
            let properties = &request.properties;
            let made = self
                .0
                .create_subscription_at(name.clone(), request.start, true, properties, false);
            match made.await {
                // Another consumer was faster.
                Ok(()) | Err(CursorError::Exists(_)) => {}
                Err(CursorError::NotAllowed(text)) => return Err(SubscribeError::NotAllowed(text)),
                Err(error) => return Err(SubscribeError::Storage(error.to_string())),
            }
        }
        let Some(carried) = self.0.state.borrow().attached.carried(name) else {
            return Ok(None);
        };
        // No carrier has a consumer of a subscription that a crash could take.
        let is_creating = |topic: &Topic| {
            let state = topic.state.borrow();
            let subscription = state.attached.subscriptions.get(name);
            subscription.is_some_and(|subscription| subscription.creating)
        };
        if is_creating(self.0) {
            self.0.commit_cursors().await.map_err(SubscribeError::Storage)?;
        }
        self.begin_carrying();
        self.tell_carried(name, Some(carried))
            .await
            .map_err(SubscribeError::Storage)?;
        Ok(Some(carried))
    }

    /// Lets other brokers know what a subscription is.
    async fn tell_carried(
        &self,
        name: &SubscriptionName,
        carried: Option<CarrierSlots>,
    ) -> Result<(), String> {
        let carriers = self.0.cx.carriers();
        if carriers.of_subscription(&self.0.cx.name, name) == carried {
            return Ok(());
        }
        // A broker that was paused says nothing of a topic that is another's by now.
        let confirmed = self.0.cx.shard.shared.placement.confirm(&self.0.cx.name).await;
        confirmed.map_err(|error| error.to_string())?;
        let noted = carriers.note(&self.0.cx.name, name, carried).await;
        noted.map_err(|error| error.to_string())
    }

    /// From now on carriers are looked at, and nothing is trimmed that was not looked for.
    pub(super) fn begin_carrying(&self) {
        let carrying = &mut self.0.state.borrow_mut().stored.carrying;
        if carrying.is_none() && !self.0.cx.is_carrier() {
            *carrying = Some(Carrying::default());
            spawn_local(look(self.0.cx.me.clone()));
        }
    }

    /// Begins the looks at carriers for a topic that was just loaded, if it has carriers.
    pub(super) fn resume_carrying(&self) {
        let is_carried = !self.0.state.borrow().attached.all_carried().is_empty();
        if is_carried || !self.0.cx.carriers().of_topic(&self.0.cx.name).is_empty() {
            self.begin_carrying();
        }
    }

    /// True if a subscription has carriers.
    pub(crate) fn is_carried(&self, name: &SubscriptionName) -> bool {
        self.0.state.borrow().attached.carried(name).is_some()
    }

    /// Refuses what would be done to the part of a subscription that is here and to no other.
    ///
    /// # Errors
    /// `NotAllowed`.
    pub(crate) fn check_whole(&self, name: &SubscriptionName) -> Result<(), CursorError> {
        match self.is_carried(name) {
            false => Ok(()),
            true => Err(CursorError::NotAllowed(format!(
                "consumers of subscription {name} are at several brokers, each with a place of its own: no number of messages is skipped for \
                 all of them; the subscription can be reset, cleared and expired"
            ))),
        }
    }

    /// Moves what carriers have of a subscription as the part that is here was moved. They do it within about a second, or when they
    /// have an owner again. A subscription without carriers has no such parts.
    ///
    /// # Errors
    /// `Storage`: whether they do it is unknown.
    pub(crate) async fn move_others(
        &self,
        name: &SubscriptionName,
        kind: CarrierMoveKind,
        to: Ordinal,
    ) -> Result<(), CursorError> {
        let (carried, after) = {
            let mut state = self.0.state.borrow_mut();
            let Some(carried) = state.attached.carried(name) else {
                return Ok(());
            };
            let stored = &mut state.stored;
            if let Some(carrying) = stored
                .carrying
                .as_mut()
                .filter(|_| kind == CarrierMoveKind::Reset)
            {
                // Until the next look, which knows of it.
                carrying.held = carrying.held.min(to);
            }
            let last = to.0.checked_sub(1).filter(|_| to > stored.log.ledger.first());
            let after = last.and_then(|last| stored.log.ledger.position_of(Ordinal(last)));
            (carried, after)
        };
        self.tell_carried(name, Some(carried))
            .await
            .map_err(CursorError::Storage)?;
        let placement = &self.0.cx.shard.shared.placement;
        placement.confirm(&self.0.cx.name).await?;
        let noted = self.0.cx.carriers().note_move(&self.0.cx.name, name, kind, after);
        noted
            .await
            .map_err(|error| CursorError::Storage(error.to_string()))
    }

    /// Moves the cursors on the carriers of all subscriptions.
    pub(crate) async fn move_all_others(
        &self,
        kind: CarrierMoveKind,
        to: Ordinal,
    ) -> Result<(), CursorError> {
        let all = self.0.state.borrow().attached.all_carried();
        for (name, _) in all {
            self.move_others(&name, kind, to).await?;
        }
        Ok(())
    }

    /// Returns the start of the entries that carriers are to deliver again, and have not reported yet as held.
    fn to_come_again(&self, said: &[(u32, HeldBack)]) -> Option<Ordinal> {
        let state = self.0.state.borrow();
        let carriers = self.0.cx.carriers();
        let carried = state.attached.all_carried();
        let places = carried.iter().filter_map(|(name, _)| {
            let moved = carriers.moved(&self.0.cx.name, name)?;
            let mut parts = said.iter().flat_map(|(_, held)| &held.parts);
            let is_due =
                |part: &HeldBackPart| part.subscription == name.as_str() && part.moved < moved.number;
            let is_open = moved.kind == CarrierMoveKind::Reset && parts.any(is_due);
            is_open.then(|| state.stored.log.start_of(start_after(moved.after)))
        });
        places.min()
    }

    /// A subscription is gone, durably: other brokers hear of it.
    pub(super) async fn end_carried(&self, name: &SubscriptionName) {
        if let Err(reason) = self.tell_carried(name, None).await {
            // The next look tries again.
            tracing::warn!(topic = %self.0.cx.name, subscription = %name, reason, "carriers hear later that a subscription is gone");
        }
    }

    /// Says what each subscription is, where other brokers know it otherwise.
    async fn settle_carried(&self) {
        let stored = self.0.state.borrow().attached.all_carried();
        let known = self.0.cx.carriers().of_topic(&self.0.cx.name);
        let gone = known.keys().filter_map(|name| SubscriptionName::new(name).ok());
        let gone = gone.filter(|name| stored.iter().all(|(is, _)| is != name));
        for name in gone.collect::<Vec<_>>() {
            self.end_carried(&name).await;
        }
        for (name, carried) in stored {
            let is_durable = |topic: &Topic| {
                let state = topic.state.borrow();
                let subscription = state.attached.subscriptions.get(&name);
                subscription.is_some_and(|subscription| !subscription.creating && !subscription.fenced)
            };
            if is_durable(self.0)
                && let Err(reason) = self.tell_carried(&name, Some(carried)).await
            {
                tracing::warn!(topic = %self.0.cx.name, subscription = %name, reason, "carriers hear later of a subscription");
            }
        }
    }

    /// Looks at every carrier once. Says whether there are any.
    async fn look_at_carriers(&self) -> bool {
        let slots = {
            let state = self.0.state.borrow();
            let all = state.attached.all_carried();
            all.iter().map(|(_, carried)| carried.slots).max()
        };
        let known = self.0.cx.carriers().of_topic(&self.0.cx.name);
        let Some(slots) = slots else {
            if !known.is_empty() {
                return true;
            }
            let mut state = self.0.state.borrow_mut();
            state.stored.carrying = None;
            state.stored.trim_soon(&self.0.cx);
            return false;
        };
        // Before the look: what is durable later may be owed to a consumer that comes to a carrier after it.
        let end = self.0.durable_end();
        let mut held = end;
        let mut said = Vec::new();
        for number in 1..slots {
            let Some(carrier) = carrier_name(&self.0.cx.name, number) else {
                continue;
            };
            let name = storage_name(&carrier, MetadataLayout::Pharos);
            match held_by(&name, &*self.0.cx.shard.shared.metadata).await {
                Ok(Some(of_it)) => {
                    held = held.min(of_it.from.map_or(held, Ordinal));
                    said.push((number, of_it));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%carrier, error = chain(&error), "what a carrier holds is not known; nothing more is trimmed");
                    return true;
                }
            }
        }
        let held = held.min(self.to_come_again(&said).unwrap_or(held));
        let mut state = self.0.state.borrow_mut();
        if let Some(carrying) = &mut state.stored.carrying {
            carrying.held = held;
            carrying.said = Some(said);
            carrying.ends.push_back(end);
            if carrying.ends.len() > LOOKS_TO_HEAR {
                carrying.ends.pop_front();
            }
        }
        state.stored.trim_soon(&self.0.cx);
        true
    }

    /// Gets an owner for carriers that have none: their absent consumers hold messages back, and come to an end only where they are
    /// looked after.
    async fn place_carriers(&self) {
        let slots = self.0.state.borrow().attached.all_carried();
        let slots = slots.iter().map(|(_, carried)| carried.slots).max().unwrap_or(1);
        for number in 1..slots {
            let placement = &self.0.cx.shard.shared.placement;
            let Some(carrier) = carrier_name(&self.0.cx.name, number) else {
                continue;
            };
            if placement.of(&carrier) == Placed::Unowned
                && let Err(error) = placement.claim_apart(&carrier, number).await
            {
                tracing::debug!(%carrier, %error, "a carrier has no owner yet");
            }
        }
    }
}

/// Looks at carriers for as long as the topic is loaded and has some.
async fn look(topic: Weak<Topic>) {
    loop {
        let Some(me) = topic.upgrade() else { return };
        if !me.state.borrow().stored.closing {
            let dealing = Dealing(&me);
            dealing.settle_carried().await;
            if !dealing.look_at_carriers().await {
                return;
            }
            dealing.place_carriers().await;
        }
        drop(me);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// A topic that was just loaded takes up what it is in this.
pub(super) fn resume_dealing(topic: &Rc<Topic>) {
    match topic.cx.is_carrier() {
        true => CarrierHold::begin(topic),
        false => Dealing(topic).resume_carrying(),
    }
}
