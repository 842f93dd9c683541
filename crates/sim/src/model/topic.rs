//! Topic name, and the topic that has it at the moment.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::Position;

use super::{Crash, Fact, Need, Strength, Subscription};

/// Start of a request, to tell if its answer is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// Model of a topic.
#[derive(Debug)]
pub struct Topic {
    /// Durability of its messages.
    pub strength: Strength,
    /// Existence of the topic.
    pub fact: Fact,
    /// Its durable subscriptions.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Position of each message whose position is known.
    pub positions: BTreeMap<u64, Position>,
    messages: BTreeMap<Position, u64>,
    /// Sent in this life and not answered: may be in the log, at an unknown place.
    unanswered: BTreeSet<u64>,
    /// Rises when a deletion begins and when it is answered: what began before either proves nothing after it.
    changes: u64,
    deleting: bool,
    /// A client that makes topics came while it was being deleted.
    is_muddled: bool,
    /// Messages sent before this are of an earlier topic, or may be.
    message_first: u64,
    /// The highest topic epoch that an exclusive producer was told.
    pub epoch: Option<u64>,
    /// Ends the refusal of sends: `Yes` once a termination was answered.
    pub terminated: Fact,
    /// True if a crash may have lost its end.
    lost_its_end: bool,
    /// Messages older than this go without an acknowledgement.
    pub ttl_ms: Option<u64>,
    /// Send time of each message, where messages expire.
    sent_ms: BTreeMap<u64, u64>,
}

/// Messages expire up to a border in the log. Who sent at about the same time stands on either side of it.
const BORDER_MS: u64 = 5_000;

impl Topic {
    /// A name that no topic has.
    #[must_use]
    pub fn absent(strength: Strength) -> Self {
        Self {
            strength,
            fact: Fact::No,
            subscriptions: BTreeMap::new(),
            positions: BTreeMap::new(),
            messages: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            changes: 0,
            deleting: false,
            is_muddled: false,
            message_first: 0,
            epoch: None,
            terminated: Fact::No,
            lost_its_end: false,
            ttl_ms: None,
            sent_ms: BTreeMap::new(),
        }
    }

    /// A request began that needs the topic, and makes it when it is not there.
    pub fn maker_begins(&mut self) -> Ticket {
        if self.fact == Fact::No {
            self.fact = Fact::Either;
        }
        if self.deleting {
            self.is_muddled = true;
        }
        Ticket(self.changes)
    }

    /// A request began that makes no topic.
    #[must_use]
    pub fn begins(&self) -> Ticket {
        Ticket(self.changes)
    }

    /// True if no deletion has happened since, or is under way.
    #[must_use]
    pub fn is_current(&self, ticket: Ticket) -> bool {
        !self.deleting && ticket.0 == self.changes
    }

    /// A request was answered in a way that shows that the topic is there.
    pub fn is_there(&mut self, ticket: Ticket) {
        if self.is_current(ticket) {
            self.fact = Fact::Yes;
        }
    }

    /// True if a deletion is under way.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// A deletion begins. `makers`: requests under way that make topics.
    pub fn deletion_begins(&mut self, makers: bool) {
        self.deleting = true;
        self.changes += 1;
        self.is_muddled |= makers;
        for subscription in self.subscriptions.values_mut() {
            subscription.was_asked_for = subscription.askers > 0;
        }
    }

    /// Records a successful deletion: all content is gone, unless a client created the topic again meanwhile.
    pub fn deletion_done(&mut self, makers: bool, message_last: u64) {
        let may_be_new = self.is_muddled || makers;
        self.changes += 1;
        self.deleting = false;
        self.is_muddled = false;
        self.forget(message_last);
        self.fact = if may_be_new { Fact::Either } else { Fact::No };
    }

    /// Records a refused deletion: nothing happened.
    pub fn deletion_refused(&mut self) {
        self.changes += 1;
        self.deleting = false;
        if std::mem::take(&mut self.is_muddled) {
            self.muddle();
        }
    }

    /// Records a deletion with an unknown result.
    pub fn deletion_failed(&mut self) {
        self.deletion_refused();
        self.fact = Fact::Either;
        self.muddle();
    }

    fn forget(&mut self, message_last: u64) {
        self.subscriptions.retain(|_, subscription| {
            subscription.fact = Fact::Either;
            subscription.muddle();
            std::mem::take(&mut subscription.was_asked_for) || subscription.askers > 0
        });
        self.positions.clear();
        self.messages.clear();
        self.message_first = message_last + 1;
        self.epoch = None;
        self.terminated = Fact::No;
    }

    /// Nothing is certain any more until the next look.
    pub fn muddle(&mut self) {
        self.epoch = None;
        for subscription in self.subscriptions.values_mut() {
            subscription.fact = Fact::Either;
            subscription.muddle();
        }
        if self.terminated == Fact::Yes {
            self.terminated = Fact::Either;
        }
    }

