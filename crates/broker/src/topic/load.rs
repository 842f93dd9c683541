//! Loading a topic on its home shard, once, however many ask.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_managed_ledger::{ManagedLedger, OpenError, OpenMode};
use pharos_metadata::{Memory, MetadataStore};
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Domain, TopicName};
use tokio::sync::oneshot;

use super::durable_cursors::DurableCursors;
use super::past::Past;
use super::unload::Resting;
use super::{Attached, Links, Publishing, State, Stored, Topic, TopicContext, TopicLog, cursor_store};
use crate::error::TopicError;
use crate::ids::{IdMap, TopicId};
use crate::shard::Shard;

/// Topics of a shard that a clean stop closes at a time.
const CLOSING_MAX: usize = 256;

/// Whether a topic may be created on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It must exist.
    Existing,
    /// It is created where the policies allow that.
    Create,
}

/// The topics whose home a shard is.
#[derive(Default)]
pub(crate) struct Topics {
    pub(super) by_name: RefCell<HashMap<TopicName, Place>>,
    by_id: RefCell<IdMap<TopicId, Rc<Topic>>>,
    /// Unloaded because they were not used.
    pub(super) resting: RefCell<Resting>,
    pub(super) failures: RefCell<super::fault::Failures>,
    /// What those counted that are not loaded any more.
    pub(crate) past: RefCell<Past>,
}

pub(super) type Waiters = Vec<oneshot::Sender<Result<Rc<Topic>, TopicError>>>;

pub(super) enum Place {
    /// Being loaded, let go or deleted; these wait.
    Loading(Waiters),
    Loaded(Rc<Topic>),
}

impl Topics {
    pub(crate) fn by_id(&self, id: TopicId) -> Option<Rc<Topic>> {
        self.by_id.borrow().get(&id).cloned()
    }

    pub(crate) fn by_name(&self, name: &TopicName) -> Option<Rc<Topic>> {
        match self.by_name.borrow().get(name)? {
            Place::Loaded(topic) => Some(topic.clone()),
            Place::Loading(_) => None,
        }
    }

    /// A topic is loaded no longer; what it counted stays.
    pub(super) fn leave(&self, topic: &Topic) {
        if self.by_id.borrow_mut().remove(&topic.cx.id).is_some() {
            self.past.borrow_mut().add(topic);
        }
    }

    pub(crate) fn all(&self) -> Vec<Rc<Topic>> {
        self.by_id.borrow().values().cloned().collect()
    }

    /// Takes out this topic, and no other of its name.
    fn remove(&self, topic: &Topic) {
        let mut by_name = self.by_name.borrow_mut();
        if matches!(by_name.get(&topic.cx.name), Some(Place::Loaded(it)) if it.cx.id == topic.cx.id) {
            by_name.remove(&topic.cx.name);
        }
        self.leave(topic);
    }
}

impl Shard {
    /// The loaded topic; loads it when it is not. Only on its home shard.
    pub(crate) async fn topic(
        self: &Rc<Self>,
        name: &TopicName,
        access: Access,
    ) -> Result<Rc<Topic>, TopicError> {
        debug_assert_eq!(self.shared.placement.shard_of(name), self.id);
        if let Some(waiter) = self.topics.join(name)? {
            return match waiter {
                Joined::Here(topic) => Ok(topic),
                Joined::Later(receiver) => receiver.await.unwrap_or_else(|_| Err(crate::error::Gone.into())),
            };
        }
        let began = clock::now();
        let outcome = self.load(name, access).await;
        match &outcome {
            Ok(_) => self.tally().loaded(clock::now().since(began)),
            Err(TopicError::Metadata(_) | TopicError::Storage(_)) => self.tally().load_failed(),
            Err(_) => {}
        }
        let waiters = {
            let mut by_name = self.topics.by_name.borrow_mut();
            let waiters = match by_name.remove(name) {
                Some(Place::Loading(waiters)) => waiters,
                _ => Vec::new(),
            };
            if let Ok(topic) = &outcome {
                self.topics.resting.borrow_mut().remove(name);
                by_name.insert(name.clone(), Place::Loaded(topic.clone()));
                self.topics.by_id.borrow_mut().insert(topic.cx.id, topic.clone());
            }
            waiters
        };
        for waiter in waiters {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(outcome.clone());
        }
        outcome
    }

