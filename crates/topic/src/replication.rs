//! Replication of a topic to other clusters: which of them its policies name, the cursor of each, and what of the topic its replicator
//! ([`pharos_replication`]) gets to see.
//!
//! The cursor of a replicator is a system cursor, moved once per [`cursor_flush_interval`](pharos_mesh::Options::cursor_flush_interval): a
//! replicator that begins again after a crash sends what it sent since again. No producer is let in before the cursors that a new
//! topic needs are durable, so whatever is acknowledged is before none of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_catalog::schema::SchemaVersion;
use pharos_managed_ledger::DurableWatch;
use pharos_replication::{
    ClusterData, Replicated, ReplicatorCounts, ReplicatorMeter, ReplicatorSource, SourceEntry, SourceFault,
    SourceSchema, cluster_of_cursor, cluster_of_producer, cursor_name, replicate,
};
use pharos_requests::error::{CursorError, ProducerError, chain};
use pharos_runtime::{Rate, clock, spawn_local};
use pharos_types::{Ordinal, TopicName};
use tokio::sync::oneshot;

use super::replicated_subscriptions::{SubscriptionReplication, WantedMoves, since_of, since_properties};
use super::{Stored, Topic, TopicContext};

/// Interval between checks for the end of a transaction that holds readers back.
const OPEN_TRANSACTION_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a loaded topic waits for policies set by other brokers, before it deletes a cursor that no policy names.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Pause before a cursor that could not be stored is stored again.
const CURSOR_RETRY: Duration = Duration::from_secs(1);

/// True if a producer of this name is another cluster's replicator.
pub(super) fn is_replicator(producer: &str) -> bool {
    cluster_of_producer(producer).is_some()
}

/// The replicators of a topic.
#[derive(Default)]
pub(crate) struct Replication {
    /// State of replicated subscriptions, once there was one.
    pub(super) subscriptions: Option<Box<SubscriptionReplication>>,
    /// Cursor moves requested by other clusters.
    pub(super) wanted: WantedMoves,
    running: BTreeMap<Box<str>, Replicator>,
    /// Callers that wait until all replicators have a durable cursor; told by dropping the sender.
    waiting: Vec<oneshot::Sender<()>>,
    /// True after the wait for policies set by other brokers; `None` if that wait has not begun.
    settling: Option<bool>,
}

/// Replicator to one cluster.
struct Replicator {
    meter: Rc<ReplicatorMeter>,
    /// Its cursor is durable.
    is_durable: bool,
    /// Reason why its cursor is not durable.
    fault: Option<String>,
    /// From here on everything went there that is for there.
    since: Ordinal,
    /// Stored data of the cluster, as of the last check.
    cluster: Option<ClusterData>,
    /// Dropped, it ends.
    _stop: oneshot::Sender<()>,
}

/// A replicator's numbers.
#[derive(Clone, Debug)]
pub struct ReplicatorFigures {
    /// The cluster that it goes to.
    pub remote: String,
    /// Everything before this is there, or not for there.
    pub place: Ordinal,
    /// Counts since the topic was loaded.
    pub counts: ReplicatorCounts,
    /// For how long the oldest send has no answer, in seconds.
    pub delay_s: u64,
    /// The broker that it sends to, and since when, in milliseconds since 1970.
    pub connected: Option<(String, u64)>,
    /// Reason why it sends nothing now.
    pub fault: Option<String>,
}

impl Replication {
    /// True if entries are sent to other clusters.
    pub(super) fn is_on(&self) -> bool {
        !self.running.is_empty()
    }