    /// A message is sent.
    pub fn send(&mut self, message: u64, now_ms: u64) -> Ticket {
        self.unanswered.insert(message);
        if self.ttl_ms.is_some() {
            self.sent_ms.insert(message, now_ms);
        }
        self.begins()
    }

    /// Marks messages that have reached their time to live: they need not be delivered any more.
    pub fn expire(&mut self, now_ms: u64) {
        for message in self.expired(now_ms) {
            for subscription in self.subscriptions.values_mut() {
                for cursor in subscription.cursors.values_mut() {
                    cursor.may_be_gone(message);
                }
            }
        }
    }

    fn expired(&self, now_ms: u64) -> Vec<u64> {
        let Some(ttl_ms) = self.ttl_ms else {
            return Vec::new();
        };
        let old = self.sent_ms.iter();
        let old = old.filter(|(_, sent_ms)| **sent_ms + ttl_ms < now_ms + BORDER_MS);
        old.map(|(message, _)| *message).collect()
    }

    /// True if the position of everything in the log is known.
    #[must_use]
    pub fn is_all_known(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// A message got its receipt.
    ///
    /// # Panics
    /// When another message has that place.
    pub fn receipt(&mut self, message: u64, ticket: Ticket, position: Position) {
        if !self.is_current(ticket) || message < self.message_first {
            return;
        }
        self.fact = Fact::Yes;
        self.is_at(message, position);
        self.unanswered.remove(&message);
        for subscription in self.subscriptions.values_mut() {
            for cursor in subscription.cursors.values_mut() {
                cursor.receipt(message);
            }
        }
    }

    /// A message was seen at a place.
    ///
    /// # Panics
    /// When it, or that place, is known otherwise.
    pub fn is_at(&mut self, message: u64, position: Position) {
        if message < self.message_first {
            return;
        }
        let before = self.positions.insert(message, position);
        assert!(
            before.is_none_or(|before| before == position),
            "message {message} is at {position} and was at {before:?}"
        );
        let other = self.messages.insert(position, message);
        assert!(
            other.is_none_or(|other| other == message),
            "message {message} is at {position}, where {other:?} was"
        );
    }

    /// The order of the log among messages with a known place.
    #[must_use]
    pub fn place_of(&self, message: u64) -> Option<Position> {
        self.positions.get(&message).copied()
    }

    /// Messages with a known place, in the order of the log.
    #[must_use]
    pub fn in_order(&self) -> Vec<u64> {
        self.messages.values().copied().collect()
    }

    /// A subscription is asked for. `cursor`: of broadcast, the consumer's name; else empty.
    pub fn subscription_begins(&mut self, name: &str, cursor: &str) {
        let subscription = self
            .subscriptions
            .entry(name.to_owned())
            .or_insert_with(Subscription::asked_for);
        subscription.askers += 1;
        subscription.was_joined = true;
        subscription.names.insert(cursor.to_owned());
        subscription.was_asked_for |= self.deleting || subscription.deleting;
        if subscription.fact == Fact::No {
            subscription.fact = Fact::Either;
            subscription.muddle();
        }
    }

    /// Records the end of a request about the subscription, successful or not.
    pub fn subscription_ends(&mut self, name: &str) {
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.askers = subscription.askers.saturating_sub(1);
        }
    }

    /// Records that the subscription exists: messages sent from now on must be delivered to it. `cursor`: the
    /// consumer's name for broadcast; else empty.
    pub fn subscription_is_there(&mut self, name: &str, cursor: &str, ticket: Ticket, message_last: u64) {
        if !self.is_current(ticket) {
            return;
        }
        self.fact = Fact::Yes;
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        if subscription.deleting {
            return;
        }
        subscription.fact = Fact::Yes;
        let cursor = subscription.cursor(cursor);
        cursor.since.get_or_insert(message_last);
    }

