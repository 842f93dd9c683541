//! Producers of a topic and their names: access modes, name conflicts, the topic epoch.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_catalog::policy::EffectivePolicies;
use pharos_feed::ids::{ConnectionId, ProducerKey};
use pharos_mesh::{ConnectionEvent, ProducerRef};
use pharos_requests::error::{ProducerError, chain};
use pharos_runtime::spawn_local;
use tokio::sync::oneshot;

use super::attached_producers::AttachedProducers;
use super::deduplication::Admitting;
use super::limits::check_limits;
use super::quota::Quotas;
use super::replication::{self, Replicating};
use super::{
    AccessMode, ExclusiveTurn, ProducerGrant, ProducerInfo, ProducerRequest, Publishing, State, Stored,
    Topic, TopicContext,
};

/// Attached producer.
pub(crate) struct Producer {
    pub(crate) key: ProducerKey,
    pub(crate) name: Rc<str>,
    pub(crate) connection: ConnectionId,
    pub(crate) producer_id: u64,
    pub(crate) epoch: u64,
    pub(crate) access_mode: AccessMode,
    pub(crate) info: ProducerInfo,
    pub(crate) counters: ProducerCounters,
}

impl Producer {
    fn new(cx: &TopicContext, request: &ProducerRequest) -> Self {
        let number = cx.shard.global_number();
        let name = request.name.clone().unwrap_or_else(|| {
            let (cluster, instance) = (&cx.options().cluster_name, cx.shard.shared.instance);
            format!("{cluster}-{instance}-{number}")
        });
        Self {
            key: ProducerKey(number),
            name: name.into(),
            connection: request.connection,
            producer_id: request.producer_id,
            epoch: request.epoch,
            access_mode: request.access_mode,
            info: request.info.clone(),
            counters: ProducerCounters::default(),
        }
    }

    /// True if another cluster's replicator uses it.
    pub(super) fn is_replicator(&self) -> bool {
        replication::is_replicator(&self.name)
    }

    /// As its connection knows it.
    pub(super) fn known_as(&self) -> ProducerRef {
        ProducerRef {
            id: self.producer_id,
            key: self.key,
        }
    }

    fn tell_closed(&self, cx: &TopicContext) {
        let event = ConnectionEvent::ProducerClosed {
            producer: self.known_as(),
            next: cx.next_owner(),
        };
        cx.tell_connection(self.connection, event);
    }
}

/// Counters of a producer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProducerCounters {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

struct Waiting {
    producer: Producer,
    turn: oneshot::Sender<ExclusiveTurn>,
}

/// The producers of a topic.
#[derive(Default)]
pub(crate) struct Producers {
    attached: AttachedProducers,
    /// In the order in which they came: keys rise.
    waiting: BTreeMap<ProducerKey, Waiting>,
    /// The topic epoch, which rises with each exclusive holder; `None` until there was one.
    epoch: Option<u64>,
    /// The one that is stored. No producer is told of a later one.
    epoch_stored: Option<u64>,
    /// Lock held while storing an epoch: an older one never follows a newer.
    epoch_turn: Rc<tokio::sync::Mutex<()>>,
}

/// A conflict that may resolve itself when the other side turns out to be dead.
pub(super) enum Admission {
    Granted(ProducerGrant),
    /// The holder lives on another connection: ask whether it still answers.
    AskHolder(ConnectionId, ProducerError),
}

/// State of the name that a producer requests.
enum Claim {
    /// Free name, or none requested.
    Free,
    /// This producer, which it was before it came back.
    Replaces(ProducerKey),
    /// A producer of this connection.
    Held(ConnectionId, ProducerError),
}

impl Producers {
    /// No producers yet, on a topic with these stored properties.
    pub(crate) fn new(properties: &BTreeMap<String, String>) -> Self {
        let epoch = properties.get(EPOCH_PROPERTY).and_then(|text| text.parse().ok());
        Self {
            epoch,
            epoch_stored: epoch,
            ..Self::default()
        }
    }

