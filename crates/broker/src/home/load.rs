//! Loading a topic on its home shard, once, however many ask.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pharos_catalog::{Shadows, carrier_of};
use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_managed_ledger::forget_other_shadow;
use pharos_metadata::{Memory, MetadataStore};
use pharos_requests::error::{TopicError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_topic::{Access, ShadowOf, Staying, StoredTopic, Topic};
use pharos_types::{Domain, TopicName};
use tokio::sync::oneshot;

use super::Home;
use super::table::Joined;

/// Topics of a shard that a clean stop closes at a time.
const CLOSING_MAX: usize = 256;

impl Home {
    /// The loaded topic; loads it when it is not. Only on its home shard.
    pub(crate) async fn topic(
        self: &Rc<Self>,
        name: &TopicName,
        access: Access,
    ) -> Result<Rc<Topic>, TopicError> {
        debug_assert_eq!(self.cx.shared.placement.shard_of(name), self.cx.id);
        while let Some(waiter) = self.topics.join(name)? {
            let receiver = match waiter {
                Joined::Here(topic) => return Ok(topic),
                Joined::Later(receiver) => receiver,
            };
            let topic = receiver
                .await
                .unwrap_or_else(|_| Err(pharos_requests::error::Gone.into()))?;
            // Between the answer and now it may have been let go again: that is waited for like any other time.
            if !Staying(&topic).is_closing() {
                Staying(&topic).touch();
                return Ok(topic);
            }
        }
        let began = clock::now();
        let outcome = self.load(name, access).await;
        match &outcome {
            Ok(_) => self.cx.tally.loaded(clock::now().since(began)),
            Err(TopicError::Metadata(_) | TopicError::Storage(_)) => self.cx.tally.load_failed(),
            Err(_) => {}
        }
        let waiters = self.topics.end_load(name, outcome.as_ref().ok());
        for waiter in waiters {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(outcome.clone());
        }
        outcome
    }

    /// A topic that its client made sure of. If it is gone, it was deleted since: the client comes again, and makes it.
    pub(crate) async fn ensured_topic(self: &Rc<Self>, name: &TopicName) -> Result<Rc<Topic>, TopicError> {
        match self.topic(name, Access::Existing).await {
            Err(TopicError::NotFound(name)) => Err(TopicError::Closing(name)),
            outcome => outcome,
        }
    }

    async fn load(self: &Rc<Self>, name: &TopicName, access: Access) -> Result<Rc<Topic>, TopicError> {
        self.cx
            .shared
            .ensure_topic(name, access == Access::Create)
            .await?;
        let (engine, metadata) = self.stores_of(name);
        let catalog = &self.cx.shared.catalog;
        let policies = catalog.effective_policies(name);
        let shadows = Shadows::of(catalog);
        let shadow_of = shadows.source_of(name).map(|source| ShadowOf {
            is_shown: shadows.is_shown_by(name, &source),
            source,
        });
        let options = pharos_managed_ledger::Options {
            durability: policies.durability,
            replication: policies.persistence.replication,
            affinity: policies.bookie_affinity,
            is_followed: shadows.are_there(name),
            ..self.cx.shared.options.managed_ledger.of(name.domain())
        };
        self.cx.shared.placement.confirm(name).await?;
        self.forget_old_carrier(name, shadow_of.as_ref()).await?;
        let stored =
            StoredTopic::open(name, shadow_of, options, engine, metadata, self.cx.shared.codec).await?;
        // No await between here and the topic's place among the loaded ones: a change of policies, and the loss of the topic to
        // another broker, find it there, or came before.
        if !self.cx.is_home_of(name) {
            return Err(TopicError::NotServed(name.to_string()));
        }
        Ok(stored.load(name, &self.cx, &self.host))
    }

    /// A carrier of an earlier topic of its source's name is deleted before one of today's is made.
    async fn forget_old_carrier(&self, name: &TopicName, of: Option<&ShadowOf>) -> Result<(), TopicError> {
        let Some(of) = of.filter(|_| carrier_of(name).is_some()) else {
            return Ok(());
        };
        let (engine, metadata) = self.stores_of(name);
        let forgotten = forget_other_shadow((name, &of.source), engine, &*metadata).await;
        forgotten.map_err(|error| TopicError::Storage(chain(&error)))
    }

    /// Returns the stores of a topic; those of a non-persistent topic last only while it is loaded.
    pub(super) fn stores_of(&self, name: &TopicName) -> (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) {
        match name.domain() {
            Domain::Persistent => (self.cx.shared.engine.clone(), self.cx.shared.metadata.clone()),
            Domain::NonPersistent => (Arc::new(MemoryEngine::new()), Arc::new(Memory::new())),
        }
    }

    /// Closes a loaded topic; it loads again when it is asked for. A non-persistent one does not exist any more,
    /// until a client makes it again by using it.
    pub(crate) async fn unload(self: &Rc<Self>, name: &TopicName) {
        // Refused only by a topic that a stop is closing.
        let Ok(held) = self.hold(name, |_| Ok(())).await else {
            return;
        };
        if let Some(topic) = held.topic() {
            topic.close().await;
        }
        self.cx.shared.catalog.note_unloaded(name);
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
            let (home, open) = (self.clone(), open.clone());
            spawn_local(async move {
                loop {
                    let Some(topic) = open.borrow_mut().pop() else {
                        break;
                    };
                    topic.close().await;
                    home.topics.remove(&topic);
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

impl Home {
    /// Follows what other brokers change of tenants, namespaces, topics and policies.
    pub(crate) async fn run_catalog(self: Rc<Self>) {
        if self.cx.shared.metadata.has_other_writers() {
            self.cx.shared.catalog.follow().await;
        }
    }

    /// Closes what is loaded here of topics that another broker serves, or may serve, from now on.
    pub(crate) async fn run_losses(self: Rc<Self>) {
        let mut losses = self.cx.shared.placement.losses();
        // The end of them is that of the process.
        while losses.changed().await.is_ok() {
            // Not waited for: their clients go at once, and another loss is heard meanwhile.
            drop(self.begin_to_close_foreign());
        }
    }

    /// Closes what is loaded here and is not this broker's; resolves when that is done.
    pub(crate) async fn close_foreign(self: &Rc<Self>) {
        for closed in self.begin_to_close_foreign() {
            // One that panicked was logged by the runtime.
            let _ = closed.await;
        }
    }

    /// Many at a time; each of what is given back resolves when its part is closed.
    fn begin_to_close_foreign(self: &Rc<Self>) -> Vec<oneshot::Receiver<()>> {
        let lost = self.topics.names(|name| !self.cx.is_home_of(name));
        if lost.is_empty() {
            return Vec::new();
        }
        tracing::info!(
            topics = lost.len(),
            shard = self.cx.id.0,
            "closing topics that are not this broker's any more"
        );
        let mut closing = Vec::with_capacity(CLOSING_MAX);
        for names in lost.chunks(lost.len().div_ceil(CLOSING_MAX)) {
            let (home, names) = (self.clone(), names.to_vec());
            let (done, closed) = oneshot::channel();
            spawn_local(async move {
                for name in names {
                    home.unload(&name).await;
                }
                // A loss is not waited for.
                let _ = done.send(());
            });
            closing.push(closed);
        }
        closing
    }
}
