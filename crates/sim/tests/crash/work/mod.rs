//! Work of clients and administrators.
//!
//! Requests run beside each other. Requests that change a topic as a whole are made one at a time per topic, except
//! for producers that reconnect by themselves after they were closed.

mod chance;
pub(crate) mod places;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use pharos_broker::ids::TopicId;
use pharos_broker::shard::Shard;
use pharos_broker_admin::{Place, Resources};
use pharos_dispatch::{KeySharedMode, KeySharedSpec};
use pharos_runtime::clock;
use pharos_runtime::random::Random;
use pharos_sim::model::{Model, Move, Ticket};
use pharos_sim::tell;
use pharos_topic::{
    AccessMode, Attach, ConsumerInfo, ProducerInfo, ProducerRequest, SeekTo, StartAt, SubscribeRequest,
    SubscriptionType,
};
use pharos_types::{Position, SubscriptionName, TopicName};

use crate::client::Client;

/// Subscriptions by name, each of one kind for ever; of broadcast, with the consumers that have a place.
pub(crate) const SUBSCRIPTIONS: [(&str, SubscriptionType); 5] = [
    ("exclusive", SubscriptionType::Exclusive),
    ("failover", SubscriptionType::Failover),
    ("shared", SubscriptionType::Shared),
    ("key-shared", SubscriptionType::KeyShared),
    ("broadcast", SubscriptionType::Broadcast),
];
const LISTENERS: [&str; 2] = ["one", "two"];
const CLIENTS_MAX: usize = 8;

/// Counts of actions, to check that the test reaches the corner cases it is for.
pub(crate) type Corners = BTreeMap<&'static str, u64>;

/// Habits of a seed's clients and administrators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Most producers want a topic for themselves, wait for it, and leave soon.
    pub(crate) takes_turns: bool,
    /// Administrators have closed ledgers offloaded.
    pub(crate) offloads: bool,
}

/// All that happens outside one process.
pub(crate) struct World {
    pub(crate) model: Rc<RefCell<Model>>,
    pub(crate) admin: Resources,
    pub(crate) shards: Vec<Rc<Shard>>,
    pub(crate) clients: RefCell<Vec<Rc<Client>>>,
    /// Requests without an answer.
    pub(crate) under_way: RefCell<BTreeSet<(u64, &'static str)>>,
    next_request: Cell<u64>,
    /// Requests under way that make a topic, by topic.
    makers: RefCell<BTreeMap<String, usize>>,
    /// Topics, subscriptions and facts of which something is being changed.
    changing: RefCell<BTreeSet<String>>,
    habits: Habits,
    /// Producers that wait for their turn.
    waiting: Cell<usize>,
    pub(crate) corners: RefCell<Corners>,
}

pub(crate) fn topic_name(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn subscription_name(text: &str) -> SubscriptionName {
    SubscriptionName::new(text).unwrap()
}

/// A request under way; over when it is dropped.
struct UnderWay(Rc<World>, u64, &'static str);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.borrow_mut().remove(&(self.1, self.2));
    }
}

impl World {
    pub(crate) fn new(
        model: &Rc<RefCell<Model>>,
        admin: Resources,
        shards: Vec<Rc<Shard>>,
        habits: Habits,
    ) -> Rc<Self> {
        Rc::new(Self {
            model: model.clone(),
            admin,
            shards,
            clients: RefCell::default(),
            under_way: RefCell::default(),
            next_request: Cell::new(0),
            makers: RefCell::default(),
            changing: RefCell::default(),
            habits,
            waiting: Cell::new(0),
            corners: RefCell::default(),
        })
    }

    pub(crate) fn reach(&self, corner: &'static str) {
        *self.corners.borrow_mut().entry(corner).or_default() += 1;
    }

    fn request(self: &Rc<Self>, what: &'static str) -> UnderWay {
        let number = self.next_request.get();
        self.next_request.set(number + 1);
        self.under_way.borrow_mut().insert((number, what));
        UnderWay(self.clone(), number, what)
    }

    fn maker_begins(&self, topic: &str) -> Ticket {
        *self.makers.borrow_mut().entry(topic.to_owned()).or_default() += 1;
        self.model.borrow_mut().topic(topic).maker_begins()
    }

    fn maker_ends(&self, topic: &str) {
        if let Some(count) = self.makers.borrow_mut().get_mut(topic) {
            *count -= 1;
        }
    }

    fn has_makers(&self, topic: &str) -> bool {
        self.makers.borrow().get(topic).is_some_and(|count| *count > 0)
    }