    /// A subscription is to be deleted.
    pub fn unsubscribe_begins(&mut self, name: &str) {
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.deleting = true;
            subscription.fact = Fact::Either;
            subscription.was_asked_for = subscription.askers > 0;
        }
    }

    /// Records the answer to an unsubscribe request.
    pub fn unsubscribe_done(&mut self, name: &str, done: bool, ticket: Ticket) {
        let is_current = self.is_current(ticket);
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        subscription.deleting = false;
        let was_asked_for = std::mem::take(&mut subscription.was_asked_for) || subscription.askers > 0;
        if done {
            let is_gone = is_current && !was_asked_for;
            subscription.fact = if is_gone { Fact::No } else { Fact::Either };
            subscription.cursors.clear();
        } else if was_asked_for {
            subscription.muddle();
        }
    }

    /// An exclusive producer was let in with this topic epoch. `held`: it came with that one. `before`: the highest that anyone
    /// had been told when it came.
    ///
    /// # Panics
    /// When a client had been told a higher one by then, or another client the same.
    pub fn epoch_granted(
        &mut self,
        name: &str,
        ticket: Ticket,
        epoch: u64,
        held: Option<u64>,
        before: Option<u64>,
    ) {
        if !self.is_current(ticket) {
            return;
        }
        if let Some(before) = before {
            assert!(
                epoch > before || (epoch == before && held == Some(before)),
                "{name}: epoch {epoch} is given out (held {held:?}) after {before} was"
            );
        }
        self.epoch = self.epoch.max(Some(epoch));
    }

    /// A message came to a consumer.
    ///
    /// # Panics
    /// When it must not.
    pub fn delivered(&mut self, subscription: &str, cursor: &str, message: u64, position: Position) {
        self.is_at(message, position);
        let known = self.subscriptions.get(subscription);
        let need = known
            .and_then(|known| known.cursors.get(cursor))
            .and_then(|cursor| cursor.needs.get(&message));
        assert!(
            need != Some(&Need::Never) || self.deleting,
            "{subscription} {cursor:?} gets message {message} at {position} again"
        );
    }

    /// The topic was looked at: it is there or not, with these subscriptions.
    ///
    /// # Panics
    /// When that contradicts an answer.
    pub fn seen(&mut self, name: &str, is_there: bool, subscriptions: &[String], message_last: u64) {
        assert!(
            self.fact.allows(is_there) || (self.deleting && !is_there),
            "{name}: is it there? {is_there}; answered was {:?}",
            self.fact
        );
        if std::mem::take(&mut self.is_muddled) {
            self.muddle();
        }
        self.deleting = false;
        self.fact = is_there.into();
        for subscription in self.subscriptions.values_mut() {
            // A deletion that was not answered may have happened, and after it the request that makes the subscription anew.
            if subscription.deleting && subscription.was_asked_for {
                subscription.muddle();
            }
            (subscription.askers, subscription.was_asked_for) = (0, false);
        }
        if !is_there {
            return self.forget(message_last);
        }
        for found in subscriptions {
            let known = self.subscriptions.get(found).map_or(Fact::No, |known| known.fact);
            assert!(
                known != Fact::No,
                "{name}: subscription {found} was never made, or deleted"
            );
        }
        self.subscriptions.retain(|known, subscription| {
            let found = subscriptions.contains(known);
            assert!(
                subscription.fact.allows(found),
                "{name}: is subscription {known} there? {found}; answered was {:?}",
                subscription.fact
            );
            subscription.fact = found.into();
            subscription.deleting = false;
            found
        });
    }

    /// A cursor was looked at: from its beginning all that comes has come, in this order.
    ///
    /// # Panics
    /// When that contradicts an answer.
    pub fn cursor_seen(
        &mut self,
        name: &str,
        subscription: &str,
        cursor: &str,
        came: &[u64],
        message_last: u64,
    ) {
        let found = self.subscriptions.get_mut(subscription);
        let known = found.expect("a subscription of the model").cursor(cursor);
        let missing: Vec<_> = known
            .musts(&self.positions)
            .into_iter()
            .filter(|(_, message)| !came.contains(message))
            .collect();
        if let Some((position, message)) = missing.first() {
            let whole = format!("{name}, {subscription} {cursor:?}: message {message} at {position}");
            assert!(
                self.lost_its_end,
                "{whole} is lost; came {came:?}, missing {missing:?}"
            );
            let later = came.iter().find(|came| self.positions.get(came) > Some(position));
            assert!(
                later.is_none(),
                "{whole} is lost, and {later:?} behind it is there; came {came:?}, missing {missing:?}"
            );
        }
        let known_places = self.positions.keys().copied();
        for message in known_places {
            known.needs.entry(message).or_insert(Need::Never);
        }
        known.seen(came, message_last);
        if self.ttl_ms.is_some() {
            // What expired went a moment ago, and may come again after a crash.
            known.forgive();
        }
    }

    /// All cursors were looked at.
    pub fn looked_at(&mut self) {
        self.unanswered.clear();
        self.lost_its_end = false;
    }

    /// A life ended.
    pub fn crashed(&mut self, crash: Crash) {
        let weak = match crash {
            Crash::AfterStop => false,
            Crash::Process => self.strength == Strength::Bypass,
            Crash::Machine => self.strength != Strength::Sync,
        };
        if !weak {
            return;
        }
        self.lost_its_end = true;
        let cursors = self
            .subscriptions
            .values_mut()
            .flat_map(|s| s.cursors.values_mut());
        // Positions of cursors are no more durable than messages.
        cursors.for_each(super::subscription::Cursor::forgive);
    }
}
