//! Acknowledgements in transactions: durable before they are answered, real once their transaction is committed.
//!
//! Each request is a note in the cursor log. At a commit the cursor moves first and the notes go after it, in one commit; a crash between
//! the two finds the notes again, and what is acknowledged twice is acknowledged. A stream consumer's cursor is not at home: it
//! is told, and asked until it knows.

use std::collections::HashMap;
use std::time::Duration;

use pharos_feed::ids::ConsumerKey;
use pharos_feed::{OwnedAck, Withheld};
use pharos_managed_ledger::Lookup;
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::{CursorLog, Record};
use pharos_mesh::FeedMessage;
use pharos_requests::error::{TopicError, TxnAckError};
use pharos_transactions::{AckIn, PendingAcks, PendingStats, Plain, keys};
use pharos_types::{Ordinal, SubscriptionName, TxnId, TxnOutcome};

use super::kind::Acks;
use super::subscription::{Body, HandedOver, Subscription};
use super::transactions::TransactingTopic;
use super::{Attached, Stored, TopicContext};

/// Words of a set of a batch's messages that a transaction may acknowledge in part: a set so long is taken everywhere.
const WORDS_MAX: usize = 16;
/// Maximum number of times that a stream consumer is asked if it knows of a commit, and the interval between.
const ASKS_MAX: u32 = 100;
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Pending acknowledgements, by the subscription's number in the cursor log.
pub(super) type PendingBySubscription = HashMap<u32, Box<PendingAcks>>;

/// Acknowledgements of one request in a transaction.
pub struct TxnAcks {
    /// Transaction of the request.
    pub txn: TxnId,
    /// Acknowledgements, each with the number of messages in its batch; 0 if not given.
    pub acks: Vec<(OwnedAck, u32)>,
    /// Everything up to it.
    pub cumulative: bool,
}

/// Reads the pending acknowledgements from the notes of the cursor log.
pub(super) fn read(cursors: &CursorLog) -> Result<PendingBySubscription, TopicError> {
    let mut all = PendingBySubscription::new();
    for (key, value) in cursors.notes(keys::PENDING) {
        let (acks, is_cumulative) =
            AckIn::decode_all(value).map_err(|error| TopicError::Storage(error.to_string()))?;
        let (number, txn, sequence) = keys::parse_pending(key)
            .ok_or_else(|| TopicError::Storage("malformed key of a pending acknowledgement".to_owned()))?;
        let pending = all.entry(number).or_default();
        pending.restore_sequence(sequence);
        for ack in &acks {
            pending.restore(txn, ack, is_cumulative);
        }
    }
    Ok(all)
}

/// A cursor's state, as acknowledgements in transactions see it.
struct PlainAcks<'a>(&'a AckState);

impl Plain for PlainAcks<'_> {
    fn is_acked(&self, ordinal: Ordinal) -> bool {
        self.0.is_acked(ordinal)
    }

    fn remaining(&self, ordinal: Ordinal) -> Option<&[i64]> {
        self.0.remaining_batch(ordinal)
    }
}

impl Subscription {
    /// Entries withheld from delivery because transactions have acknowledged them.
    pub(super) fn withheld(&self) -> Option<Box<Withheld>> {
        let pending = self.pending_acks.as_ref().filter(|pending| !pending.is_empty())?;
        let (before, entries) = pending.withheld();
        let entries = entries.into_iter().collect();
        Some(Box::new(Withheld { before, entries }))
    }

    fn handed_over(&self) -> Option<HandedOver> {
        match &self.body {
            Body::Stream(cursor) => cursor.handed_over(),
            Body::Broadcast(_) | Body::Dispatched(_) => None,
        }
    }
}

