//! Requests of a protocol handler to the broker on behalf of a caller.
//!
//! ```text
//!   may the caller do it?  ─►  does the topic exist, may it be created?  ─►  would the topic admit the caller?
//!                          ─►  schema  ─►  subscription  ─►  producer or consumer
//! ```
//! Every action checks the permission once ([`Access::check`](pharos_auth::Access::check)), before it reads, creates
//! or changes anything. A producer or consumer that its topic would not admit leaves no schema and no subscription
//! behind. Sends, acknowledgements and permits are not checked: they belong to a producer or consumer that was
//! admitted.

use std::rc::Rc;
use std::sync::Arc;

use pharos_auth::{Action, Denied, Principal, Resource};
use pharos_catalog::schema::{SchemaEntry, SchemaInfo, SchemaVersion};
use pharos_catalog::{
    ListMode, PartitionedMetadataError, PatternError, TopicListUpdate, TopicListWatcher, TopicListing,
    carrier_of,
};
use pharos_feed::ids::{ConnectionId, ConsumerKey, TopicId};
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::Placed;
use pharos_requests::asked::{
    AddSchemaError, Consume, ConsumeError, Consumed, ListTopicsError, Produce, ProduceError, Refused,
};
use pharos_requests::error::{CursorError, TopicError};
use pharos_topic::{ConsumerNumbers, LastMessage, Moving, ProducerGrant, SeekTo, Topic};
use pharos_types::{NamespaceName, SubscriptionName, TopicName};

use super::Shard;
use super::carriers::DealtTo;

/// The broker, as a front door asks it on behalf of a caller.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    shard: &'a Shard,
    who: &'a Principal,
}

impl Shard {
    /// The broker, as this caller may use it.
    #[must_use]
    pub fn caller<'a>(&'a self, who: &'a Principal) -> Caller<'a> {
        Caller { shard: self, who }
    }
}

/// A watch on topics, as it begins.
pub struct WatchedTopics {
    /// Reports what changes.
    pub watcher: TopicListWatcher,
    /// Full names, sorted.
    pub topics: Vec<String>,
    /// The fingerprint of that list.
    pub hash: String,
}

impl Shard {
    /// Returns the changes of watched topics since the last update, computed on another thread. `None` when the broker stops.
    pub async fn topics_changed(
        &self,
        mut watcher: TopicListWatcher,
    ) -> Option<(TopicListWatcher, Option<TopicListUpdate>)> {
        let update = async move {
            let update = watcher.update();
            (watcher, update)
        };
        self.shared.lists.run(update).await
    }
}