    /// The clusters that the topic is sent to.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &str> {
        self.running.keys().map(|remote| &**remote)
    }

    /// True if it is connected to all of them.
    pub(super) fn are_all_connected(&self) -> bool {
        let mut running = self.running.values();
        running.all(|replicator| replicator.meter.connected().is_some())
    }

    /// Entry from which everything for a cluster was sent to it; `None` if the topic is not replicated there.
    pub(super) fn since(&self, remote: &str) -> Option<Ordinal> {
        self.running.get(remote).map(|replicator| replicator.since)
    }

    /// True if any entry before `end` is not replicated yet.
    pub(super) fn has_backlog(&self, end: Ordinal) -> bool {
        self.running
            .values()
            .any(|replicator| replicator.meter.place() < end)
    }

    /// The numbers of each.
    pub(super) fn figures(&self) -> Vec<ReplicatorFigures> {
        let figures = self.running.values().map(|replicator| {
            let meter = &replicator.meter;
            ReplicatorFigures {
                remote: meter.remote().to_owned(),
                place: meter.place(),
                counts: meter.counts(),
                delay_s: meter.delay_s(),
                connected: meter.connected(),
                fault: replicator.fault.clone().or_else(|| meter.fault()),
            }
        });
        figures.collect()
    }

    fn tell(&mut self) {
        self.waiting.clear();
    }
}

impl Stored {
    /// The clusters that the topic is to be replicated to.
    fn remote_clusters(&self, cx: &TopicContext) -> Vec<Box<str>> {
        let is_here = !cx.is_non_persistent() && !self.log.ledger.is_shadow();
        let named = self.policies.replication.0.iter().filter(|_| is_here);
        let own = &cx.options().cluster_name;
        let others = named.filter(|&name| name != own);
        others.map(|name| name.as_str().into()).collect()
    }

    /// Does what the policies say, if that is not done yet.
    pub(super) fn follow_replication(&mut self, cx: &TopicContext) {
        // Those of a system topic are of a broker of Pulsar, which goes on with them.
        if self.closing
            || cx.name.is_system()
            || (self.policies.replication.0.len() <= 1 && !self.has_replicators())
        {
            return;
        }
        let wanted = self.remote_clusters(cx);
        self.remove_replicators(cx, &wanted);
        let catalog = &cx.shard.shared.catalog;
        for remote in wanted {
            let cluster = catalog.clusters().get(&remote);
            match self.replication.running.get_mut(&remote) {
                Some(running) if running.cluster == cluster => {}
                Some(running) => {
                    running.cluster = cluster;
                    running.meter.begin_again();
                }
                None => self.start_replicator(cx, remote, cluster),
            }
        }
    }

    /// True if there are replicators, running or stored.
    fn has_replicators(&self) -> bool {
        let stored = self.cursors.log().system_cursors().keys();
        self.replication.is_on() || stored.into_iter().any(|name| cluster_of_cursor(name).is_some())
    }

    /// True if cursors that no policy names may be deleted, of those that existed when the topic was loaded. If other
    /// brokers set policies, this broker may receive the last one a moment after it loads the topic, so not at once.
    fn settle_replication(&mut self, cx: &TopicContext) -> bool {
        if !cx.shard.shared.metadata.has_other_writers() {
            return true;
        }
        if self.replication.settling.is_none()
            && let Some(me) = cx.me()
        {
            self.replication.settling = Some(false);
            let me = Rc::downgrade(&me);
            spawn_local(async move {
                tokio::time::sleep(SETTLED_AFTER).await;
                if let Some(me) = me.upgrade() {
                    let stored = &mut me.state.borrow_mut().stored;
                    stored.replication.settling = Some(true);
                    stored.follow_replication(&me.cx);
                }
            });
        }
        self.replication.settling == Some(true)
    }