impl Attached {
    /// Acknowledges in a transaction. `known`: what a stream consumer that has the cursor acknowledged.
    fn ack_in_transaction(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        known: Option<&AckState>,
        request: &TxnAcks,
    ) -> Result<(), TxnAckError> {
        let of = (cx.name.clone(), name.clone());
        if !cx.shard.shared.coordinators.may_acknowledge(request.txn, &of) {
            return Err(TxnAckError::NotFound(request.txn));
        }
        let subscription = self.subscriptions.get_mut(name).ok_or(TxnAckError::NoConsumer)?;
        let not_allowed = |text: &str| Err(TxnAckError::NotAllowed(text.to_owned()));
        let Some(number) = subscription.number else {
            return not_allowed("only durable subscriptions acknowledge in transactions");
        };
        let acks = wanted(stored, request)?;
        let plain = match &subscription.body {
            Body::Broadcast(_) => {
                return not_allowed("broadcast subscriptions do not acknowledge in transactions");
            }
            Body::Dispatched(_) if request.cumulative => {
                return not_allowed("a shared subscription does not acknowledge cumulatively");
            }
            Body::Dispatched(body) => Some(body.dispatcher.acks()),
            Body::Stream(cursor) => cursor.home().or(known),
        };
        let plain = plain.ok_or_else(|| TxnAckError::Topic(TopicError::Closing(cx.name.to_string())))?;
        let pending = subscription.pending_acks.get_or_insert_default();
        let taken = match (request.cumulative, &*acks) {
            (false, acks) => pending.ack(request.txn, acks, &PlainAcks(plain)),
            (true, [ack]) => pending.ack_cumulative(request.txn, ack, &PlainAcks(plain)),
            (true, _) => return not_allowed("a cumulative acknowledgement is of one message"),
        };
        taken.map_err(|conflict| TxnAckError::Conflict(conflict.to_string()))?;
        let key = keys::pending(number, request.txn, pending.next_sequence());
        let value = AckIn::encode_all(&acks, request.cumulative);
        stored.change_cursors(cx, |cursors| cursors.queue(Record::Noted { key, value }));
        let before = pending.withheld_before();
        let whole = acks
            .iter()
            .filter(|ack| ack.parts.is_whole() && !request.cumulative);
        let entries: Vec<Ordinal> = whole.map(|ack| ack.ordinal).collect();
        if let Some(HandedOver {
            connection,
            key,
            feed,
            ..
        }) = subscription.handed_over()
        {
            let message = FeedMessage::Withhold {
                connection,
                key,
                before,
                entries,
            };
            cx.send_feed(feed, connection.shard, message);
        } else if let Body::Dispatched(body) = &mut subscription.body {
            body.dispatcher.withhold(&entries);
            self.run_dispatcher(cx, stored, name);
        }
        Ok(())
    }

    /// Acknowledges what was committed, where the cursor is. Answers with who must confirm it.
    fn commit_acks(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        pending: &(Vec<AckIn>, Option<AckIn>),
    ) -> Option<HandedOver> {
        let subscription = self.subscriptions.get_mut(name)?;
        let ledger = &stored.log.ledger;
        let owned = |ack: &AckIn| {
            Some(OwnedAck {
                position: ledger.position_of(ack.ordinal)?,
                remaining: ack.remaining(),
            })
        };
        let (one_by_one, upto) = pending;
        let rounds = [
            (one_by_one.iter().filter_map(owned).collect::<Vec<_>>(), false),
            (upto.iter().filter_map(owned).collect(), true),
        ];
        let (table, end) = (ledger.table(), ledger.durable_end());
        for (acks, cumulative) in rounds.iter().filter(|(acks, _)| !acks.is_empty()) {
            let acks = Acks {
                acks,
                cumulative: *cumulative,
                table: table.clone(),
                end,
            };
            if let Some((slot, acks)) = subscription.body.ack(cx, &acks).moved {
                stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
            }
        }
        let handed_over = subscription.handed_over();
        self.flush_dispatched(cx, stored, name);
        handed_over
    }

    /// A transaction has ended in a subscription.
    fn forget_pending(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        txn: TxnId,
        outcome: TxnOutcome,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        let (Some(pending), Some(number)) = (&mut subscription.pending_acks, subscription.number) else {
            return;
        };
        let (acks, upto) = pending.of(txn);
        pending.end(txn);
        let prefix = keys::pending_of(number, txn);
        stored.change_cursors(cx, |cursors| cursors.queue(Record::NotesRemoved { prefix }));
        let withheld = subscription.withheld();
        let is_aborted = outcome == TxnOutcome::Aborted;
        if let Some(HandedOver {
            connection,
            key,
            feed,
            ..
        }) = subscription.handed_over()
        {
            let lowest = acks.first().map(|ack| ack.ordinal);
            let again = match upto {
                // Everything before it comes again that is not acknowledged.
                Some(_) => Some(Ordinal(0)),
                None => lowest,
            };
            let message = FeedMessage::Release {
                connection,
                key,
                withheld,
                again: again.filter(|_| is_aborted),
            };
            cx.send_feed(feed, connection.shard, message);
        } else if let Body::Dispatched(body) = &mut subscription.body {
            if is_aborted {
                let ordinals: Vec<Ordinal> = acks.iter().map(|ack| ack.ordinal).collect();
                body.dispatcher.release_withheld(&ordinals);
            }
            self.run_dispatcher(cx, stored, name);
        }
    }

    /// Transactions that have acknowledged something.
    pub(super) fn pending_transactions(&self) -> Vec<TxnId> {
        let pending = self
            .subscriptions
            .values()
            .filter_map(|found| found.pending_acks.as_ref());
        pending.flat_map(|pending| pending.transactions()).collect()
    }

    /// Subscriptions with acknowledgements of a transaction.
    pub(super) fn subscriptions_of(&self, txn: TxnId) -> Vec<SubscriptionName> {
        let has = |found: &Subscription| found.pending_acks.as_ref().is_some_and(|acks| acks.has(txn));
        let all = self.subscriptions.values();
        let mut names: Vec<_> = all
            .filter(|found| has(found))
            .map(|found| found.name.clone())
            .collect();
        names.sort_unstable();
        names
    }
}

