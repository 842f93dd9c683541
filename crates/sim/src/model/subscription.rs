//! Messages that must be delivered to a subscription.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::Position;

use super::Fact;

/// Need to deliver a message to the next subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The message has a receipt, and the subscription has not acknowledged it.
    Must,
    /// The message may be delivered or not.
    May,
    /// The message was acknowledged, and that is durable; or it was seen to be gone.
    Never,
}

/// A durable subscription.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Existence of the subscription.
    pub fact: Fact,
    /// Cursors by name. Each consumer name of a broadcast subscription has its own cursor; other subscriptions have
    /// one, with an empty name.
    pub cursors: BTreeMap<String, Cursor>,
    /// A deletion was asked for and is not answered.
    pub deleting: bool,
    /// Requests under way that make it when it is not there.
    pub askers: usize,
    /// Such a request was under way at some time of a deletion.
    pub was_asked_for: bool,
    /// Such a request came since the last move began: of broadcast it may have made a cursor that is the slowest now.
    pub was_joined: bool,
    /// Names that consumers asked for it with: there may be a cursor of each, also where the answer was not heard.
    pub names: BTreeSet<String>,
}

/// A durable place, and what is to come from there.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// Messages with a higher number were sent after it was known to exist; `None` while that is open.
    pub since: Option<u64>,
    /// Need of each message. Messages that are not listed may be delivered.
    pub needs: BTreeMap<u64, Need>,
    /// Acknowledged, not yet known to be durable.
    pub acknowledged: Vec<u64>,
    /// Rises with every move: an answer to what was asked before one proves nothing.
    pub moves: u64,
    /// True while the cursor is being moved: a receipt that arrives now proves nothing.
    pub moving: bool,
}

impl Subscription {
    /// Returns a subscription that was requested.
    #[must_use]
    pub fn asked_for() -> Self {
        Self {
            fact: Fact::Either,
            cursors: BTreeMap::new(),
            deleting: false,
            askers: 0,
            was_asked_for: false,
            was_joined: false,
            names: BTreeSet::new(),
        }
    }

    /// The cursor of this name, made when it is new.
    pub fn cursor(&mut self, name: &str) -> &mut Cursor {
        self.cursors.entry(name.to_owned()).or_default()
    }

    /// Nothing is certain any more about what comes.
    pub fn muddle(&mut self) {
        for cursor in self.cursors.values_mut() {
            cursor.muddle();
        }
    }
}

impl Cursor {
    /// Nothing is certain any more.
    pub fn muddle(&mut self) {
        self.moves += 1;
        self.since = None;
        self.needs.clear();
        self.acknowledged.clear();
    }

    /// A message got its receipt.
    pub fn receipt(&mut self, message: u64) {
        if !self.moving && self.since.is_some_and(|since| message > since) {
            self.needs.entry(message).or_insert(Need::Must);
        }
    }

    /// Records an acknowledgement. `is_certain`: it is also on its way to storage.
    pub fn acknowledge(&mut self, message: u64, is_certain: bool) {
        if self.needs.get(&message) != Some(&Need::Never) {
            self.needs.insert(message, Need::May);
            if is_certain {
                self.acknowledged.push(message);
            }
        }
    }

    /// Records that the message need not be delivered any more.
    pub fn may_be_gone(&mut self, message: u64) {
        if let Some(need) = self.needs.get_mut(&message).filter(|need| **need == Need::Must) {
            *need = Need::May;
        }
    }

    /// Allows the delivery of messages that must not be delivered otherwise.
    pub fn forgive(&mut self) {
        for need in self.needs.values_mut().filter(|need| **need == Need::Never) {
            *need = Need::May;
        }
    }

    /// All acknowledgements so far are durable.
    pub fn settle(&mut self) {
        for message in self.acknowledged.drain(..) {
            self.needs.insert(message, Need::Never);
        }
    }

    /// Returns the messages that must be delivered, in the order of the log as far as that is known.
    #[must_use]
    pub fn musts(&self, positions: &BTreeMap<u64, Position>) -> Vec<(Position, u64)> {
        let musts = self.needs.iter().filter(|(_, need)| **need == Need::Must);
        let mut musts: Vec<_> = musts
            .filter_map(|(message, _)| Some((*positions.get(message)?, *message)))
            .collect();
        musts.sort_unstable();
        musts
    }

    /// A look saw all that comes: what came must come again, and nothing else ever will.
    ///
    /// `message_last`: what is sent later is not concerned.
    pub fn seen(&mut self, came: &[u64], message_last: u64) {
        self.acknowledged.clear();
        self.moving = false;
        self.since = Some(message_last);
        for need in self.needs.values_mut() {
            *need = Need::Never;
        }
        for message in came {
            self.needs.insert(*message, Need::Must);
        }
    }
}
