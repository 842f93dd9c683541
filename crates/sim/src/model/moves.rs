//! Effect of acknowledgements, skips and seeks on the messages that must come.

use pharos_types::Position;

use super::{Need, Ticket, Topic};

/// A change of a subscription's place that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The next so many entries of the backlog are acknowledged.
    Skip(usize),
    /// The whole backlog is.
    SkipAll,
    /// To the first entry there is.
    Earliest,
    /// After the last.
    Latest,
    /// To this entry.
    To(Position),
}

impl Topic {
    /// Messages were acknowledged by a consumer.
    pub fn acknowledged(
        &mut self,
        subscription: &str,
        cursor: &str,
        messages: impl Iterator<Item = u64>,
        is_certain: bool,
    ) {
        let Some(known) = self.subscriptions.get_mut(subscription) else {
            return;
        };
        let known = known.cursor(cursor);
        let is_certain = is_certain && !known.moving;
        for message in messages {
            known.acknowledge(message, is_certain);
            if known.moving {
                // A skip that comes after it skips one more.
                let next = known.musts(&self.positions).first().copied();
                if let Some((_, next)) = next {
                    known.needs.insert(next, Need::May);
                }
            }
        }
    }

    /// All up to this place was.
    pub fn acknowledged_to(&mut self, subscription: &str, cursor: &str, to: Position, is_certain: bool) {
        let before = self.positions.iter().filter(|(_, position)| **position <= to);
        let before: Vec<u64> = before.map(|(message, _)| *message).collect();
        self.acknowledged(subscription, cursor, before.into_iter(), is_certain);
    }

    /// An answer is awaited that says that acknowledgements are durable. Returns what to show with it.
    pub fn acknowledgement_begins(&mut self, subscription: &str, cursor: &str) -> (Ticket, Option<u64>) {
        let known = self.subscriptions.get(subscription);
        let known = known
            .filter(|known| !known.deleting)
            .and_then(|known| known.cursors.get(cursor));
        let moves = known.filter(|cursor| !cursor.moving).map(|cursor| cursor.moves);
        (self.begins(), moves)
    }

    /// Records an answered acknowledgement: these messages never come again.
    pub fn acknowledgement_done(
        &mut self,
        subscription: &str,
        cursor: &str,
        messages: &[u64],
        proof: (Ticket, Option<u64>),
    ) {
        let is_current = self.is_current(proof.0);
        let known = self.subscriptions.get_mut(subscription);
        let Some(known) = known.and_then(|known| known.cursors.get_mut(cursor)) else {
            return;
        };
        if is_current && proof.1 == Some(known.moves) {
            known.acknowledged.retain(|message| !messages.contains(message));
            for message in messages {
                known.needs.insert(*message, Need::Never);
            }
        }
    }

    /// Everything had time to become durable, and nothing went wrong.
    pub fn settle(&mut self) {
        for subscription in self.subscriptions.values_mut() {
            let cursors = subscription.cursors.values_mut();
            cursors
                .filter(|cursor| !cursor.moving)
                .for_each(|cursor| cursor.settle());
        }
    }

    /// Handles the closing of the topic, or the move of a cursor: acknowledgements that are not durable yet may be
    /// lost.
    pub fn disturb(&mut self) {
        for subscription in self.subscriptions.values_mut() {
            for cursor in subscription.cursors.values_mut() {
                cursor.acknowledged.clear();
            }
        }
    }

    /// A move of all cursors of a subscription (or of one, of broadcast) was asked for. Returns what its answer will make certain.
    pub fn move_begins(
        &mut self,
        subscription: &str,
        only: Option<&str>,
        to: Move,
    ) -> Vec<(String, Vec<u64>)> {
        let is_all_known = self.is_all_known();
        // What expires meanwhile is not skipped, but something else.
        let is_constant = self.ttl_ms.is_none();
        let positions = &self.positions;
        let mut will_be_gone = Vec::new();
        let Some(known) = self.subscriptions.get_mut(subscription) else {
            return will_be_gone;
        };
        // One of which nothing is known yet moves all the same.
        if let Some(only) = only {
            known.cursor(only);
        }
        // A skip of some is counted from where the slowest of broadcast stands, one that comes in just now among them.
        let is_alone = known.cursors.len() == 1 && known.names.len() <= 1 && is_constant;
        known.was_joined = false;
        let cursors = known.cursors.iter_mut();
        for (name, cursor) in cursors.filter(|(name, _)| only.is_none_or(|only| only == name.as_str())) {
            cursor.moving = true;
            cursor.moves += 1;
            // What is acknowledged and not certain may or may not be part of the backlog that is skipped.
            let is_certain = |message| matches!(cursor.needs.get(message), Some(Need::Must | Need::Never));
            let is_clear = is_all_known && positions.keys().all(is_certain);
            cursor.acknowledged.clear();
            let musts = cursor.musts(positions);
            let gone: Vec<u64> = match to {
                // Every consumer goes to where the slowest gets, whatever it has acknowledged beyond it.
                Move::Skip(_) if !is_alone => musts.iter().map(|(_, message)| *message).collect(),
                Move::Skip(count) => musts.iter().take(count).map(|(_, message)| *message).collect(),
                Move::SkipAll | Move::Latest => musts.iter().map(|(_, message)| *message).collect(),
                Move::Earliest => Vec::new(),
                Move::To(to) => {
                    let before = musts.iter().filter(|(position, _)| *position < to);
                    before.map(|(_, message)| *message).collect()
                }
            };
            crate::tell(|| {
                format!(
                    "{subscription} {name:?} moves {to:?}, clear {is_clear}: {:?}",
                    cursor.needs
                )
            });
            for message in &gone {
                cursor.needs.insert(*message, Need::May);
            }
            if !matches!(to, Move::Skip(_) | Move::SkipAll) {
                // What was acknowledged may come again, as far as it is kept.
                cursor.forgive();
            }
            if (is_clear && is_alone) || !matches!(to, Move::Skip(_)) {
                will_be_gone.push((name.clone(), gone));
            }
        }
        will_be_gone
    }

    /// Records the answer to a move, with success if it is `done`.
    pub fn move_ends(
        &mut self,
        subscription: &str,
        (only, to): (Option<&str>, Move),
        gone: &[(String, Vec<u64>)],
        done: bool,
        ticket: Ticket,
        message_last: u64,
    ) {
        let is_current = self.is_current(ticket);
        let Some(known) = self.subscriptions.get_mut(subscription) else {
            return;
        };
        for (name, cursor) in &mut known.cursors {
            if only.is_some_and(|only| only != name.as_str()) {
                continue;
            }
            cursor.moving = false;
            cursor.moves += 1;
            cursor.since = cursor.since.map(|_| message_last);
            let is_foreseen = !(matches!(to, Move::Skip(_)) && known.was_joined && !name.is_empty());
            let gone = gone
                .iter()
                .find(|(of, _)| of == name && done && is_current && is_foreseen);
            for message in gone.into_iter().flat_map(|(_, gone)| gone) {
                cursor.needs.insert(*message, Need::Never);
            }
        }
    }
}