    /// Takes the right to change something, if no other client is at it.
    fn may_change(&self, what: &str) -> bool {
        self.changing.borrow_mut().insert(what.to_owned())
    }

    fn changed(&self, what: &str) {
        self.changing.borrow_mut().remove(what);
    }

    pub(crate) fn client(&self, random: &mut Random, topic: &str) -> Rc<Client> {
        let shard = random.pick(&self.shards).expect("a shard");
        let client = Client::new(shard, topic, &self.model);
        self.clients.borrow_mut().push(client.clone());
        client
    }

    /// Lets go of the clients that hold nothing any more.
    fn tidy(&self) {
        if self.clients.borrow().len() > 2 * CLIENTS_MAX {
            self.clients.borrow_mut().retain(|client| {
                // Besides this list: its connection's place on the shard, and requests that wait.
                let is_used = client.produces() || client.consumes() || Rc::strong_count(client) > 2;
                if !is_used {
                    client.forget();
                }
                is_used
            });
        }
    }

    /// The topic of each consumer that a client holds.
    pub(crate) fn attached(&self) -> Vec<TopicId> {
        let clients = self.clients.borrow();
        clients
            .iter()
            .filter_map(|client| client.attached())
            .map(|(topic, _)| topic)
            .collect()
    }

    /// The process is gone.
    pub(crate) fn forget(&self) {
        for client in self.clients.take() {
            client.forget();
        }
    }

    // ---- producers ---------------------------------------------------------------------------------------------

    pub(crate) async fn produce(
        self: Rc<Self>,
        client: Rc<Client>,
        access_mode: AccessMode,
        held: Option<u64>,
    ) {
        let _request = self.request("producer");
        let ticket = self.maker_begins(&client.topic);
        let before = self.model.borrow_mut().topic(&client.topic).epoch;
        let name = topic_name(&client.topic);
        let made = client.shard.ensure_topic(&name, true).await;
        self.maker_ends(&client.topic);
        if made.is_err() {
            return;
        }
        let wish = ProducerRequest {
            encrypted: false,
            connection: client.connection(),
            producer_id: 1,
            name: None,
            epoch: 0,
            user_provided_name: false,
            access_mode,
            topic_epoch: held,
            info: ProducerInfo::default(),
        };
        tell(|| format!("produce {name} {access_mode:?} {held:?}"));
        let outcome = client.shard.add_producer(&name, wish).await;
        tell(|| format!("produce {name} {access_mode:?}: {outcome:?}"));
        let Ok((topic, grant)) = outcome else { return };
        let wait = grant.turn;
        self.model.borrow_mut().topic(&client.topic).is_there(ticket);
        if let Some(epoch) = grant.topic_epoch
            && access_mode != AccessMode::Shared
        {
            self.granted(&client.topic, ticket, epoch, held, before);
        }
        if let Some(turn) = wait {
            drop(_request);
            self.reach("waits for exclusive access");
            self.waiting.set(self.waiting.get() + 1);
            let turn = turn.await;
            self.waiting.set(self.waiting.get() - 1);
            let Ok(turn) = turn else { return };
            self.granted(&client.topic, ticket, turn.epoch, None, before);
            self.reach("exclusive access after a wait");
        }
        if !client.producer_is_in(topic, grant.key) {
            client.shard.close_producer(topic, grant.key);
        }
    }

    fn granted(&self, topic: &str, ticket: Ticket, epoch: u64, held: Option<u64>, before: Option<u64>) {
        self.reach("exclusive access");
        self.model
            .borrow_mut()
            .topic(topic)
            .epoch_granted(topic, ticket, epoch, held, before);
    }

    // ---- consumers ---------------------------------------------------------------------------------------------