    async fn load(self: &Rc<Self>, name: &TopicName, access: Access) -> Result<Rc<Topic>, TopicError> {
        self.ensure_topic(name, access == Access::Create).await?;
        let (engine, metadata) = self.stores_of(name);
        let durability = self.effective_policies(name).durability;
        let ledger = ManagedLedger::open(
            &storage_name(name),
            engine,
            metadata,
            pharos_managed_ledger::Options {
                durability,
                ..self.shared.options.managed_ledger.clone()
            },
            OpenMode::Create,
            clock::wall_ms(),
        )
        .await
        .map_err(|error| open_error(&error))?;
        let cursors = cursor_store::open(&ledger)
            .await
            .map_err(|error| open_error(&error))?;
        let id = TopicId {
            home: self.id,
            number: self.number(),
        };
        let producers = super::Producers::new(&ledger.properties());
        // No await between here and the topic's place among the loaded ones: a change of policies, and the loss of the topic to
        // another broker, find it there, or came before.
        if !self.is_home_of(name) {
            return Err(TopicError::NotServed(name.to_string()));
        }
        let policy_version = self.shared.catalog.policy_version();
        let policies = Rc::new(self.effective_policies(name));
        let mut ledger = ledger;
        ledger.set_durability(policies.durability);
        let mut state = State {
            stored: Stored {
                log: TopicLog::new(ledger),
                publishing: Publishing {
                    producers,
                    throttle: super::Throttle::default(),
                    pending: std::collections::VecDeque::new(),
                    draining: Vec::new(),
                    watching: false,
                    fault: None,
                    stages: super::HomeStages::default(),
                    counters: super::Counters::default(),
                    rate_in: super::RateWindow::new(clock::wall_ms()),
                },
                cursors: DurableCursors::new(cursors),
                commits: super::Commits::default(),
                closing: false,
                policies,
                policy_version,
                oldest: None,
                evictions: super::Evictions::default(),
                last_used_ms: clock::wall_ms(),
            },
            attached: Attached {
                subscriptions: HashMap::new(),
                consumers: HashMap::new(),
                links: Links::new(self.shared_shard_count()),
                subscribes: super::Subscribes::default(),
                sent: crate::feed::Sent::default(),
            },
        };
        cursor_store::restore(&mut state);
        Ok(Rc::new_cyclic(|me| Topic {
            cx: TopicContext {
                id,
                name: name.clone(),
                codec: self.shared.codec,
                shard: Rc::downgrade(self),
                me: me.clone(),
            },
            used_ms: Cell::new(clock::wall_ms()),
            state: RefCell::new(state),
        }))
    }

    /// Where a topic keeps what it knows: a non-persistent one for as long as it is loaded only.
    pub(super) fn stores_of(&self, name: &TopicName) -> (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) {
        match name.domain() {
            Domain::Persistent => (self.shared.engine.clone(), self.shared.metadata.clone()),
            Domain::NonPersistent => (Arc::new(MemoryEngine::new()), Arc::new(Memory::new())),
        }
    }

    /// Closes a loaded topic; it loads again when it is asked for. A non-persistent one does not exist any more,
    /// until a client makes it again by using it.
    pub(crate) async fn unload(self: &Rc<Self>, name: &TopicName) {
        // Refused only by a topic that a stop is closing.
        let Ok(held) = self.hold(name, |_, _| Ok(())).await else {
            return;
        };
        if let Some(topic) = held.topic() {
            topic.close().await;
        }
        self.shared.catalog.note_unloaded(name);
        let waiters = held.let_go();
        if waiters.is_empty() {
            return;
        }
        let again = match name.domain() {
            Domain::Persistent => self.topic(name, Access::Existing).await,
            Domain::NonPersistent => Err(TopicError::Closing(name.to_string())),
        };
        for waiter in waiters {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(again.clone());
        }
    }

    /// Closes all topics, for a clean stop: many at a time, because each waits for the device and they can wait together.
    pub(crate) async fn close_topics(self: &Rc<Self>) {
        let open = Rc::new(RefCell::new(self.topics.all()));
        let closers = open.borrow().len().min(CLOSING_MAX);
        let mut running = Vec::with_capacity(closers);
        for _ in 0..closers {
            let (done, finished) = oneshot::channel();
            let (shard, open) = (self.clone(), open.clone());
            spawn_local(async move {
                loop {
                    let Some(topic) = open.borrow_mut().pop() else {
                        break;
                    };
                    topic.close().await;
                    shard.topics.remove(&topic);
                }
                // The caller waits no more when the stop was given up.
                let _ = done.send(());
            });
            running.push(finished);
        }
        for finished in running {
            // A closer that panicked was logged by the runtime; the others take its topics.
            let _ = finished.await;
        }
    }
}