    pub(crate) fn get_mut(&mut self, key: ProducerKey) -> Option<&mut Producer> {
        self.attached.get_mut(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Producer> {
        self.attached.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.attached.len()
    }

    /// Attached producers of other clusters' replicators.
    pub(crate) fn replicators(&self) -> usize {
        self.attached.replicators()
    }

    /// Producers that wait for exclusive access.
    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// The topic epoch; `None` until there was an exclusive holder.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// A name that is in use: the same producer come back, or a conflict.
    fn claim(&self, request: &ProducerRequest) -> Claim {
        let Some(name) = &request.name else {
            return Claim::Free;
        };
        let Some(holder) = self.attached.by_name(name) else {
            return Claim::Free;
        };
        let same_place = holder.connection == request.connection && holder.producer_id == request.producer_id;
        if same_place && request.epoch > holder.epoch {
            return Claim::Replaces(holder.key);
        }
        let refusal = format!("producer with name '{name}' is already connected to topic");
        Claim::Held(holder.connection, ProducerError::Busy(refusal))
    }

    /// Everything about other producers, and what the policies say, that refuses a producer. Changes nothing.
    fn check(
        &self,
        cx: &TopicContext,
        policies: &EffectivePolicies,
        request: &ProducerRequest,
    ) -> Result<Claim, ProducerError> {
        let claim = self.claim(request);
        if matches!(claim, Claim::Held(..)) {
            return Ok(claim);
        }
        let replaced = match claim {
            Claim::Replaces(earlier) => Some(earlier),
            Claim::Free | Claim::Held(..) => None,
        };
        let others = self.attached.beside(replaced, &request.info.address);
        check_limits(cx, policies, request, others)?;
        if policies.encryption_required && !request.encrypted {
            let text = format!("Encryption is required in topic {}", cx.name);
            return Err(ProducerError::Encryption(text));
        }
        if let (Some(held), Some(now)) = (request.topic_epoch, self.epoch)
            && held < now
        {
            return Err(ProducerError::Fenced(format!(
                "producer's topic epoch {held} is older than {now}"
            )));
        }
        let is_waited = !self.waiting.is_empty();
        let has_others = is_waited || others.all > 0;
        let is_exclusive = is_waited || others.exclusive > 0;
        let refusal = match request.access_mode {
            AccessMode::Shared if is_exclusive => {
                ProducerError::Busy("topic has an existing exclusive producer".to_owned())
            }
            AccessMode::Exclusive if has_others => {
                let text = "topic has existing producers, exclusive access is refused";
                ProducerError::Fenced(text.to_owned())
            }
            _ => return Ok(claim),
        };
        Err(refusal)
    }

    fn attach(&mut self, producer: Producer, topic_epoch: Option<u64>) -> ProducerGrant {
        let grant = ProducerGrant {
            key: producer.key,
            name: producer.name.to_string(),
            topic_epoch,
            last_sequence_id: -1,
            turn: None,
        };
        self.attached.insert(producer);
        grant
    }

    /// The epoch for a new exclusive holder; one that comes back with the current epoch keeps it.
    fn next_epoch(&mut self, held: Option<u64>) -> u64 {
        let now = self.epoch;
        if let (Some(held), Some(now)) = (held, now)
            && held == now
        {
            return held;
        }
        let next = now.map_or(0, |now| now + 1);
        self.epoch = Some(next);
        next
    }

    /// A producer left. Returns whether it was the last.
    fn remove(&mut self, key: ProducerKey) -> bool {
        self.waiting.remove(&key);
        self.attached.remove(key).is_some() && self.len() == 0
    }

    /// Gives exclusive access to the next in line: no producer has it.
    fn pass_turn(&mut self, cx: &TopicContext) {
        let Some(me) = cx.me() else { return };
        // The next in line, unless it is gone itself.
        while let Some((_, Waiting { producer, turn })) = self.waiting.pop_first() {
            if turn.is_closed() {
                continue;
            }
            let epoch = self.next_epoch(None);
            let key = producer.key;
            self.attach(producer, Some(epoch));
            spawn_local(async move { me.announce_turn(key, epoch, turn).await });
            return;
        }
    }

    /// Closes one producer; its client connects again.
    pub(super) fn close(&mut self, cx: &TopicContext, key: ProducerKey) {
        if let Some(producer) = self.attached.remove(key) {
            producer.tell_closed(cx);
        }
    }

    /// Closes every producer; their clients connect again.
    pub(super) fn close_all(&mut self, cx: &TopicContext) {
        for producer in self.attached.take_all() {
            producer.tell_closed(cx);
        }
    }
}

impl Publishing {
    fn admit(&mut self, cx: &TopicContext, request: &ProducerRequest, claim: Claim) -> Admission {
        match claim {
            Claim::Free => {}
            Claim::Replaces(earlier) => _ = self.producers.attached.remove(earlier),
            Claim::Held(holder, refusal) => return Admission::AskHolder(holder, refusal),
        }
        let epoch = self.producers.epoch;
        let others = self.producers.len() + self.producers.waiting.len();
        let producer = Producer::new(cx, request);
        match request.access_mode {
            AccessMode::Shared => Admission::Granted(self.producers.attach(producer, epoch)),
            AccessMode::WaitForExclusive if others > 0 => {
                let (turn, receiver) = oneshot::channel();
                let (key, name) = (producer.key, producer.name.to_string());
                let waiting = Waiting { producer, turn };
                self.producers.waiting.insert(key, waiting);
                Admission::Granted(ProducerGrant {
                    key,
                    name,
                    topic_epoch: None,
                    last_sequence_id: -1,
                    turn: Some(receiver),
                })
            }
            AccessMode::ExclusiveWithFencing => {
                self.producers.waiting.clear();
                self.close_all_producers(cx);
                let epoch = self.producers.next_epoch(request.topic_epoch);
                Admission::Granted(self.producers.attach(producer, Some(epoch)))
            }
            AccessMode::Exclusive | AccessMode::WaitForExclusive => {
                let epoch = self.producers.next_epoch(request.topic_epoch);
                Admission::Granted(self.producers.attach(producer, Some(epoch)))
            }
        }
    }

    /// Closes every producer; their clients connect again, and send again what waited.
    pub(super) fn close_all_producers(&mut self, cx: &TopicContext) {
        self.producers.close_all(cx);
        self.drop_held(cx);
    }
}

impl Stored {
    /// Everything that refuses a producer. Changes nothing.
    fn check_admission(&self, cx: &TopicContext, request: &ProducerRequest) -> Result<Claim, ProducerError> {
        if self.closing {
            return Err(pharos_requests::error::TopicError::Closing(cx.name.to_string()).into());
        }
        if let Some(fault) = &self.publishing.fault {
            return Err(ProducerError::Storage(fault.clone()));
        }
        if self.log.ledger.is_shadow() {
            let text = format!("{} is a shadow topic: publish to its source", cx.name);
            return Err(pharos_requests::error::TopicError::NotAllowed(text).into());
        }
        if self.log.ledger.is_terminated() {
            return Err(ProducerError::Terminated(cx.name.to_string()));
        }
        self.publishing.producers.check(cx, &self.policies, request)
    }

    fn admit(&mut self, cx: &TopicContext, request: &ProducerRequest) -> Result<Admission, ProducerError> {
        let claim = self.check_admission(cx, request)?;
        Ok(self.publishing.admit(cx, request, claim))
    }
}

impl State {
    /// A producer left.
    pub(super) fn on_close_producer(&mut self, cx: &TopicContext, key: ProducerKey) {
        self.let_through_of(cx, key);
        let is_closing = self.stored.closing;
        let producers = &mut self.stored.publishing.producers;
        if producers.remove(key) && !is_closing {
            producers.pass_turn(cx);
        }
    }
}

impl Topic {
    /// Lets a producer in, or says why not.
    pub async fn add_producer(&self, request: ProducerRequest) -> Result<ProducerGrant, ProducerError> {
        self.catch_up_policies();
        Quotas(self).check().await?;
        let deduplication = Admitting(self);
        deduplication.ready().await?;
        Replicating(self).ready().await?;
        for _ in 0..3 {
            let admission = self.state.borrow_mut().stored.admit(&self.cx, &request)?;
            match admission {
                Admission::Granted(mut grant) => {
                    let told = match self.store_epoch().await {
                        Ok(()) => deduplication.last_sequence_id(&grant.name).await,
                        Err(error) => Err(error),
                    };
                    match told {
                        Ok(last) => grant.last_sequence_id = last,
                        Err(error) => {
                            self.state.borrow_mut().on_close_producer(&self.cx, grant.key);
                            return Err(error);
                        }
                    }
                    return Ok(grant);
                }
                Admission::AskHolder(holder, refusal) => {
                    if holder == request.connection || self.cx.holder_answers(holder).await {
                        return Err(refusal);
                    }
                }
            }
        }
        Err(ProducerError::Busy(
            "producer is already connected to topic".to_owned(),
        ))
    }

    /// Checks that a producer would be admitted now, without changes: called before anything is created for it.
    pub async fn check_producer(&self, request: &ProducerRequest) -> Result<(), ProducerError> {
        self.catch_up_policies();
        Quotas(self).check().await?;
        for _ in 0..3 {
            let claim = self.state.borrow().stored.check_admission(&self.cx, request)?;
            match claim {
                Claim::Free | Claim::Replaces(_) => return Ok(()),
                Claim::Held(holder, refusal) => {
                    if holder == request.connection || self.cx.holder_answers(holder).await {
                        return Err(refusal);
                    }
                }
            }
        }
        Ok(())
    }

    /// A topic epoch is a promise to the producer that holds it: it is stored before it is told.
    ///
    /// # Errors
    /// `Storage`; whether it is stored is unknown, and the next one to need it stores it again.
    async fn store_epoch(&self) -> Result<(), ProducerError> {
        let turn = self.state.borrow().stored.publishing.producers.epoch_turn.clone();
        let _turn = turn.lock().await;
        let (epoch, save) = {
            let stored = &self.state.borrow().stored;
            let producers = &stored.publishing.producers;
            let Some(epoch) = producers.epoch else {
                return Ok(());
            };
            if producers.epoch_stored == Some(epoch) {
                return Ok(());
            }
            let property = (EPOCH_PROPERTY.to_owned(), Some(epoch.to_string()));
            (epoch, stored.log.ledger.set_properties(vec![property]))
        };
        save.await
            .map_err(|error| ProducerError::Storage(chain(&error)))?;
        self.state.borrow_mut().stored.publishing.producers.epoch_stored = Some(epoch);
        Ok(())
    }

    /// Tells a producer that its turn has come, as soon as its epoch is stored. It was promised the turn, so a store that
    /// fails is asked again for as long as the producer holds it.
    async fn announce_turn(&self, key: ProducerKey, epoch: u64, turn: oneshot::Sender<ExclusiveTurn>) {
        while let Err(error) = self.store_epoch().await {
            tracing::warn!(topic = %self.cx.name, %error, "the next exclusive producer waits for its epoch to be stored");
            tokio::time::sleep(EPOCH_RETRY).await;
            let mut state = self.state.borrow_mut();
            if state.stored.publishing.producers.get_mut(key).is_none() {
                return;
            }
        }
        let name = {
            let producers = &mut self.state.borrow_mut().stored.publishing.producers;
            producers.get_mut(key).map(|producer| Rc::clone(&producer.name))
        };
        let Some(name) = name else { return };
        // A topic that fails closes its producers: they hear of that.
        let Ok(last_sequence_id) = Admitting(self).last_sequence_id(&name).await else {
            return;
        };
        let turned = ExclusiveTurn {
            epoch,
            last_sequence_id,
        };
        if turn.send(turned).is_err() {
            self.state.borrow_mut().on_close_producer(&self.cx, key);
        }
    }
}

const EPOCH_PROPERTY: &str = "pulsar.topicEpoch";

/// An epoch that could not be stored for a producer that was promised its turn is stored again after this.
const EPOCH_RETRY: Duration = Duration::from_secs(1);