    pub(crate) async fn subscribe(
        self: Rc<Self>,
        client: Rc<Client>,
        subscription: &'static str,
        cursor: String,
    ) -> bool {
        let _request = self.request("subscribe");
        let topic = client.topic.clone();
        let ticket = {
            let ticket = self.maker_begins(&topic);
            self.model
                .borrow_mut()
                .topic(&topic)
                .subscription_begins(subscription, &cursor);
            ticket
        };
        tell(|| format!("subscribe {topic} {subscription} {cursor:?}"));
        let kind = SUBSCRIPTIONS.iter().find(|(name, _)| *name == subscription);
        let kind = kind.map_or(SubscriptionType::Exclusive, |(_, kind)| *kind);
        let request = SubscribeRequest {
            topic: topic_name(&topic),
            subscription: subscription_name(subscription),
            kind,
            connection: client.connection(),
            consumer_id: 7,
            consumer_name: (!cursor.is_empty()).then(|| cursor.clone()),
            priority_level: 0,
            durable: true,
            read_compacted: false,
            start: StartAt::Earliest,
            rewind_to_ms: None,
            may_create: true,
            properties: Vec::new(),
            is_replicated: false,
            key_shared: (kind == SubscriptionType::KeyShared).then_some(KeySharedSpec {
                mode: KeySharedMode::AutoSplit,
                allow_out_of_order: false,
            }),
            info: Arc::new(ConsumerInfo {
                address: "/10.0.0.2:2".into(),
                client_version: "sim".into(),
                connected_since_ms: clock::wall_ms(),
                metadata: Vec::new(),
            }),
        };
        let made = client.shard.ensure_topic(&request.topic, true).await;
        let outcome = match made {
            Ok(()) => client
                .shard
                .subscribe(request)
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.maker_ends(&topic);
        self.model
            .borrow_mut()
            .topic(&topic)
            .subscription_ends(subscription);
        tell(|| {
            let outcome = outcome
                .as_ref()
                .map(|done| (done.key, matches!(done.attach, Attach::Listen(_))));
            format!("subscribe {topic} {subscription} {cursor:?}: {outcome:?}")
        });
        match outcome {
            Ok(done) => {
                let mut model = self.model.borrow_mut();
                let last = model.message_last();
                model
                    .topic(&topic)
                    .subscription_is_there(subscription, &cursor, ticket, last);
                drop(model);
                client.consumer_is_in(done, subscription, &cursor, 1000)
            }
            Err(_) => false,
        }
    }

    /// Waits for the answer to an acknowledgement.
    async fn wait_for_ack(self: Rc<Self>, client: Rc<Client>, messages: Vec<u64>) {
        let _request = self.request("acknowledgement");
        let (Some((subscription, cursor)), Some((id, key))) = (client.subscription(), client.attached())
        else {
            return;
        };
        let proof = {
            let mut model = self.model.borrow_mut();
            model
                .topic(&client.topic)
                .acknowledgement_begins(&subscription, &cursor)
        };
        let outcome = client.shard.settle_acks(id, key).await;
        tell(|| {
            format!(
                "ack {} {subscription} {cursor:?} of {messages:?}: {outcome:?}",
                client.topic
            )
        });
        if outcome.is_ok() {
            self.reach("answered acknowledgements");
            let mut model = self.model.borrow_mut();
            let topic = model.topic(&client.topic);
            topic.acknowledgement_done(&subscription, &cursor, &messages, proof);
        }
    }

    /// All that comes to a cursor has come.
    pub(crate) fn seen(&self, topic: &str, subscription: &str, cursor: &str, came: &[u64]) {
        let mut model = self.model.borrow_mut();
        let last = model.message_last();
        let known = model.topic(topic);
        known.expire(clock::wall_ms());
        known.cursor_seen(topic, subscription, cursor, came, last);
    }

    // ---- administration ----------------------------------------------------------------------------------------

    async fn delete_topic(self: Rc<Self>, topic: String, force: bool) {
        let _request = self.request("delete topic");
        let makers = self.has_makers(&topic);
        self.model.borrow_mut().topic(&topic).deletion_begins(makers);
        tell(|| format!("delete {topic} {force}"));
        let outcome = self.admin.topics.delete_topic(topic_name(&topic), force).await;
        tell(|| format!("delete {topic}: {outcome:?}"));
        let makers = self.has_makers(&topic);
        let mut model = self.model.borrow_mut();
        let last = model.message_last();
        let known = model.topic(&topic);
        use pharos_broker_admin::AdminError as E;
        match outcome {
            Ok(()) => {
                self.reach("topics deleted");
                known.deletion_done(makers, last);
            }
            Err(E::Precondition(_) | E::NotFound(_)) => known.deletion_refused(),
            Err(_) => known.deletion_failed(),
        }
        drop(model);
        self.changed(&topic);
    }

    async fn unload(self: Rc<Self>, topic: String) {
        let _request = self.request("unload");
        self.model.borrow_mut().topic(&topic).disturb();
        tell(|| format!("unload {topic}"));
        let outcome = self.admin.topics.unload(topic_name(&topic)).await;
        tell(|| format!("unload {topic}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach("unloads");
        }
        self.model.borrow_mut().topic(&topic).disturb();
        self.changed(&topic);
    }

    async fn create_topic(self: Rc<Self>, topic: String) {
        let _request = self.request("create topic");
        let ticket = self.maker_begins(&topic);
        let outcome = self
            .admin
            .topics
            .create_topic(topic_name(&topic), BTreeMap::new())
            .await;
        tell(|| format!("create {topic}: {outcome:?}"));
        self.maker_ends(&topic);
        if outcome.is_ok() {
            self.model.borrow_mut().topic(&topic).is_there(ticket);
        }
        self.changed(&topic);
    }

    async fn trim(self: Rc<Self>, topic: String) {
        let _request = self.request("trim");
        drop(self.admin.topics.trim(topic_name(&topic)).await);
        self.changed(&topic);
    }

    /// Has all ledgers offloaded that are closed.
    async fn offload(self: Rc<Self>, topic: String) {
        let _request = self.request("offload");
        let before = Position::new(u64::MAX, 0);
        let outcome = self.admin.offload.offload(topic_name(&topic), before).await;
        tell(|| format!("offload {topic}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach("offloads asked for");
        }
    }

    async fn unsubscribe(self: Rc<Self>, topic: String, subscription: &'static str) {
        let _request = self.request("delete subscription");
        let ticket = {
            let mut model = self.model.borrow_mut();
            let known = model.topic(&topic);
            known.unsubscribe_begins(subscription);
            known.begins()
        };
        let name = subscription_name(subscription);
        tell(|| format!("delete {topic} {subscription}"));
        let outcome = self
            .admin
            .subscriptions
            .delete_subscription(topic_name(&topic), name, true)
            .await;
        tell(|| format!("delete {topic} {subscription}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach("subscriptions deleted");
        }
        let mut model = self.model.borrow_mut();
        model
            .topic(&topic)
            .unsubscribe_done(subscription, outcome.is_ok(), ticket);
        drop(model);
        self.changed(&topic);
    }

    async fn move_subscription(self: Rc<Self>, topic: String, subscription: &'static str, to: Move) {
        let _request = self.request("move");
        let (ticket, gone) = {
            let mut model = self.model.borrow_mut();
            let known = model.topic(&topic);
            (known.begins(), known.move_begins(subscription, None, to))
        };
        let (name, at) = (topic_name(&topic), subscription_name(subscription));
        tell(|| format!("move {topic} {subscription} {to:?}"));
        let outcome = match to {
            Move::Skip(count) => self.admin.subscriptions.skip(name, at, count as u64).await,
            Move::SkipAll => self.admin.subscriptions.skip_all(name, at).await,
            Move::Earliest => self.admin.subscriptions.reset_to(name, at, Place::Earliest).await,
            Move::Latest => self.admin.subscriptions.reset_to(name, at, Place::Latest).await,
            Move::To(position) => {
                let place = Place::At {
                    position,
                    batch_index: None,
                    excluded: false,
                };
                self.admin.subscriptions.reset_to(name, at, place).await
            }
        };
        tell(|| format!("move {topic} {subscription} {to:?}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach(match to {
                Move::Skip(_) => "skips",
                Move::SkipAll => "skips of all",
                _ => "resets",
            });
        }
        let mut model = self.model.borrow_mut();
        let last = model.message_last();
        model
            .topic(&topic)
            .move_ends(subscription, (None, to), &gone, outcome.is_ok(), ticket, last);
        drop(model);
        self.changed(&topic);
    }

    async fn seek(self: Rc<Self>, client: Rc<Client>, to: Move) {
        let _request = self.request("seek");
        let (Some((subscription, cursor)), Some((id, key))) = (client.subscription(), client.attached())
        else {
            return self.changed(&client.topic);
        };
        let topic = client.topic.clone();
        let at = match to {
            Move::To(position) => StartAt::At(position),
            Move::Earliest => StartAt::Earliest,
            _ => StartAt::Latest,
        };
        let (ticket, gone) = {
            let mut model = self.model.borrow_mut();
            let known = model.topic(&topic);
            (
                known.begins(),
                known.move_begins(&subscription, Some(&cursor), to),
            )
        };
        let place = SeekTo::Place {
            at,
            remaining: Vec::new(),
        };
        tell(|| format!("seek {topic} {subscription} {cursor:?} {to:?}"));
        let who = pharos_auth::Principal::anonymous("sim");
        let outcome = client.shard.caller(&who).seek(id, key, place).await;
        tell(|| format!("seek {topic} {subscription} {cursor:?}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach("seeks");
        }
        let mut model = self.model.borrow_mut();
        let last = model.message_last();
        let done = outcome.is_ok();
        model
            .topic(&topic)
            .move_ends(&subscription, (Some(&cursor), to), &gone, done, ticket, last);
        drop(model);
        self.changed(&topic);
    }
}

type Pinned<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

/// A request to run.
pub(crate) type Request = Pinned<()>;