    /// Ends those that are not wanted any more, with their cursors.
    fn remove_replicators(&mut self, cx: &TopicContext, wanted: &[Box<str>]) {
        let is_wanted = |remote: &str| wanted.iter().any(|wanted| **wanted == *remote);
        let before = self.replication.running.keys();
        let ended: Vec<Box<str>> = before.filter(|remote| !is_wanted(remote)).cloned().collect();
        self.replication.running.retain(|remote, _| is_wanted(remote));
        let stored = self.cursors.log().system_cursors().keys();
        let unwanted = stored.filter(|name| cluster_of_cursor(name).is_some_and(|remote| !is_wanted(remote)));
        let mut gone: Vec<String> = unwanted.map(|name| name.to_string()).collect();
        let has_ended = |name: &str| ended.iter().any(|remote| cursor_name(remote) == name);
        if !gone.iter().all(|name| has_ended(name)) && !self.settle_replication(cx) {
            gone.retain(|name| has_ended(name));
        }
        for name in &gone {
            match self.cursors.remove_system_cursor(name) {
                Ok(()) => {
                    tracing::info!(topic = %cx.name, cursor = name, "the topic is not replicated there any more")
                }
                Err(error) => {
                    tracing::warn!(topic = %cx.name, cursor = name, error = chain(&error), "cannot remove a cursor");
                }
            }
        }
        if !gone.is_empty()
            && let Some(me) = cx.me()
        {
            // The next load removes what a commit that failed left.
            spawn_local(async move { drop(me.commit_cursors().await) });
        }
        self.replication.tell();
    }

    fn start_replicator(&mut self, cx: &TopicContext, remote: Box<str>, cluster: Option<ClusterData>) {
        let Some(me) = cx.me() else { return };
        let (first, end) = (self.log.ledger.first(), self.log.ledger.durable_end());
        let cursor = self.cursors.system_cursor(&cursor_name(&remote));
        let stored = cursor.map(|stored| stored.position.max(first).min(end));
        let place = stored.unwrap_or(match cx.shard.remote.limits().from_earliest {
            true => first,
            false => end,
        });
        let since = cursor.and_then(|cursor| since_of(&cursor.properties, &self.log));
        let meter = Rc::new(ReplicatorMeter::new(&remote, place));
        let (stop, stopped) = oneshot::channel();
        let replicator = Replicator {
            meter: meter.clone(),
            is_durable: stored.is_some(),
            fault: None,
            // What was before is not known to have gone there.
            since: since.unwrap_or(place),
            cluster,
            _stop: stop,
        };
        self.replication.running.insert(remote, replicator);
        spawn_local(async move {
            let work = Box::pin(run(&me, meter));
            tokio::select! {
                biased;
                _ = stopped => {}
                () = work => {}
            }
        });
    }

    /// Queues a replicator's place; fine when it is stored so. Returns whether it was queued.
    fn put_replicator(&mut self, cx: &TopicContext, meter: &ReplicatorMeter, since: Ordinal) -> bool {
        let name = cursor_name(meter.remote());
        let place = meter.place();
        let stored = self.cursors.system_cursor(&name);
        if stored.is_some_and(|stored| stored.position == place) {
            return false;
        }
        let properties = since_properties(since, &self.log);
        match self.cursors.put_system_cursor(&name, place, properties) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(topic = %cx.name, cursor = name, error = chain(&error), "cannot store a cursor");
                false
            }
        }
    }

    /// Queues where all replicators are, and ends them.
    pub(super) fn stop_replication(&mut self, cx: &TopicContext) {
        for replicator in std::mem::take(&mut self.replication.running).into_values() {
            self.put_replicator(cx, &replicator.meter, replicator.since);
        }
        self.replication.tell();
    }
}

/// A replicator's task.
async fn run(me: &Rc<Topic>, meter: Rc<ReplicatorMeter>) {
    make_durable(me, &meter).await;
    let link = me.cx.shard.remote.to(meter.remote());
    let source = SourceOf {
        topic: me,
        watch: Cell::new(None),
    };
    let work = Replicated {
        source: &source,
        link,
        meter: meter.clone(),
    };
    tokio::select! {
        biased;
        () = replicate(work) => {}
        () = keep(me, &meter) => {}
    }
}

