//! A topic in the hands of work on its home shard.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_catalog::CarrierMoveKind;
use pharos_feed::entry::FeedEntry;
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{OffloadAskError, OffloadStatus};
use pharos_requests::error::CursorError;
use pharos_runtime::clock;
use pharos_transactions::PendingStats;
use pharos_types::{Ordinal, Position, SubscriptionName, TxnId, TxnOutcome};

use super::compaction::Compacting;
use super::expiry::Expiring;
use super::manage::backlog_entry;
use super::replication::Replicating;
use super::seek::Moving;
use super::{
    CompactionAskError, CompactionStatus, Dealing, DurableSubscription, LastMessage, SeekTo, StartAt, Topic,
    TopicFigures, TransactingTopic, TransactionFigures, Wanted,
};

/// Name of the topic compaction cursor in Pulsar.
const COMPACTION_CURSOR: &str = "__compaction";

/// A loaded topic, on its home shard, beyond what clients can do with it. Not for keeping: a topic that is unloaded meanwhile is not
/// the one of its name any more.
///
/// Where not said otherwise: a change is durable, and stream consumers have heard of it, when its call returns. A call on a
/// non-persistent topic that needs what is stored finds nothing; refuse it before.
#[derive(Clone)]
pub struct TopicHandle(Rc<Topic>);

impl TopicHandle {
    /// Handle of a topic whose home is this shard.
    #[must_use]
    pub fn new(topic: Rc<Topic>) -> Self {
        Self(topic)
    }

    /// Its numbers. What stream consumers know better is not in them: `Broker::stream_consumers`.
    #[must_use]
    pub fn figures(&self, wanted: Wanted) -> TopicFigures {
        self.0.state.borrow().figures(&self.0.cx, wanted)
    }

    // ---- the log -----------------------------------------------------------------------------------------------

    /// The first entry that is kept.
    #[must_use]
    pub fn first(&self) -> Ordinal {
        self.0.state.borrow().stored.log.start_of(StartAt::Earliest)
    }

    /// The durable end, exclusive.
    #[must_use]
    pub fn end(&self) -> Ordinal {
        self.0.durable_end()
    }

    /// The entry at a position, or the next one that there is; [`end`](Self::end) when there is none.
    #[must_use]
    pub fn at_or_after(&self, position: Position) -> Ordinal {
        let found = self.0.state.borrow().stored.log.ledger.ordinal_of(position);
        found.at_or_after(self.end())
    }

    /// The entry after a position; [`end`](Self::end) when there is none.
    #[must_use]
    pub fn after(&self, position: Position) -> Ordinal {
        let found = self.0.state.borrow().stored.log.ledger.ordinal_of(position);
        found.after(self.end())
    }

    /// The position of an entry; `None` at the end.
    #[must_use]
    pub fn position_of(&self, entry: Ordinal) -> Option<Position> {
        self.0.state.borrow().stored.log.ledger.position_of(entry)
    }

    /// Start position for a subscription that begins at this entry.
    #[must_use]
    pub fn start_at(&self, entry: Ordinal) -> StartAt {
        self.position_of(entry).map_or(StartAt::Latest, StartAt::At)
    }

