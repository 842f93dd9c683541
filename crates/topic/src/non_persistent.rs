//! Non-persistent topics: nothing is stored, a message goes to the consumers that can take it now and is dropped for the others.
//!
//! Such a topic is an ordinary [`Topic`](super::Topic) whose log is an empty one in memory, so that everything that asks a topic for
//! its state finds an answer; only publishing and attaching take another way. Every consumer is served from the home
//! shard, and a message has the id (0, 0). Acknowledgements mean nothing.
//!
//! What is handed out counts as unwritten as that of stored topics does; it cannot be read again, so while there is too much of
//! it messages are dropped, and a connection that takes nothing then is closed.
//!
//! Always true: a subscription of such a topic has a [`Sharing`] while it has consumers, and never hands its cursor over.

use std::collections::HashMap;
use std::sync::Arc;

use pharos_accounts::unwritten::Unwritten;
use pharos_dispatch::{self as dispatch, Dispatcher, EntryRef};
use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::{ConnectionId, ConsumerKey, ProducerKey};
use pharos_feed::{Moment, Sent};
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::{ConnectionEvent, Dispatched, Message, Publish, Receipt};
use pharos_requests::error::{PublishError, SubscribeError};
use pharos_runtime::clock;
use pharos_types::{Ordinal, Position};

use super::consumers::Consumer;
use super::dispatched::entry_ref;
use super::kind::{Attaches, Joined, Joining};
use super::publish::against_policies;
use super::subscription::Subscription;
use super::{Attached, State, Stored, SubscriptionType, TopicContext};

/// Options and limits of a dispatcher.
type Settings = (dispatch::Options, dispatch::Limits);

fn new_dispatcher(kind: SubscriptionType, (options, limits): Settings) -> Dispatcher {
    let acks = AckState::new(Ordinal(0));
    match kind {
        SubscriptionType::KeyShared => Dispatcher::key_shared(acks, options, limits),
        _ => Dispatcher::shared(acks, options, limits),
    }
}

/// The id that every message of a non-persistent topic has.
fn position() -> Position {
    Position::new(0, 0)
}

/// Distribution of messages by a subscription of a non-persistent topic. The dispatchers keep permits and windows;
/// they store no message.
pub(crate) enum Sharing {
    /// Exclusive, Failover, Broadcast: each consumer has permits of its own; of Failover only the active one is served.
    Each {
        dispatchers: HashMap<ConsumerKey, Dispatcher>,
        /// Consumer of a Failover subscription that was announced as the active one.
        active: Option<ConsumerKey>,
    },
    /// Shared, Key_Shared: one of many.
    OneOf(Box<Dispatcher>),
}

impl Sharing {
    /// Distribution without consumers.
    fn new(kind: SubscriptionType, settings: Settings) -> Self {
        match kind {
            SubscriptionType::Shared | SubscriptionType::KeyShared => {
                Self::OneOf(Box::new(new_dispatcher(kind, settings)))
            }
            SubscriptionType::Exclusive | SubscriptionType::Failover | SubscriptionType::Broadcast => {
                Self::Each {
                    dispatchers: HashMap::new(),
                    active: None,
                }
            }
        }
    }

    /// The dispatcher that knows of a consumer.
    fn of(&mut self, key: ConsumerKey) -> Option<&mut Dispatcher> {
        match self {
            Self::Each { dispatchers, .. } => dispatchers.get_mut(&key),
            Self::OneOf(dispatcher) => Some(dispatcher),
        }
    }

    /// Number of consumers that should get a message.
    fn wanted(&self, kind: Option<SubscriptionType>) -> usize {
        match self {
            Self::Each { dispatchers, .. } if kind != Some(SubscriptionType::Failover) => dispatchers.len(),
            Self::Each { .. } | Self::OneOf(_) => 1,
        }
    }

    /// Adds who gets the message to `takers`. Says how many should have got it and could not.
    fn choose(
        &mut self,
        kind: Option<SubscriptionType>,
        entry: &EntryRef,
        takers: &mut Vec<ConsumerKey>,
    ) -> usize {
        let wanted = self.wanted(kind);
        match self {
            Self::Each { dispatchers, active } if kind == Some(SubscriptionType::Failover) => {
                let taker = active.filter(|key| {
                    let dispatcher = dispatchers.get_mut(key);
                    dispatcher.is_some_and(|dispatcher| dispatcher.deal_transient(entry).is_some())
                });
                takers.extend(taker);
            }
            Self::Each { dispatchers, .. } => {
                for (key, dispatcher) in dispatchers {
                    if dispatcher.deal_transient(entry).is_some() {
                        takers.push(*key);
                    }
                }
            }
            Self::OneOf(dispatcher) => {
                takers.extend(dispatcher.deal_transient(entry).map(|key| ConsumerKey(key.0)));
            }
        }
        wanted.saturating_sub(takers.len())
    }
}

impl Attaches for Sharing {
    fn attach(&mut self, joining: &mut Joining<'_>) -> Result<Joined, SubscribeError> {
        let (key, kind) = (joining.key, joining.kind);
        let settings = joining.stored.dispatch_options();
        let dispatcher = match self {
            Self::OneOf(dispatcher) => dispatcher,
            Self::Each { dispatchers, .. } => dispatchers
                .entry(key)
                .or_insert_with(|| new_dispatcher(kind, settings)),
        };
        dispatcher.add_consumer(dispatch::ConsumerKey(key.0), joining.spec())?;
        Ok(Joined::Dispatched)
    }

    fn detach(&mut self, key: ConsumerKey) {
        match self {
            Self::Each { dispatchers, .. } => drop(dispatchers.remove(&key)),
            Self::OneOf(dispatcher) => {
                dispatcher.remove_consumer(dispatch::ConsumerKey(key.0));
            }
        }
    }
}