/// Makes the cursor durable before anything goes: what is acknowledged from now on is behind it, also after a crash.
async fn make_durable(me: &Rc<Topic>, meter: &ReplicatorMeter) {
    let name = cursor_name(meter.remote());
    loop {
        let is_put = {
            let mut state = me.state.borrow_mut();
            let running = state.stored.replication.running.get(meter.remote());
            let Some(since) = running.filter(|it| !it.is_durable).map(|it| it.since) else {
                return;
            };
            let properties = since_properties(since, &state.stored.log);
            // Also when it was before: what became of that is not known.
            let put = state
                .stored
                .cursors
                .put_system_cursor(&name, meter.place(), properties);
            put.map_err(|error| chain(&error))
        };
        let outcome = match is_put {
            Ok(()) => me.commit_cursors().await,
            Err(reason) => Err(reason),
        };
        let is_durable = outcome.is_ok();
        {
            let replication = &mut me.state.borrow_mut().stored.replication;
            if let Some(replicator) = replication.running.get_mut(meter.remote()) {
                replicator.is_durable = is_durable;
                replicator.fault = outcome
                    .err()
                    .map(|reason| format!("the cursor cannot be stored: {reason}"));
            }
            replication.tell();
        }
        if !is_durable {
            tokio::time::sleep(CURSOR_RETRY).await;
        }
    }
}

/// Stores the place now and then, while it moves.
async fn keep(me: &Rc<Topic>, meter: &ReplicatorMeter) {
    loop {
        meter.moved().await;
        tokio::time::sleep(me.cx.options().cursor_flush_interval).await;
        let is_put = {
            let stored = &mut me.state.borrow_mut().stored;
            let since = stored.replication.since(meter.remote());
            since.is_some_and(|since| stored.put_replicator(&me.cx, meter, since))
        };
        if is_put {
            me.start_commit();
        }
    }
}

/// A topic, as its replicators read it.
struct SourceOf<'t> {
    topic: &'t Rc<Topic>,
    /// Used again, because making one costs more than asking it.
    watch: Cell<Option<DurableWatch>>,
}

impl SourceOf<'_> {
    fn unreadable(error: &dyn std::error::Error) -> SourceFault {
        SourceFault::Unreadable(chain(error))
    }

    /// End of the entries that readers may have; `None` if the topic is closing.
    fn readable_end(&self) -> Option<Ordinal> {
        let stored = &self.topic.state.borrow().stored;
        (!stored.closing).then(|| stored.log.readable_end())
    }
}

