//! A carrier: the topic in which the broadcast consumers of one slot are, who subscribed to its source.
//!
//! It is a [shadow](super::shadow), with a cursor log of its own. What it holds back of its source it says in its own info, which
//! the owner of the source reads before it trims. Only the carrier's present owner can write there: a broker that was paused cannot.
//!
//! Always true: what was said is no later than any durable cursor, and a cursor that is lower than what was said is not answered
//! before it is said anew.

use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use pharos_catalog::{CarrierMove, CarrierMoveKind, CarrierSlots, Carriers, carrier_of};
use pharos_managed_ledger::{HeldBack, HeldBackPart, Holding, Shadow};
use pharos_requests::error::{CursorError, chain};
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::{Ordinal, Position, SubscriptionName};

use super::carried::Dealing;
use super::seek::Moving;
use super::subscription::Body;
use super::{SeekTo, StartAt, State, Topic};

/// Interval of a carrier's reports about what it holds.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time that a subscription keeps its cursors after the source no longer has it. A broker that was paused may report
/// outdated state for a moment; the owner of the source corrects it within a second.
const ENDING: Duration = Duration::from_secs(5);

/// The place behind an entry; without one, before all.
pub(super) fn start_after(after: Option<Position>) -> StartAt {
    after.map_or(StartAt::Earliest, |after| {
        StartAt::At(Position::new(after.ledger.0, after.entry.0 + 1))
    })
}

/// Entries that a carrier holds back, and the receiver of its reports.
pub(crate) struct CarrierHold {
    holding: Holding,
    /// The lowest cursor, as far as the cursor log is durable.
    durable: Option<Ordinal>,
    /// Subscriptions that the source does not have, and since when.
    ending: HashMap<SubscriptionName, Nanos>,
}

impl CarrierHold {
    /// Begins for a topic that was just loaded.
    pub(super) fn begin(topic: &Rc<Topic>) {
        let state = &mut *topic.state.borrow_mut();
        let Some(holding) = Shadow::of(&mut state.stored.log.ledger).map(|shadow| shadow.holding()) else {
            return;
        };
        state.stored.holder = Some(Self {
            holding,
            durable: state.stored.cursors.lowest(),
            ending: HashMap::new(),
        });
        spawn_local(hold(Rc::downgrade(topic)));
    }
}

impl State {
    /// Returns what it holds if its cursors are no lower than this.
    fn held(&self, from: Option<Ordinal>) -> HeldBack {
        let end = self.stored.log.ledger.durable_end();
        let mut parts = Vec::new();
        for (name, subscription) in self.attached.subscriptions.iter() {
            let Body::Broadcast(body) = &subscription.body else {
                continue;
            };
            let members = body.members.values();
            let absent = members.filter(|member| {
                member.named && member.cursor.handed_over().is_none() && !member.presence.is_given_up()
            });
            let absent = absent.count();
            let (backlog, _) = subscription.body.kind().unacked_before(&self.stored.cursors, end);
            parts.push(HeldBackPart {
                subscription: name.to_string(),
                connected: subscription.consumers.len() as u64,
                absent: absent as u64,
                backlog,
                moved: CarrierMove::done(&subscription.properties),
            });
        }
        parts.sort_by(|one, two| one.subscription.cmp(&two.subscription));
        HeldBack {
            from: from.map(|from| from.0),
            parts,
        }
    }
}

/// Operations of a carrier on what it holds.
pub(super) struct Carrier<'a>(pub(super) &'a Topic);