impl Subscription {
    /// Distribution of its messages from now on, to consumers of this type.
    pub(super) fn share(&mut self, stored: &Stored, kind: SubscriptionType) -> &mut Sharing {
        if self.consumers.is_empty() {
            self.sharing = None; // Of an attempt that failed, maybe of another type.
        }
        let settings = stored.dispatch_options();
        self.sharing.get_or_insert_with(|| Sharing::new(kind, settings))
    }

    /// Brings the active consumer of a Failover subscription in line with who is attached, and tells all of a change. Returns it.
    pub(super) fn choose_transient_active(
        &mut self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
    ) -> Option<ConsumerKey> {
        if self.kind != Some(SubscriptionType::Failover) {
            return None;
        }
        let chosen = self.chosen_active();
        if let Some(Sharing::Each { active, .. }) = &mut self.sharing
            && std::mem::replace(active, chosen) != chosen
            && let Some(chosen) = chosen
        {
            self.announce_active(cx, consumers, chosen);
        }
        chosen
    }
}

impl Attached {
    /// Does something with the dispatcher that knows of a consumer.
    pub(super) fn with_sharing(
        &mut self,
        key: ConsumerKey,
        change: impl FnOnce(&mut Dispatcher, dispatch::ConsumerKey),
    ) {
        let Some(consumer) = self.consumers.get(&key) else {
            return;
        };
        let subscription = self.subscriptions.get_mut(&consumer.subscription);
        if let Some(dispatcher) = subscription
            .and_then(|s| s.sharing.as_mut())
            .and_then(|sharing| sharing.of(key))
        {
            change(dispatcher, dispatch::ConsumerKey(key.0));
        }
    }

    /// Chooses who gets a message, on every subscription; none while too much is not written.
    fn deal_transient(
        &mut self,
        cx: &TopicContext,
        entry: &Arc<FeedEntry>,
        unwritten: &Arc<Unwritten>,
        deliveries: &mut HashMap<ConsumerKey, Vec<Dispatched>>,
    ) {
        let sent = Sent {
            messages: u64::from(entry.facts.message_count),
            bytes: entry.payload.len() as u64,
        };
        let now = Moment::at(clock::now());
        let mut takers = Vec::new();
        for subscription in self.subscriptions.values_mut() {
            let Subscription {
                sharing: Some(sharing),
                kind,
                ..
            } = &mut **subscription
            else {
                continue;
            };
            takers.clear();
            let by_key = *kind == Some(SubscriptionType::KeyShared);
            let missed = match unwritten.is_full() {
                true => sharing.wanted(*kind),
                false => sharing.choose(*kind, &entry_ref(cx.codec, entry, by_key), &mut takers),
            };
            subscription.dropped += missed as u64 * sent.messages;
            for key in &takers {
                let Some(consumer) = self.consumers.get_mut(key) else {
                    continue;
                };
                consumer.activity.note_sent(sent, now);
                subscription.activity.note_sent(sent, now);
                self.sent.add(sent);
                deliveries.entry(*key).or_default().push(Dispatched {
                    consumer_id: consumer.consumer_id,
                    key: *key,
                    entry: entry.clone(),
                    held: unwritten.hold(entry.payload.len(), false),
                    partition: cx.name.partition(),
                    redelivery_count: 0,
                    ack_set: Box::default(),
                });
            }
        }
    }
}

impl State {
    /// Hands messages of one producer to the consumers that can take them now, and answers the producer.
    pub(super) fn pass_on(&mut self, cx: &TopicContext, key: ProducerKey, entries: Vec<Publish>) {
        let (now, wall_ms) = (clock::now(), clock::wall_ms());
        let mut receipts: Vec<(ConnectionId, Receipt)> = Vec::new();
        let mut deliveries: HashMap<ConsumerKey, Vec<Dispatched>> = HashMap::new();
        for publish in entries {
            let Some((connection, producer)) =
                self.stored
                    .publishing
                    .note_received(key, &publish, (now, wall_ms))
            else {
                return;
            };
            let error = match publish.txn {
                None => against_policies(&self.stored.policies, &publish, wall_ms),
                Some(_) => Some(PublishError::NotAllowed(
                    "transactions are not supported on non-persistent topics".to_owned(),
                )),
            };
            if let Some(error) = error {
                // Answers leave in the order of the sends.
                cx.send_receipts(std::mem::take(&mut receipts));
                cx.refuse_send((connection, producer), &publish, error);
                continue;
            }
            self.stored.publishing.note_accepted(&publish, wall_ms);
            receipts.push((
                connection,
                Receipt {
                    producer,
                    sequence_id: publish.sequence_id,
                    highest_sequence_id: publish.highest_sequence_id,
                    position: position(),
                    bytes: u32::try_from(publish.payload.len()).unwrap_or(u32::MAX),
                },
            ));
            let entry = Arc::new(FeedEntry {
                ordinal: Ordinal(0),
                position: position(),
                payload: publish.payload,
                facts: publish.facts,
                durable_at: now,
            });
            self.attached
                .deal_transient(cx, &entry, cx.unwritten(), &mut deliveries);
        }
        for (key, items) in deliveries {
            if let Some(consumer) = self.attached.consumers.get(&key) {
                cx.tell_connection(consumer.connection, ConnectionEvent::Dispatched(items));
            }
        }
        cx.send_receipts(receipts);
    }
}

impl TopicContext {
    /// Receipts of one producer.
    fn send_receipts(&self, receipts: Vec<(ConnectionId, Receipt)>) {
        if let Some((connection, _)) = receipts.first() {
            self.send(connection.shard, Message::Receipts(receipts));
        }
    }
}