/// The entries of a request, which must be there.
fn wanted(stored: &Stored, request: &TxnAcks) -> Result<Vec<AckIn>, TxnAckError> {
    let (table, end) = (stored.log.ledger.table(), stored.log.readable_end());
    let one = |(ack, batch_size): &(OwnedAck, u32)| {
        let Lookup::Exact(ordinal) = table.ordinal_of(ack.position, end) else {
            let text = format!("there is no message at {}", ack.position);
            return Err(TxnAckError::NotAllowed(text));
        };
        if ack.remaining.len() > WORDS_MAX {
            let text = format!(
                "a transaction does not acknowledge parts of a batch of more than {} messages",
                WORDS_MAX * 64
            );
            return Err(TxnAckError::NotAllowed(text));
        }
        Ok(match ack.remaining.is_empty() {
            true => AckIn::whole(ordinal),
            false => AckIn::of_wire(ordinal, &ack.remaining, *batch_size),
        })
    };
    request.acks.iter().map(one).collect()
}

/// True if a cursor has all of these acknowledgements.
fn is_in(acks: &AckState, (one_by_one, upto): &(Vec<AckIn>, Option<AckIn>)) -> bool {
    let known = PlainAcks(acks);
    let upto_is_in = |ack: &AckIn| ack.is_in(&known) && acks.acked_to() >= ack.ordinal;
    one_by_one.iter().all(|ack| ack.is_in(&known)) && upto.iter().all(upto_is_in)
}

impl TransactingTopic<'_> {
    /// Acknowledges in a transaction; durable when this returns.
    ///
    /// # Errors
    /// [`TxnAckError`]; of what is acknowledged in the request nothing counts, unless it is `Storage`: then it is unknown.
    pub async fn ack_in_transaction(&self, key: ConsumerKey, request: TxnAcks) -> Result<(), TxnAckError> {
        self.check_transactions().map_err(TxnAckError::NotAllowed)?;
        let name = self.0.subscription_of(key).ok_or(TxnAckError::NoConsumer)?;
        let handed_over = {
            let state = self.0.state.borrow();
            state
                .attached
                .subscriptions
                .get(&name)
                .and_then(|found| found.handed_over())
        };
        let known = match handed_over {
            Some(handed_over) => self.0.cx.stream_consumer_acks(handed_over).await,
            None => None,
        };
        self.0.with_attached(|attached, cx, stored| {
            attached.ack_in_transaction(cx, stored, &name, known.as_ref(), &request)
        })?;
        self.0.commit_cursors().await.map_err(TxnAckError::Storage)
    }

    /// A transaction ends in a subscription; durable when this returns. One that acknowledged nothing there, or nothing any more, has
    /// ended.
    ///
    /// # Errors
    /// The storage's reason, or that the consumer did not confirm it; to be tried again.
    pub(crate) async fn end_acks(
        &self,
        name: &SubscriptionName,
        txn: TxnId,
        outcome: TxnOutcome,
    ) -> Result<(), String> {
        let pending = {
            let state = self.0.state.borrow();
            let found = state.attached.subscriptions.get(name);
            let pending = found.and_then(|found| found.pending_acks.as_ref());
            pending
                .filter(|pending| pending.has(txn))
                .map(|pending| pending.of(txn))
        };
        if let Some(pending) = pending {
            if outcome == TxnOutcome::Committed {
                self.settle_pending(name, &pending).await?;
            }
            self.0.with_attached(|attached, cx, stored| {
                attached.forget_pending(cx, stored, name, txn, outcome)
            });
        }
        self.0.commit_cursors().await
    }

    async fn settle_pending(
        &self,
        name: &SubscriptionName,
        pending: &(Vec<AckIn>, Option<AckIn>),
    ) -> Result<(), String> {
        for _ in 0..ASKS_MAX {
            let holder = self
                .0
                .with_attached(|attached, cx, stored| attached.commit_acks(cx, stored, name, pending));
            let Some(holder) = holder else {
                return Ok(());
            };
            let acks = self.0.cx.stream_consumer_acks(holder).await;
            if acks.is_some_and(|acks| is_in(&acks, pending)) {
                self.0.cx.hear_from(holder.connection.shard, holder.feed).await;
                return Ok(());
            }
            // It is leaving, or has not come yet.
            tokio::time::sleep(ASK_INTERVAL).await;
        }
        Err("the consumer did not confirm what was committed".to_owned())
    }

    /// Numbers of what is pending in a subscription, and in which transactions; `None`: there is no such subscription.
    pub(crate) fn pending_figures(&self, name: &SubscriptionName) -> Option<(PendingStats, Vec<TxnId>)> {
        let state = self.0.state.borrow();
        let found = state.attached.subscriptions.get(name)?;
        let pending = found.pending_acks.as_ref();
        Some(pending.map_or_else(Default::default, |pending| {
            (pending.stats(), pending.transactions())
        }))
    }
}
