//! Requests to topics from any shard. A protocol handler uses a [`Caller`](super::Caller), which first checks the
//! permissions of its client.
//!
//! Requests with an answer go to the topic's home and back; others are sent without waiting.

use std::rc::Rc;

use pharos_feed::ids::{ConnectionId, ConsumerKey, ProducerKey, TopicId};
use pharos_feed::{CursorHandoff, OwnedAck};
use pharos_mesh::HomeMessage;
use pharos_requests::error::{CursorError, ProducerError, SubscribeError, TopicError, TxnAckError};
use pharos_topic::{
    ProducerGrant, ProducerRequest, SubscribeRequest, Subscribed, Topic, TransactingTopic, TxnAcks,
};
use pharos_types::{Position, SubscriptionName, TopicName};

use super::ProduceError;
use super::{Publish, Shard};

impl Shard {
    /// Checks that a topic may be used, and creates it where that is allowed.
    ///
    /// # Errors
    /// [`TopicError`]: not this broker's, not found, not allowed, or the metadata store failed.
    pub async fn ensure_topic(&self, topic: &TopicName, may_create: bool) -> Result<(), TopicError> {
        self.shared.ensure_topic(topic, may_create).await
    }

    /// Attaches a producer.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub async fn add_producer(
        &self,
        topic: &TopicName,
        request: ProducerRequest,
    ) -> Result<(TopicId, ProducerGrant), ProducerError> {
        let name = topic.clone();
        self.call(self.shared.placement.home(topic)?, move |shard| async move {
            let topic = shard.home.ensured_topic(&name).await?;
            let grant = topic.add_producer(request).await?;
            Ok((topic.id(), grant))
        })
        .await?
    }

    /// Attaches a consumer. One that comes while its topic is let go waits until that is loaded again.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub async fn subscribe(&self, request: SubscribeRequest) -> Result<Subscribed, SubscribeError> {
        self.call(
            self.shared.placement.home(&request.topic)?,
            move |shard| async move {
                loop {
                    let topic = shard.home.ensured_topic(&request.topic).await?;
                    match topic.subscribe(request.clone()).await {
                        // It was let go while the consumer came: once it is gone it is loaded again. Where nothing can be loaded
                        // any more, the next look at it says so.
                        Err(SubscribeError::Topic(TopicError::Closing(_))) => {}
                        outcome => return outcome,
                    }
                }
            },
        )
        .await?
    }

    /// Makes sure that a durable subscription exists, created at the first entry.
    ///
    /// # Errors
    /// [`SubscribeError`]: `NotAllowed` when automatic creation is off.
    pub async fn ensure_subscription(
        &self,
        topic: &TopicName,
        name: SubscriptionName,
    ) -> Result<(), SubscribeError> {
        let allowed = self.shared.catalog.may_create_subscription(topic);
        let topic_name = topic.clone();
        self.call(self.shared.placement.home(topic)?, move |shard| async move {
            let topic = shard.home.ensured_topic(&topic_name).await?;
            topic.ensure_subscription(name, allowed).await
        })
        .await?
    }

    /// Checks that a producer would be admitted now, together with its subscription. Changes nothing.
    ///
    /// # Errors
    /// [`ProduceError`]: `Producer`, `Subscription`.
    pub(super) async fn check_producer(
        &self,
        topic: &TopicName,
        request: ProducerRequest,
        subscription: Option<SubscriptionName>,
    ) -> Result<(), ProduceError> {
        let may_create = self.shared.catalog.may_create_subscription(topic);
        let name = topic.clone();
        let home = self.shared.placement.home(topic)?;
        let checked = self.call(home, move |shard| async move {
            let topic = shard.home.ensured_topic(&name).await?;
            topic
                .check_producer(&request)
                .await
                .map_err(ProduceError::Producer)?;
            match subscription {
                Some(subscription) => topic
                    .check_subscription(&subscription, may_create)
                    .map_err(ProduceError::Subscription),
                None => Ok(()),
            }
        });
        checked.await.map_err(TopicError::from)?
    }

    /// Checks that a consumer would be admitted now. Returns true if the topic has no data, no producers and no
    /// consumers. Changes nothing.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub(super) async fn check_consumer(&self, request: SubscribeRequest) -> Result<bool, SubscribeError> {
        let home = self.shared.placement.home(&request.topic)?;
        self.call(home, move |shard| async move {
            shard
                .home
                .ensured_topic(&request.topic)
                .await?
                .check_consumer(&request)
        })
        .await?
    }

    /// Runs a piece of work on a loaded topic.
    pub(super) async fn at_home<R, W, F>(&self, topic: TopicId, work: W) -> Result<R, CursorError>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Topic>) -> F + Send + 'static,
        F: Future<Output = Result<R, CursorError>> + 'static,
    {
        self.call(topic.home, move |shard| async move {
            match shard.home.topics.by_id(topic) {
                Some(topic) => work(topic).await,
                None => Err(TopicError::Closing("of this consumer".to_owned()).into()),
            }
        })
        .await?
    }

    /// Resolves when what a consumer here has acknowledged so far is durable, as far as its subscription is.
    ///
    /// # Errors
    /// The storage's reason, or that the topic is gone; whether the acknowledgements survive is unknown then.
    pub async fn settle_acks(&self, topic: TopicId, key: ConsumerKey) -> Result<(), String> {
        self.feeds.flush_feed(topic);
        let settled = self.call(topic.home, move |shard| async move {
            match shard.home.topics.by_id(topic) {
                Some(topic) => topic.settle_acks(key).await,
                None => Err("topic was unloaded".to_owned()),
            }
        });
        settled.await.unwrap_or_else(|gone| Err(gone.to_string()))
    }

    /// Acknowledges in a transaction; resolves when that is durable.
    ///
    /// # Errors
    /// [`TxnAckError`].
    pub async fn ack_in_transaction(
        &self,
        topic: TopicId,
        key: ConsumerKey,
        acks: TxnAcks,
    ) -> Result<(), TxnAckError> {
        self.call(topic.home, move |shard| async move {
            match shard.home.topics.by_id(topic) {
                Some(topic) => TransactingTopic(&topic).ack_in_transaction(key, acks).await,
                None => Err(TopicError::Closing("of this consumer".to_owned()).into()),
            }
        })
        .await?
    }

    // ---- sent and forgotten ------------------------------------------------------------------------------------

    /// Entries of one producer of a connection here, in order.
    pub fn publish(&self, from: ConnectionId, topic: TopicId, producer: ProducerKey, entries: Vec<Publish>) {
        let message = HomeMessage::Publish {
            from,
            producer,
            entries,
        };
        self.cx.send_home(topic, message);
    }

    /// A producer left.
    pub fn close_producer(&self, topic: TopicId, producer: ProducerKey) {
        self.cx.send_home(topic, HomeMessage::CloseProducer(producer));
    }

    /// A consumer left; its cursor goes home if it had it.
    pub fn detach(&self, topic: TopicId, key: ConsumerKey, handoff: Option<CursorHandoff>) {
        self.cx.send_home(topic, HomeMessage::Detach { key, handoff });
    }

    /// More permits for a consumer of a dispatched subscription.
    pub fn flow(&self, topic: TopicId, key: ConsumerKey, permits: u32) {
        self.cx.send_home(topic, HomeMessage::Flow { key, permits });
    }

    /// Acknowledgements of a consumer that does not listen here.
    pub fn ack(&self, topic: TopicId, key: ConsumerKey, acks: Vec<OwnedAck>, cumulative: bool) {
        self.cx.send_home(
            topic,
            HomeMessage::Ack {
                key,
                acks,
                cumulative,
            },
        );
    }

    /// Deliver again: all that is pending at the consumer, or these.
    pub fn redeliver(&self, topic: TopicId, key: ConsumerKey, positions: Option<Vec<Position>>) {
        self.cx
            .send_home(topic, HomeMessage::Redeliver { key, positions });
    }

    /// Bytes of dispatched entries that reached the socket.
    pub fn written(&self, topic: TopicId, key: ConsumerKey, bytes: u64) {
        self.cx.send_home(topic, HomeMessage::Written { key, bytes });
    }
}