// ---- topics that went to other brokers ------------------------------------------------------------------------------

impl Shard {
    /// Follows what other brokers change of tenants, namespaces, topics and policies.
    pub(crate) async fn run_catalog(self: Rc<Self>) {
        if self.shared.metadata.has_other_writers() {
            self.shared.catalog.follow().await;
        }
    }

    /// Closes what is loaded here of topics that another broker serves, or may serve, from now on.
    pub(crate) async fn run_losses(self: Rc<Self>) {
        let mut losses = self.shared.placement.losses();
        // The end of them is that of the process.
        while losses.changed().await.is_ok() {
            let lost: Vec<TopicName> = {
                let by_name = self.topics.by_name.borrow();
                let lost = by_name.keys().filter(|name| !self.is_home_of(name));
                lost.cloned().collect()
            };
            if lost.is_empty() {
                continue;
            }
            tracing::info!(
                topics = lost.len(),
                shard = self.id.0,
                "closing topics that are not this broker's any more"
            );
            // Not waited for: their clients go at once, and another loss is heard meanwhile.
            for names in lost.chunks(lost.len().div_ceil(CLOSING_MAX)) {
                let (shard, names) = (self.clone(), names.to_vec());
                spawn_local(async move {
                    for name in names {
                        shard.unload(&name).await;
                    }
                });
            }
        }
    }
}

enum Joined {
    Here(Rc<Topic>),
    Later(oneshot::Receiver<Result<Rc<Topic>, TopicError>>),
}

impl Topics {
    /// Whether a topic is neither loaded nor about to be.
    pub(super) fn is_nowhere(&self, name: &TopicName) -> bool {
        !self.by_name.borrow().contains_key(name)
    }

    /// From now on each request for the topic waits; `false` when it is not the one that is loaded.
    pub(super) fn begin_rest(&self, topic: &Rc<Topic>) -> bool {
        let mut by_name = self.by_name.borrow_mut();
        let place = by_name.get_mut(&topic.cx.name);
        let loaded = place.filter(|place| matches!(place, Place::Loaded(it) if Rc::ptr_eq(it, topic)));
        let Some(place) = loaded else { return false };
        *place = Place::Loading(Vec::new());
        true
    }

    /// The topic is gone; these want it.
    pub(super) fn end_rest(&self, topic: &Topic) -> Waiters {
        self.leave(topic);
        match self.by_name.borrow_mut().remove(&topic.cx.name) {
            Some(Place::Loading(waiters)) => waiters,
            _ => Vec::new(),
        }
    }

    /// The topic, or a place among those who wait for it; `None` when the caller is the one to load it.
    fn join(&self, name: &TopicName) -> Result<Option<Joined>, TopicError> {
        let mut by_name = self.by_name.borrow_mut();
        match by_name.get_mut(name) {
            Some(Place::Loaded(topic)) if topic.state.borrow().stored.closing => {
                Err(TopicError::Closing(name.to_string()))
            }
            Some(Place::Loaded(topic)) => {
                topic.touch();
                Ok(Some(Joined::Here(topic.clone())))
            }
            Some(Place::Loading(waiters)) => {
                let (sender, receiver) = oneshot::channel();
                waiters.push(sender);
                Ok(Some(Joined::Later(receiver)))
            }
            None => {
                by_name.insert(name.clone(), Place::Loading(Vec::new()));
                Ok(None)
            }
        }
    }
}

/// The name under which a topic's log is kept: `tenant/namespace/persistent/local`, the local part percent-encoded.
#[must_use]
pub fn storage_name(name: &TopicName) -> String {
    let mut local = String::new();
    for byte in name.local().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => local.push(char::from(byte)),
            other => local.push_str(&format!("%{other:02X}")),
        }
    }
    format!("{}/{}/{local}", name.namespace(), name.domain().as_str())
}

fn open_error(error: &OpenError) -> TopicError {
    TopicError::Storage(super::publish::chain(error))
}