    /// The entry at a place; `None` at the end and where it cannot be read any more.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn entry_at(&self, place: Ordinal) -> Result<Option<Arc<FeedEntry>>, CursorError> {
        self.0.reads().entry_at(place).await
    }

    /// Looks at the entries of `from..end` in order until `look` says stop. Returns whether it reached the end.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn scan(
        &self,
        from: Ordinal,
        end: Ordinal,
        look: impl FnMut(&FeedEntry) -> bool,
    ) -> Result<bool, CursorError> {
        self.0.reads().scan(from, end, look).await
    }

    /// The first entry published at or after a time in milliseconds since 1970; [`end`](Self::end) when there is none.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn find_by_time(&self, time_ms: u64) -> Result<Ordinal, CursorError> {
        self.0.reads().find_by_time(time_ms).await
    }

    /// The last message that a consumer can get.
    ///
    /// # Errors
    /// `NotAllowed` where nothing is stored; `Storage`.
    pub async fn last_message(&self) -> Result<LastMessage, CursorError> {
        self.0.last_message(None, None).await
    }

    /// True if the topic is a shadow: it shows the messages of another topic and stores none of its own.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.0.state.borrow().stored.log.ledger.is_shadow()
    }

    /// Refuses appends from now on; says the last position.
    ///
    /// # Errors
    /// Why that could not be made durable.
    pub async fn terminate(&self) -> Result<Option<Position>, String> {
        self.0.terminate().await
    }

    /// Gives up closed ledgers that no cursor needs and that retention does not keep. Does not wait for it.
    pub fn trim(&self) {
        self.0.state.borrow_mut().stored.trim_now(&self.0.cx);
    }

    /// Moves every subscription to the end and gives up closed ledgers, the current one included as soon as another took its place.
    ///
    /// # Errors
    /// [`CursorError`].
    pub async fn truncate(&self) -> Result<(), CursorError> {
        let end = self.end();
        Moving(&self.0).truncate().await?;
        Dealing(&self.0).move_all_others(CarrierMoveKind::Past, end).await
    }

    /// Begins to offload the closed ledgers before a place; does not wait for it.
    ///
    /// # Errors
    /// [`OffloadAskError`].
    pub fn ask_offload(&self, before: Position) -> Result<(), OffloadAskError> {
        self.0.catch_up_policies();
        self.0.state.borrow_mut().stored.ask_offload(&self.0.cx, before)
    }

    /// Status of offloading.
    #[must_use]
    pub fn offload_status(&self) -> OffloadStatus {
        self.0.state.borrow().stored.log.ledger.offloads().status()
    }

    /// Begins to compact the topic; does not wait for it.
    ///
    /// # Errors
    /// [`CompactionAskError`].
    pub fn compact(&self) -> Result<(), CompactionAskError> {
        Compacting(&self.0).compact()
    }

    /// Status of compaction.
    #[must_use]
    pub fn compaction_status(&self) -> CompactionStatus {
        self.0.state.borrow().stored.compaction.status.clone()
    }

    /// Appends a message of the broker's own, reads it back, and gives up what the topic kept of earlier ones.
    ///
    /// # Errors
    /// What went wrong, or that it took longer than `timeout`.
    pub async fn round_trip(&self, producer: &str, text: &str, timeout: Duration) -> Result<(), String> {
        let topic = &self.0;
        let sent: bytes::Bytes = topic
            .cx
            .codec
            .encode_own(producer, clock::wall_ms(), text.as_bytes())
            .into();
        let round = async {
            let ordinal = topic.append_own(sent.clone()).await?;
            let back = topic
                .reads()
                .entry_at(ordinal)
                .await
                .map_err(|error| error.to_string())?;
            match back {
                Some(entry) if entry.payload == sent => Ok(()),
                _ => Err("the message did not come back as it was sent".to_owned()),
            }
        };
        let outcome = tokio::time::timeout(timeout, round).await;
        topic.state.borrow_mut().stored.discard(&topic.cx);
        outcome.unwrap_or_else(|_| Err(format!("no message went through in {timeout:?}")))
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    /// Checks that the topic, or its subscriptions, may take part in transactions.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_transactions(&self) -> Result<(), String> {
        TransactingTopic(&self.0).check_transactions()
    }

    /// True if the topic has messages of transactions.
    #[must_use]
    pub fn had_transactions(&self) -> bool {
        TransactingTopic(&self.0).had_transactions()
    }

    /// From now on it takes messages in transactions.
    ///
    /// # Errors
    /// Why that could not be stored.
    pub async fn begin_transactions(&self) -> Result<(), String> {
        TransactingTopic(&self.0).begin_transactions().await
    }

    /// Ends a transaction for its messages. Done already is fine.
    ///
    /// # Errors
    /// Why that could not be stored; to be tried again.
    pub async fn end_transaction(&self, txn: TxnId, outcome: TxnOutcome) -> Result<(), String> {
        TransactingTopic(&self.0).end_transaction(txn, outcome).await
    }

    /// Ends a transaction for a subscription's acknowledgements. Done already, and a subscription that is gone, are fine.
    ///
    /// # Errors
    /// Why that could not be stored; to be tried again.
    pub async fn end_acks(
        &self,
        name: &SubscriptionName,
        txn: TxnId,
        outcome: TxnOutcome,
    ) -> Result<(), String> {
        TransactingTopic(&self.0).end_acks(name, txn, outcome).await
    }

    /// Numbers of its transactions.
    #[must_use]
    pub fn transaction_figures(&self) -> TransactionFigures {
        TransactingTopic(&self.0).transaction_figures()
    }

    /// Numbers of what transactions have acknowledged in a subscription, and which they are; `None`: there is none of that name.
    #[must_use]
    pub fn pending_figures(&self, name: &SubscriptionName) -> Option<(PendingStats, Vec<TxnId>)> {
        TransactingTopic(&self.0).pending_figures(name)
    }

    // ---- subscriptions -----------------------------------------------------------------------------------------

    /// The durable subscriptions.
    #[must_use]
    pub fn durable_subscriptions(&self) -> Vec<DurableSubscription> {
        self.0.state.borrow().attached.durable_subscriptions()
    }

    /// Creates a durable subscription.
    ///
    /// # Errors
    /// `Exists`, `NotAllowed`, `Storage`; then it is not there.
    pub async fn create_subscription(
        &self,
        name: SubscriptionName,
        start: StartAt,
        broadcast: bool,
        properties: &[(String, String)],
        is_replicated: bool,
    ) -> Result<(), CursorError> {
        self.0
            .create_subscription_at(name, start, broadcast, properties, is_replicated)
            .await
    }

    /// Deletes a subscription; with `force` its consumers are closed first. By the name that the cursor of topic compaction has in
    /// Pulsar, what was compacted is given up.
    ///
    /// # Errors
    /// `NoSubscription`; `Busy` with consumers and without `force`; `Storage`.
    pub async fn delete_subscription(&self, name: &SubscriptionName, force: bool) -> Result<(), CursorError> {
        if name.as_str() == COMPACTION_CURSOR {
            return Compacting(&self.0).forget_compacted().await;
        }
        self.0.delete_subscription(name, force).await
    }

    /// Acknowledgements of a subscription; of a broadcast one, those of its slowest cursor.
    ///
    /// # Errors
    /// `NoSubscription`.
    pub async fn acks_of(&self, name: &SubscriptionName) -> Result<AckState, CursorError> {
        self.0.acks_of(name).await
    }

    /// The `nth` entry, from 1, that a subscription has not acknowledged.
    ///
    /// # Errors
    /// `NoSubscription`.
    pub async fn backlog_entry(&self, name: &SubscriptionName, nth: u64) -> Result<Ordinal, CursorError> {
        Ok(backlog_entry(&self.0.acks_of(name).await?, nth))
    }

    /// Moves a subscription, after closing its consumers; they come back by themselves.
    ///
    /// # Errors
    /// [`CursorError`].
    pub async fn reset(&self, name: &SubscriptionName, to: SeekTo) -> Result<(), CursorError> {
        let dealing = Dealing(&self.0);
        if !dealing.is_carried(name) {
            return Moving(&self.0).reset(name, to).await;
        }
        let place = self.0.reads().place_of(&to).await?;
        Moving(&self.0).reset(name, to).await?;
        dealing.move_others(name, CarrierMoveKind::Reset, place).await
    }

    /// Leaves everything before `to`, or the whole backlog, to a replicator: it is not sent. `None`: no replicator's cursor has this name.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn skip_replication(
        &self,
        cursor: &SubscriptionName,
        to: Option<Ordinal>,
    ) -> Option<Result<u64, CursorError>> {
        Replicating(&self.0).skip_to(cursor.as_str(), to).await
    }

    /// Acknowledges the next `count` entries of a backlog.
    ///
    /// # Errors
    /// [`CursorError`].
    pub async fn skip(&self, name: &SubscriptionName, count: u64) -> Result<(), CursorError> {
        Dealing(&self.0).check_whole(name)?;
        Moving(&self.0).skip(name, count).await
    }

    /// Acknowledges a whole backlog.
    ///
    /// # Errors
    /// [`CursorError`].
    pub async fn skip_all(&self, name: &SubscriptionName) -> Result<(), CursorError> {
        let end = self.end();
        Moving(&self.0).skip_settled(name, end).await?;
        Dealing(&self.0)
            .move_others(name, CarrierMoveKind::Past, end)
            .await
    }

    /// Expires everything before a place.
    ///
    /// # Errors
    /// [`CursorError`].
    pub async fn expire_to(&self, name: &SubscriptionName, to: Ordinal) -> Result<(), CursorError> {
        Expiring(&self.0).expire_to(name, to).await?;
        self.0.settle().await?;
        Dealing(&self.0)
            .move_others(name, CarrierMoveKind::Past, to)
            .await
    }

    /// Properties of a subscription.
    ///
    /// # Errors
    /// `NoSubscription`.
    pub fn subscription_properties(
        &self,
        name: &SubscriptionName,
    ) -> Result<Vec<(String, String)>, CursorError> {
        self.0.state.borrow().attached.subscription_properties(name)
    }

    /// Replaces the properties of a subscription.
    ///
    /// # Errors
    /// `NoSubscription`, `NotAllowed`, `Storage`.
    pub async fn set_subscription_properties(
        &self,
        name: &SubscriptionName,
        properties: Vec<(String, String)>,
    ) -> Result<(), CursorError> {
        self.0.set_subscription_properties(name, properties).await
    }

    /// True if the subscription's position is replicated to other clusters.
    ///
    /// # Errors
    /// `NoSubscription`.
    pub fn is_subscription_replicated(&self, name: &SubscriptionName) -> Result<bool, CursorError> {
        self.0.is_subscription_replicated(name)
    }

    /// Says whether other clusters are told how far a subscription is; durable when it resolves.
    ///
    /// # Errors
    /// `NoSubscription`, `NotAllowed`, `Storage`.
    pub async fn set_subscription_replicated(
        &self,
        name: &SubscriptionName,
        is_replicated: bool,
    ) -> Result<(), CursorError> {
        self.0.set_subscription_replicated(name, is_replicated).await
    }
}