impl Carrier<'_> {
    /// The cursor log is durable with no cursor lower than this. If less was said to be held, it is said now.
    ///
    /// # Errors
    /// Why it could not be said: no consumer may rely on it.
    pub(super) async fn on_cursors_durable(&self, lowest: Option<Ordinal>) -> Result<(), String> {
        let (holding, held) = {
            let mut state = self.0.state.borrow_mut();
            let Some(holder) = &mut state.stored.holder else {
                return Ok(());
            };
            holder.durable = lowest;
            let said = holder.holding.said().and_then(|held| held.from);
            let is_covered = match (said, lowest) {
                (_, None) => true,
                (Some(said), Some(lowest)) => said <= lowest.0,
                (None, Some(_)) => false,
            };
            if is_covered {
                return Ok(());
            }
            (holder.holding.clone(), state.held(lowest))
        };
        holding.say(held).await.map_err(|error| chain(&error))
    }

    /// Says what it holds now, if that is something else than what was said.
    async fn say_held(&self) {
        let (holding, held) = {
            let state = self.0.state.borrow();
            let Some(holder) = &state.stored.holder else {
                return;
            };
            (holder.holding.clone(), state.held(holder.durable))
        };
        if holding.said().as_ref() == Some(&held) {
            return;
        }
        if let Err(error) = holding.say(held).await {
            tracing::warn!(topic = %self.0.cx.name, error = chain(&error), "a carrier says later what it holds");
        }
    }

    /// Moves consumers that the owner of the source moved together with all others. What was not done when this ends is done
    /// after the next start, maybe twice.
    async fn follow_moves(&self) {
        let Some((source, _)) = carrier_of(&self.0.cx.name) else {
            return;
        };
        let due: Vec<(SubscriptionName, CarrierMove)> = {
            let carriers = Carriers::of(&self.0.cx.shard.shared.catalog);
            let state = self.0.state.borrow();
            let last = state.stored.log.ledger.last_position();
            let due = state.attached.subscriptions.iter().filter_map(|(name, it)| {
                let moved = carriers.moved(&source, name)?;
                let is_it =
                    CarrierSlots::of_properties(&it.properties) == carriers.of_subscription(&source, name);
                // What was published last may not have come here yet.
                let is_known = moved.after.is_none() || moved.after <= last;
                let is_due = is_it && is_known && moved.number > CarrierMove::done(&it.properties);
                (is_due && !it.fenced && !it.creating).then(|| (name.clone(), moved))
            });
            due.collect()
        };
        for (name, moved) in due {
            if let Err(error) = self.follow_move(&name, moved).await {
                tracing::warn!(topic = %self.0.cx.name, subscription = %name, %error, "consumers of a carrier are moved later");
            }
        }
    }

    async fn follow_move(&self, name: &SubscriptionName, moved: CarrierMove) -> Result<(), CursorError> {
        let at = start_after(moved.after);
        match moved.kind {
            CarrierMoveKind::Reset => {
                let remaining = Vec::new();
                Moving(self.0)
                    .reset(name, SeekTo::Place { at, remaining })
                    .await?;
            }
            CarrierMoveKind::Past => {
                let to = self.0.state.borrow().stored.log.start_of(at);
                Moving(self.0).skip_settled(name, to).await?;
            }
        }
        self.0.set_own_property(name, moved.to_property()).await
    }

    /// Closes what the source does not have any more, and forgets it after a while.
    async fn leave_ended(&self) {
        let Some((source, _)) = carrier_of(&self.0.cx.name) else {
            return;
        };
        let known = Carriers::of(&self.0.cx.shard.shared.catalog).of_topic(&source);
        let now = clock::now();
        let mut over = Vec::new();
        {
            let state = &mut *self.0.state.borrow_mut();
            let Some(holder) = &mut state.stored.holder else {
                return;
            };
            let mut closing = Vec::new();
            for (name, subscription) in state.attached.subscriptions.iter_mut() {
                let own = CarrierSlots::of_properties(&subscription.properties);
                if own.is_some() && known.get(name.as_str()) == own.as_ref() {
                    if holder.ending.remove(name).is_some() {
                        subscription.fenced = false;
                    }
                    continue;
                }
                let since = holder.ending.entry(name.clone()).or_insert(now);
                subscription.fenced = true;
                closing.push(name.clone());
                if Duration::from_nanos(now.since(*since)) >= ENDING {
                    over.push(name.clone());
                }
            }
            for name in closing {
                // They go by themselves.
                drop(state.attached.close_consumers(&self.0.cx, &name));
            }
        }
        for name in over {
            tracing::info!(topic = %self.0.cx.name, subscription = %name, "a subscription is gone from the topic, and so from its carrier");
            if let Err(error) = Dealing(self.0).end_subscription(&name, true).await {
                tracing::warn!(topic = %self.0.cx.name, subscription = %name, %error, "it is tried again");
                continue;
            }
            if let Some(holder) = &mut self.0.state.borrow_mut().stored.holder {
                holder.ending.remove(&name);
            }
        }
    }
}

/// Says what a carrier holds, and lets go of what is over, for as long as it is loaded.
async fn hold(topic: Weak<Topic>) {
    loop {
        let Some(me) = topic.upgrade() else { return };
        if !me.state.borrow().stored.closing {
            Carrier(&me).leave_ended().await;
            Carrier(&me).follow_moves().await;
            Carrier(&me).say_held().await;
        }
        drop(me);
        tokio::time::sleep(INTERVAL).await;
    }
}