impl ReplicatorSource for SourceOf<'_> {
    fn topic(&self) -> &TopicName {
        &self.topic.cx.name
    }

    fn partition(&self) -> Option<u32> {
        let name = &self.topic.cx.name;
        let catalog = &self.topic.cx.shard.shared.catalog;
        let partition = name.partition()?;
        catalog.partitioned().get(&name.base()).map(|_| partition)
    }

    async fn readable(&self, from: Ordinal) -> Result<(), SourceFault> {
        loop {
            let end = self.readable_end().ok_or(SourceFault::Closing)?;
            if from < end {
                return Ok(());
            }
            let watch = self.watch.take();
            let mut watch =
                watch.unwrap_or_else(|| self.topic.state.borrow().stored.log.ledger.durable_watch());
            watch
                .reaches(from)
                .await
                .map_err(|error| Self::unreadable(&error))?;
            self.watch.set(Some(watch));
            if self.readable_end().is_some_and(|end| from >= end) {
                tokio::time::sleep(OPEN_TRANSACTION_INTERVAL).await;
            }
        }
    }

    async fn read(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<SourceEntry>, SourceFault> {
        let cx = &self.topic.cx;
        let end = self.readable_end().ok_or(SourceFault::Closing)?;
        let reads = self.topic.reads();
        match reads.go_on_with(from, end, entries_max, bytes_max).await {
            Ok(found) if found.is_empty() => Err(SourceFault::Unreadable(format!("nothing is at {from}"))),
            Ok(found) => {
                let entries = found.into_iter().map(|entry| SourceEntry {
                    ordinal: entry.ordinal,
                    position: entry.position,
                    is_hidden: cx.transactions.are_known() && cx.transactions.hides(cx.codec, &entry.payload),
                    payload: entry.payload,
                });
                Ok(entries.collect())
            }
            Err(error) => {
                let log = &mut self.topic.state.borrow_mut().stored.log;
                if from < log.ledger.first() {
                    return Err(SourceFault::Gone(log.ledger.first()));
                }
                if error.is_lasting() {
                    log.note_damage(cx, from, &error);
                }
                match cx.skips(&error) {
                    true => {
                        cx.count_skip();
                        Err(SourceFault::Gone(from.plus(1)))
                    }
                    false => Err(Self::unreadable(&error)),
                }
            }
        }
    }

    fn cluster(&self, name: &str) -> Option<ClusterData> {
        self.topic.cx.shard.shared.catalog.clusters().get(name)
    }

    fn schema(&self, version: &[u8]) -> Option<SourceSchema> {
        let (name, catalog) = (&self.topic.cx.name, &self.topic.cx.shard.shared.catalog);
        let version = SchemaVersion::from_bytes(version)?;
        let found = catalog.schemas().get(name, version)?;
        let properties = &found.schema.properties;
        Some(SourceSchema {
            name: catalog.schemas().id(name),
            kind: found.schema.kind.as_str(),
            data: found.schema.data.clone(),
            properties: properties
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        })
    }

    fn rate(&self) -> Rate {
        let stored = &self.topic.state.borrow().stored;
        let published = stored.published();
        let limit = stored.policies.replicator_dispatch_rate;
        limit.rate(published.messages, published.bytes)
    }

    fn expired_before_ms(&self) -> u64 {
        let ttl_ms = self.topic.state.borrow().stored.policies.message_ttl.millis();
        ttl_ms.map_or(0, |ttl_ms| clock::wall_ms().saturating_sub(ttl_ms))
    }
}

/// A topic, as far as its replicators go.
pub(crate) struct Replicating<'t>(pub(crate) &'t Topic);

impl Replicating<'_> {
    /// Waits until the cursors of all replicators are durable.
    ///
    /// # Errors
    /// `Storage`: one cannot be made so.
    pub(super) async fn ready(&self) -> Result<(), ProducerError> {
        loop {
            let changed = {
                let replication = &mut self.0.state.borrow_mut().stored.replication;
                let unready = replication
                    .running
                    .values()
                    .find(|replicator| !replicator.is_durable);
                match unready {
                    None => return Ok(()),
                    Some(Replicator {
                        fault: Some(fault), ..
                    }) => {
                        return Err(ProducerError::Storage(fault.clone()));
                    }
                    Some(_) => {}
                }
                let (sender, changed) = oneshot::channel();
                replication.waiting.push(sender);
                changed
            };
            // Told by being dropped.
            let _ = changed.await;
        }
    }

    /// Leaves everything before `to` alone, for the replicator whose cursor has this name; that is durable when it resolves. `None`:
    /// there is no such replicator. Says how many entries that are.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) async fn skip_to(
        &self,
        cursor: &str,
        to: Option<Ordinal>,
    ) -> Option<Result<u64, CursorError>> {
        let remote = cluster_of_cursor(cursor)?;
        let skipped = {
            let mut state = self.0.state.borrow_mut();
            let end = state.stored.log.ledger.durable_end();
            let to = to.map_or(end, |to| to.min(end));
            let running = state.stored.replication.running.get_mut(remote)?;
            let meter = running.meter.clone();
            let before = meter.place();
            if !meter.skip_to(to) {
                return Some(Ok(0));
            }
            let since = running.since.max(to);
            running.since = since;
            state.stored.put_replicator(&self.0.cx, &meter, since);
            before.count_to(to)
        };
        let stored = self.0.commit_cursors().await;
        Some(stored.map(|()| skipped).map_err(CursorError::Storage))
    }
}