impl Caller<'_> {
    fn may(self, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
        self.shard.shared.options.access.check(self.who, action, resource)
    }

    /// Checks that a topic exists or may be created, so that its broker can be returned.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn look_up(self, topic: &TopicName) -> Result<(), Refused<PartitionedMetadataError>> {
        self.may(Action::Lookup, Resource::Topic(topic))?;
        self.shard
            .shared
            .catalog
            .check_lookup(topic)
            .map_err(Refused::Failed)
    }

    /// Checks that a topic may be added to a transaction, which requires the permission to publish to it.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn add_topic_to_transaction(self, topic: &TopicName) -> Result<(), Denied> {
        self.may(Action::Produce, Resource::Topic(topic))
    }

    /// Checks that a subscription may be added to a transaction, which requires the permission to consume from it.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn add_subscription_to_transaction(
        self,
        topic: &TopicName,
        subscription: &SubscriptionName,
    ) -> Result<(), Denied> {
        self.may(Action::Consume, Resource::Subscription(topic, subscription))
    }

    /// Returns the number of partitions of a topic; 0: it is not partitioned. Creates it where `may_create` and
    /// policies allow that.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn partitions(
        self,
        topic: &TopicName,
        may_create: bool,
    ) -> Result<u32, Refused<PartitionedMetadataError>> {
        self.may(Action::Lookup, Resource::Topic(topic))?;
        let catalog = &self.shard.shared.catalog;
        let partitions = catalog.partitioned_metadata(topic, may_create).await;
        partitions.map_err(Refused::Failed)
    }

    /// The topics of a namespace. The list is made on a thread apart, in turn with those that others ask for; `pattern` that cannot be used is
    /// left to the client.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn list_topics(
        self,
        namespace: &NamespaceName,
        mode: ListMode,
        pattern: Option<String>,
        known_hash: Option<String>,
    ) -> Result<TopicListing, Refused<ListTopicsError>> {
        self.may(Action::ListTopics, Resource::Namespace(namespace))?;
        let (catalog, namespace) = (self.shard.shared.catalog.clone(), namespace.clone());
        let list = async move {
            let lists = catalog.topic_lists();
            lists.answer(&namespace, mode, pattern.as_deref(), known_hash.as_deref())
        };
        let list = self.shard.shared.lists.run(list).await;
        list.ok_or(Refused::Failed(ListTopicsError::Stopping))
    }

    /// The topics of a namespace that match, and what changes about that. The list is made on a thread apart, as that of
    /// [`list_topics`](Self::list_topics).
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn watch_topics(
        self,
        namespace: &NamespaceName,
        pattern: String,
    ) -> Result<WatchedTopics, Refused<ListTopicsError>> {
        self.may(Action::ListTopics, Resource::Namespace(namespace))?;
        let (catalog, namespace) = (self.shard.shared.catalog.clone(), namespace.clone());
        let lists = catalog.topic_lists();
        let failed = |error: PatternError| Refused::Failed(error.into());
        lists.check_pattern(&pattern).map_err(failed)?;
        let watch = async move {
            let watcher = catalog.topic_lists().watch(&namespace, &pattern)?;
            let (topics, hash) = (watcher.topics(), watcher.hash());
            Ok(WatchedTopics {
                watcher,
                topics,
                hash,
            })
        };
        let watched = self.shard.shared.lists.run(watch).await;
        let watched = watched.ok_or(Refused::Failed(ListTopicsError::Stopping))?;
        watched.map_err(failed)
    }

    /// The latest schema of a topic, or this version.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn schema(
        self,
        topic: &TopicName,
        version: Option<SchemaVersion>,
    ) -> Result<Option<Arc<SchemaEntry>>, Denied> {
        self.may(Action::ReadSchema, Resource::Topic(topic))?;
        let catalog = &self.shard.shared.catalog;
        Ok(match version {
            None => catalog.schemas().latest(topic),
            Some(version) => catalog.schemas().get(topic, version),
        })
    }

    /// Adds a schema to a topic that exists, as one of its producers would.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn add_schema(
        self,
        topic: &TopicName,
        schema: Option<SchemaInfo>,
    ) -> Result<Option<SchemaVersion>, Refused<AddSchemaError>> {
        self.may(Action::UpdateSchema, Resource::Topic(topic))?;
        let catalog = &self.shard.shared.catalog;
        if !catalog.topic_exists(topic) && catalog.partitioned().get(topic).is_none() {
            return Err(Refused::Failed(AddSchemaError::NoTopic(topic.clone())));
        }
        let added = catalog.schemas().add_for_producer(topic, schema, "").await;
        added.map_err(|error| Refused::Failed(AddSchemaError::Schema(error)))
    }

    /// Creates a producer: the topic and its schema and subscription where they may be created, then the producer.
    ///
    /// `is_gone`: whether the caller has left, so that it does not take the topic from another one. Answers with the topic, the
    /// producer and the version of its schema.
    ///
    /// # Errors
    /// [`Refused`]. Of a producer that the topic would not let in, no schema and no subscription is left.
    ///
    /// Cancel safety: a producer may be left at the topic; do not drop it.
    pub async fn produce(
        self,
        topic: &TopicName,
        wish: Produce,
        is_gone: impl Fn() -> bool,
    ) -> Result<(TopicId, ProducerGrant, Option<SchemaVersion>), Refused<ProduceError>> {
        match &wish.subscription {
            None => self.may(Action::Produce, Resource::Topic(topic))?,
            Some(name) => self.may(
                Action::ProduceWithSubscription,
                Resource::Subscription(topic, name),
            )?,
        }
        self.create_producer(topic, wish, is_gone)
            .await
            .map_err(Refused::Failed)
    }

    async fn create_producer(
        self,
        topic: &TopicName,
        wish: Produce,
        is_gone: impl Fn() -> bool,
    ) -> Result<(TopicId, ProducerGrant, Option<SchemaVersion>), ProduceError> {
        let shard = self.shard;
        if carrier_of(topic).is_some() {
            return Err(TopicError::NotFound(topic.to_string()).into());
        }
        shard.ensure_topic(topic, true).await?;
        if wish.schema.is_some() || wish.subscription.is_some() {
            shard
                .check_producer(topic, wish.request.clone(), wish.subscription.clone())
                .await?;
        }
        let catalog = &shard.shared.catalog;
        let version = catalog.schemas().add_for_producer(topic, wish.schema, "").await;
        let version = version.map_err(ProduceError::Schema)?;
        if let Some(name) = wish.subscription {
            let made = shard.ensure_subscription(topic, name).await;
            made.map_err(ProduceError::Subscription)?;
        }
        if is_gone() {
            return Err(ProduceError::Left);
        }
        let granted = shard.add_producer(topic, wish.request).await;
        let (id, grant) = granted.map_err(ProduceError::Producer)?;
        Ok((id, grant, version))
    }

    /// Attaches a consumer: creates the topic, its schema and the subscription where they may be created, then the consumer.
    ///
    /// `is_gone`: whether the caller has left, so that it does not take the subscription from another one.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// Cancel safety: a consumer may be left at the topic; do not drop it.
    pub async fn consume(
        self,
        wish: Consume,
        is_gone: impl Fn() -> bool,
    ) -> Result<Consumed, Refused<ConsumeError>> {
        let (topic, subscription) = (&wish.request.topic, &wish.request.subscription);
        let resource = match &wish.request.consumer_name {
            Some(name) => Resource::Consumer(topic, subscription, name),
            None => Resource::Subscription(topic, subscription),
        };
        self.may(Action::Consume, resource)?;
        self.create_consumer(wish, is_gone).await.map_err(Refused::Failed)
    }

    async fn create_consumer(
        self,
        wish: Consume,
        is_gone: impl Fn() -> bool,
    ) -> Result<Consumed, ConsumeError> {
        let (shard, request) = (self.shard, wish.request);
        if carrier_of(&request.topic).is_some() {
            return Err(TopicError::NotFound(request.topic.to_string()).into());
        }
        let carrier = match shard.shared.placement.of(&request.topic) {
            Placed::Here(_) => None,
            Placed::Elsewhere(_) | Placed::Unowned => shard.as_carrier(&request),
        };
        if carrier.is_none() {
            shard
                .shared
                .ensure_topic(&request.topic, wish.may_create_topic)
                .await?;
        }
        if let Some(schema) = wish.schema {
            let is_idle = match &carrier {
                None => shard.check_consumer(request.clone()).await,
                // It has a subscription.
                Some(_) => Ok(false),
            };
            let is_idle = is_idle.map_err(ConsumeError::Consumer)?;
            let catalog = &shard.shared.catalog;
            let checked = catalog
                .schemas()
                .check_for_consumer(&request.topic, schema, "", is_idle)
                .await;
            checked.map_err(ConsumeError::Schema)?;
        }
        if is_gone() {
            return Err(ConsumeError::Left);
        }
        let request = match carrier {
            Some(request) => request,
            None => match shard.place_consumer(request).await {
                Ok(DealtTo::Here(request)) => *request,
                Ok(DealtTo::Elsewhere(addresses)) => return Ok(Consumed::Elsewhere(addresses)),
                Err(error) => return Err(ConsumeError::Consumer(error)),
            },
        };
        let subscribed = shard.subscribe(request).await.map_err(ConsumeError::Consumer)?;
        Ok(Consumed::Here(Box::new(subscribed)))
    }

    /// Closes the consumers of a consumer's subscription and deletes it. Without `force` only its sole consumer may.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn unsubscribe(
        self,
        topic: TopicId,
        key: ConsumerKey,
        force: bool,
    ) -> Result<(), Refused<CursorError>> {
        let act = move |topic: Rc<Topic>| async move { topic.unsubscribe(key, force).await };
        self.of_consumer(Action::DeleteSubscription, topic, key, act)
            .await
    }

    /// Moves the cursor of a consumer's subscription (of broadcast: the consumer's own). The consumers concerned are closed
    /// first.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn seek(
        self,
        topic: TopicId,
        key: ConsumerKey,
        to: SeekTo,
    ) -> Result<(), Refused<CursorError>> {
        let act = move |topic: Rc<Topic>| async move { Moving(&topic).seek_consumer(key, to).await };
        self.of_consumer(Action::Seek, topic, key, act).await
    }

    /// The last message of a consumer's topic, and how far the consumer has acknowledged.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn last_message_id(
        self,
        topic: TopicId,
        (connection, key): (ConnectionId, ConsumerKey),
    ) -> Result<LastMessage, Refused<CursorError>> {
        let feeds = &self.shard.feeds;
        let listening = feeds.look_at_acks(topic, (connection, key), AckState::acked_to);
        let act = move |topic: Rc<Topic>| async move { topic.last_message(Some(key), listening).await };
        self.of_consumer(Action::ReadSubscription, topic, key, act).await
    }

    /// Numbers of one consumer that only its topic's home knows.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn consumer_stats(
        self,
        topic: TopicId,
        (connection, key): (ConnectionId, ConsumerKey),
    ) -> Result<ConsumerNumbers, Refused<CursorError>> {
        let feeds = &self.shard.feeds;
        let listening = feeds.look_at_acks(topic, (connection, key), AckState::acked_to);
        let act = move |topic: Rc<Topic>| async move { topic.consumer_numbers(key, listening) };
        self.of_consumer(Action::ReadSubscription, topic, key, act).await
    }

    /// Asks about the subscription of a consumer, and acts, at the home of its topic: only there both names are known.
    async fn of_consumer<R, F>(
        self,
        action: Action,
        topic: TopicId,
        key: ConsumerKey,
        act: impl FnOnce(Rc<Topic>) -> F + Send + 'static,
    ) -> Result<R, Refused<CursorError>>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, CursorError>> + 'static,
    {
        let (access, who) = (self.shard.shared.options.access.clone(), self.who.clone());
        let done = self.shard.at_home(topic, move |topic| async move {
            let Some(subscription) = topic.subscription_of(key) else {
                return Err(CursorError::NoConsumer);
            };
            let resource = Resource::Subscription(topic.name(), &subscription);
            if let Err(denied) = access.check(&who, action, resource) {
                return Ok(Err(denied));
            }
            act(topic).await.map(Ok)
        });
        match done.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(denied)) => Err(Refused::Denied(denied)),
            Err(error) => Err(Refused::Failed(error)),
        }
    }
}
