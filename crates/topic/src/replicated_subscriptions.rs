//! Replicated subscriptions of a topic: what is told other clusters of how far they are, and what is heard from them.
//!
//! ```text
//!   entries that became durable ─► hear_clusters ─► Snapshots ─► markers, appended
//!   tick, once a second ─► cursors, SnapshotsAhead ─► markers, appended      └─► SnapshotsAhead of each subscription
//!   an update from another cluster ─► move_wanted ─► Moving::skip_to, or a new subscription
//! ```
//! [`pharos_replication`] decides what is asked and told; here it gets to see the log and the cursors.
//!
//! Always true: a subscription is moved to a place because another cluster acknowledged everything before it that it could get. What
//! it could not get is passed by none: messages that were not for there, and those from before the topic was sent there.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pharos_feed::entry::FeedEntry;
use pharos_managed_ledger::Lookup;
use pharos_replication::outgoing::{Fate, Passed, outgoing};
use pharos_replication::{ClusterPlaces, Marker, SnapshotStep, Snapshots};
use pharos_requests::error::{CursorError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Ordinal, Position, SubscriptionName};

use super::seek::Moving;
use super::{Attached, StartAt, State, Stored, Topic, TopicContext, TopicLog, cursor_store};

/// Properties of a replicator's cursor that hold the entry after which everything was sent.
const SINCE_LEDGER: &str = "pharos.since.ledger";
const SINCE_ENTRY: &str = "pharos.since.entry";
/// Entries in which snapshots of an earlier run are looked for at a time, and how far ahead of the cursors.
const LOOK_BACK: u64 = 10_000;
const LOOK_AHEAD: u64 = 20_000;
/// Subscriptions that wait to be moved; of more the next update is heard.
const WANTED_MAX: usize = 1_000;

/// Replication state of replicated subscriptions.
pub(super) struct SubscriptionReplication {
    snapshots: Snapshots,
    /// A task looks at them.
    is_ticking: bool,
    /// Snapshots that were begun.
    begun: u64,
    /// Range to search for snapshots of an earlier run.
    unread: Option<(Ordinal, Ordinal)>,
}

/// Cursor moves requested by other clusters.
#[derive(Default)]
pub(super) struct WantedMoves {
    /// Up to where, this included, and who says so.
    places: BTreeMap<SubscriptionName, (Box<str>, Position)>,
    /// A task moves them.
    is_moving: bool,
}

/// Properties of a replicator's cursor that record its start.
pub(super) fn since_properties(since: Ordinal, log: &TopicLog) -> BTreeMap<String, i64> {
    let last = since.0.checked_sub(1).map(Ordinal);
    let last = last.filter(|last| *last >= log.ledger.first());
    let (ledger, entry) = match last.and_then(|last| log.ledger.position_of(last)) {
        Some(last) => (number(last.ledger.0), number(last.entry.0)),
        None => (-1, -1),
    };
    BTreeMap::from([(SINCE_LEDGER.to_owned(), ledger), (SINCE_ENTRY.to_owned(), entry)])
}

fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

/// Start recorded in a replicator's cursor; `None` if it records none.
pub(super) fn since_of(properties: &BTreeMap<String, i64>, log: &TopicLog) -> Option<Ordinal> {
    let (ledger, entry) = (*properties.get(SINCE_LEDGER)?, *properties.get(SINCE_ENTRY)?);
    let (Ok(ledger), Ok(entry)) = (u64::try_from(ledger), u64::try_from(entry)) else {
        return Some(log.ledger.first());
    };
    Some(after(log, Position::new(ledger, entry)).unwrap_or(log.ledger.durable_end()))
}

/// The place after an entry; `None`: the log does not go so far.
fn after(log: &TopicLog, position: Position) -> Option<Ordinal> {
    match log.ledger.table().ordinal_of(position, log.ledger.durable_end()) {
        Lookup::Exact(at) => Some(at.next()),
        Lookup::Between(next) => Some(next),
        Lookup::BeforeFirst(first) => Some(first),
        Lookup::AfterEnd => None,
    }
}

/// Milliseconds of the clock that does not go back.
fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}

impl TopicContext {
    fn own_cluster(&self) -> &str {
        &self.options().cluster_name
    }

    fn has_replicated_subscriptions(&self) -> bool {
        self.shard.remote.limits().snapshots.are_on
    }
}

impl Stored {
    /// Appends a marker. Returns whether it was taken.
    fn write_marker(&mut self, cx: &TopicContext, marker: &Marker, only: Option<&str>) -> bool {
        if self.closing || self.publishing.fault.is_some() {
            return false;
        }
        let payload = marker.encode(cx.own_cluster(), only, clock::wall_ms());
        let facts = cx.codec.facts(&payload);
        let appended = match self.log.ledger.append(payload.clone()) {
            Ok(appended) => appended,
            Err(error) => {
                tracing::debug!(topic = %cx.name, error = chain(&error), "a marker was not stored");
                if error.is_final() {
                    self.publishing.fail(cx, &chain(&error), error.kind());
                }
                return false;
            }
        };
        self.publishing.push_own(appended, payload, facts);
        self.log.maintain(cx);
        self.publishing.watch(cx);
        true
    }
}

impl State {
    /// Entries became durable, of a topic that is sent to other clusters.
    pub(super) fn hear_clusters(&mut self, cx: &TopicContext, entries: &[Arc<FeedEntry>]) {
        if !cx.has_replicated_subscriptions() {
            return;
        }
        let replication = &mut self.stored.replication;
        if let Some(known) = &mut replication.subscriptions
            && entries.iter().any(|entry| !entry.facts.is_marker)
        {
            known.snapshots.on_data(now_ms());
        }
        for entry in entries.iter().filter(|entry| entry.facts.is_marker) {
            if let Some((Some(from), marker)) = Marker::decode(&entry.payload)
                && self.stored.replication.since(from).is_some()
            {
                self.hear(cx, from, marker, entry);
            }
        }
    }

    fn hear(&mut self, cx: &TopicContext, from: &str, marker: Marker, entry: &FeedEntry) {
        match marker {
            Marker::Request { id } => {
                // What was here before the question is durable, and goes before the answer.
                let response = Marker::Response {
                    id,
                    cluster: cx.own_cluster().to_owned(),
                    position: entry.position,
                };
                self.stored.write_marker(cx, &response, Some(from));
            }
            Marker::Response {
                id,
                cluster,
                position,
            } if cluster == from => {
                let known = self.stored.replication.subscriptions.as_mut();
                let step = known.and_then(|known| known.snapshots.on_response(&id, from, position));
                match step {
                    Some(SnapshotStep::Ask(id)) => {
                        self.stored.write_marker(cx, &Marker::Request { id }, None);
                    }
                    Some(SnapshotStep::Done { id, places }) => self.keep_snapshot(cx, id, places, entry),
                    None => {}
                }
            }
            Marker::Update {
                subscription,
                clusters,
            } => {
                let place = clusters.get(cx.own_cluster()).copied();
                // Pulsar has -1 for the place before the first entry.
                let place = place.filter(|place| i64::try_from(place.entry.0).is_ok());
                if let (Some(place), Ok(name)) = (place, SubscriptionName::new(&subscription))
                    && !name.is_reserved()
                {
                    self.stored.want_moved(cx, name, from, place);
                }
            }
            Marker::Response { .. } | Marker::Snapshot { .. } => {}
        }
    }

    /// A snapshot is complete: it is this place here. It is noted in the log, for a later run and for brokers of Pulsar.
    fn keep_snapshot(&mut self, cx: &TopicContext, id: String, places: ClusterPlaces, entry: &FeedEntry) {
        let marker = Marker::Snapshot {
            id,
            local: entry.position,
            clusters: places.clone(),
        };
        self.stored.write_marker(cx, &marker, Some(cx.own_cluster()));
        self.attached.keep_snapshot(cx, entry.ordinal, &Rc::new(places));
    }

    /// Position of the replicated subscription that is furthest behind; `None` if there is none or the topic is not
    /// replicated.
    fn lowest_replicated(&self) -> Option<Ordinal> {
        let no_member: Arc<str> = Arc::default();
        let subscriptions = self.attached.subscriptions.values();
        let replicated = subscriptions.filter(|subscription| subscription.replicated.is_some());
        let places = replicated.map(|subscription| {
            let kind = subscription.body.kind();
            kind.acked_to(&self.stored.cursors, &no_member)
                .unwrap_or(Ordinal(0))
        });
        places
            .min()
            .filter(|_| self.stored.replication.is_on() && !self.stored.closing)
    }

    /// Tells other clusters which subscriptions passed a snapshot.
    fn tell_moved(&mut self, cx: &TopicContext) {
        let no_member: Arc<str> = Arc::default();
        let mut moved = Vec::new();
        for (name, subscription) in self.attached.subscriptions.iter_mut() {
            let Some(ahead) = &mut subscription.replicated else {
                continue;
            };
            let acked_to = subscription
                .body
                .kind()
                .acked_to(&self.stored.cursors, &no_member);
            if let Some(places) = acked_to.and_then(|acked_to| ahead.take_passed(acked_to)) {
                moved.push((name.clone(), places));
            }
        }
        moved.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, places) in moved {
            let update = Marker::Update {
                subscription: name.to_string(),
                clusters: ClusterPlaces::clone(&places),
            };
            self.stored.write_marker(cx, &update, None);
        }
    }

    /// Begins a snapshot if one is due, and all clusters can be asked.
    fn begin_snapshot(&mut self, cx: &TopicContext) {
        let timeout = cx.shard.remote.limits().snapshots.timeout;
        let replication = &mut self.stored.replication;
        let is_connected = replication.are_all_connected();
        let Some(mut known) = replication.subscriptions.take() else {
            return;
        };
        let now_ms = now_ms();
        if known.snapshots.is_due(now_ms, timeout) && is_connected {
            known.begun += 1;
            let id = format!("{}-{}-{}", cx.own_cluster(), clock::wall_ms(), known.begun);
            known
                .snapshots
                .begin(id.clone(), self.stored.replication.remotes(), now_ms);
            if !self.stored.write_marker(cx, &Marker::Request { id }, None) {
                known.snapshots.give_up();
            }
        }
        self.stored.replication.subscriptions = Some(known);
    }
}

impl Attached {
    fn keep_snapshot(&mut self, cx: &TopicContext, at: Ordinal, places: &Rc<ClusterPlaces>) {
        let most = cx.shard.remote.limits().snapshots.kept_max;
        for subscription in self.subscriptions.values_mut() {
            if let Some(ahead) = &mut subscription.replicated {
                ahead.keep(at, places.clone(), most);
            }
        }
    }

    /// Sets if a durable subscription is replicated, and queues its record. Returns true if that changed.
    pub(super) fn set_replicated(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        is_replicated: bool,
    ) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return false;
        };
        let Some(number) = subscription.number else {
            return false;
        };
        if subscription.is_broadcast() || subscription.replicated.is_some() == is_replicated {
            return false;
        }
        subscription.replicated = is_replicated.then(Box::default);
        let record = cursor_store::subscription_changed(
            number,
            subscription.is_broadcast(),
            &subscription.properties,
            is_replicated,
        );
        stored.change_cursors(cx, |cursors| cursors.queue(record));
        true
    }
}

impl Topic {
    /// True if a subscription is replicated.
    pub(crate) fn is_subscription_replicated(&self, name: &SubscriptionName) -> Result<bool, CursorError> {
        let state = self.state.borrow();
        let subscription = state.attached.subscriptions.get(name);
        let subscription = subscription.ok_or_else(|| CursorError::NoSubscription(name.to_string()))?;
        Ok(subscription.replicated.is_some())
    }

    /// Says whether a subscription is replicated; durable when it resolves.
    pub(crate) async fn set_subscription_replicated(
        &self,
        name: &SubscriptionName,
        is_replicated: bool,
    ) -> Result<(), CursorError> {
        {
            let state = self.state.borrow();
            let subscription = state.attached.subscriptions.get(name);
            let subscription = subscription.ok_or_else(|| CursorError::NoSubscription(name.to_string()))?;
            if is_replicated && !self.cx.has_replicated_subscriptions() {
                return Err(CursorError::NotAllowed(
                    "replicated subscriptions are disabled at this broker".to_owned(),
                ));
            }
            if is_replicated && (subscription.is_broadcast() || !subscription.is_durable()) {
                return Err(CursorError::NotAllowed(format!(
                    "subscription {name} is not replicated: only a durable one that is not broadcast can be"
                )));
            }
        }
        self.with_attached(|attached, cx, stored| attached.set_replicated(cx, stored, name, is_replicated));
        self.commit_cursors().await.map_err(CursorError::Storage)?;
        self.replicate_subscriptions();
        Ok(())
    }

    /// Makes sure that a task looks at replicated subscriptions while there are any, and clusters that the topic is sent to.
    pub(super) fn replicate_subscriptions(&self) {
        let Some(me) = self.cx.me() else { return };
        let limits = self.cx.shard.remote.limits().snapshots;
        {
            let mut state = self.state.borrow_mut();
            if !limits.are_on || state.lowest_replicated().is_none() {
                return;
            }
            let end = state.stored.log.ledger.durable_end();
            let known = state.stored.replication.subscriptions.get_or_insert_with(|| {
                Box::new(SubscriptionReplication {
                    snapshots: Snapshots::new(now_ms()),
                    is_ticking: false,
                    begun: 0,
                    unread: Some((Ordinal(0), end)),
                })
            });
            if std::mem::replace(&mut known.is_ticking, true) {
                return;
            }
        }
        let me = Rc::downgrade(&me);
        spawn_local(async move {
            loop {
                tokio::time::sleep(limits.interval).await;
                let Some(me) = me.upgrade() else { return };
                if !me.tick_replicated_subscriptions().await {
                    return;
                }
            }
        });
    }

    /// Returns whether to come again.
    async fn tick_replicated_subscriptions(&self) -> bool {
        if let Err(error) = self.look_back().await {
            tracing::warn!(topic = %self.cx.name, %error, "snapshots of an earlier run cannot be read: replicated subscriptions move later elsewhere");
        }
        let mut state = self.state.borrow_mut();
        if state.lowest_replicated().is_none() {
            if let Some(known) = &mut state.stored.replication.subscriptions {
                known.is_ticking = false;
            }
            return false;
        }
        state.tell_moved(&self.cx);
        state.begin_snapshot(&self.cx);
        true
    }

    /// Reads some of the log that an earlier run wrote, for the snapshots in it.
    async fn look_back(&self) -> Result<(), CursorError> {
        let (from, to) = {
            let mut state = self.state.borrow_mut();
            let Some(lowest) = state.lowest_replicated() else {
                return Ok(());
            };
            let first = state.stored.log.ledger.first();
            let Some(known) = &mut state.stored.replication.subscriptions else {
                return Ok(());
            };
            let Some((next, end)) = known.unread.take() else {
                return Ok(());
            };
            let from = next.max(lowest).max(first);
            if from >= end {
                return Ok(());
            }
            let to = end.min(from.plus(LOOK_BACK)).min(lowest.plus(LOOK_AHEAD));
            known.unread = Some((from, end));
            if from >= to {
                return Ok(());
            }
            // Read once, whatever comes of it.
            known.unread = Some((to, end));
            (from, to)
        };
        let mut found = Vec::new();
        let look = |entry: &FeedEntry| {
            if entry.facts.is_marker
                && let Some((None, Marker::Snapshot { local, clusters, .. })) = Marker::decode(&entry.payload)
            {
                found.push((local, clusters));
            }
            true
        };
        self.reads().scan(from, to, look).await?;
        let State { stored, attached } = &mut *self.state.borrow_mut();
        for (local, clusters) in found {
            if let Lookup::Exact(at) = stored.log.ledger.ordinal_of(local) {
                attached.keep_snapshot(&self.cx, at, &Rc::new(clusters));
            }
        }
        Ok(())
    }
}

impl Stored {
    /// Another cluster says that a subscription is so far.
    fn want_moved(&mut self, cx: &TopicContext, name: SubscriptionName, from: &str, place: Position) {
        let wanted = &mut self.replication.wanted;
        if wanted.places.len() >= WANTED_MAX && !wanted.places.contains_key(&name) {
            return;
        }
        wanted.places.insert(name, (from.into(), place));
        if std::mem::replace(&mut wanted.is_moving, true) {
            return;
        }
        let Some(me) = cx.me() else { return };
        spawn_local(async move {
            loop {
                let next = {
                    let wanted = &mut me.state.borrow_mut().stored.replication.wanted;
                    let next = wanted.places.pop_first();
                    wanted.is_moving = next.is_some();
                    next
                };
                let Some((name, (from, place))) = next else { return };
                if let Err(error) = Followed(&me).move_to(&name, &from, place).await {
                    tracing::warn!(topic = %me.cx.name, subscription = %name, cluster = %from, %error, "a subscription does not follow another cluster's");
                }
            }
        });
    }
}

/// A topic, as far as its subscriptions follow those of other clusters.
struct Followed<'a>(&'a Topic);

impl Followed<'_> {
    /// Moves a subscription to what another cluster says, or makes it there.
    async fn move_to(&self, name: &SubscriptionName, from: &str, place: Position) -> Result<(), CursorError> {
        let me = self.0;
        let (to, known) = {
            let state = me.state.borrow();
            if state.stored.closing {
                return Ok(());
            }
            let Some(to) = after(&state.stored.log, place) else {
                let text = format!("{place} is no place of this topic");
                return Err(CursorError::NotAllowed(text));
            };
            (to, state.attached.subscriptions.contains_key(name))
        };
        if !known {
            let made = me.create_subscription_at(name.clone(), StartAt::Place(to), false, &[], true);
            made.await?;
            tracing::info!(topic = %me.cx.name, subscription = %name, cluster = from, "a subscription was made because another cluster has it");
            return Ok(());
        }
        let Some(begin) = self.begin(name, from, to) else {
            return Ok(());
        };
        let mut at = begin;
        let look = |entry: &FeedEntry| {
            let is_passable = entry.facts.is_marker
                || !matches!(
                    outgoing(&entry.payload, from, 0),
                    Fate::Passed(Passed::NotForThere)
                );
            if is_passable {
                at = entry.ordinal.next();
            }
            is_passable
        };
        me.reads().scan(begin, to, look).await?;
        let to = at.min(to);
        // A seek may have moved it meanwhile.
        if self.begin(name, from, to).is_none_or(|again| again < begin) {
            return Ok(());
        }
        Moving(me).skip_settled(name, to).await
    }

    /// Position of a subscription; `None` if it must not be moved up to `to`.
    fn begin(&self, name: &SubscriptionName, from: &str, to: Ordinal) -> Option<Ordinal> {
        let state = self.0.state.borrow();
        let subscription = state.attached.subscriptions.get(name)?;
        if subscription.replicated.is_none() || subscription.fenced {
            return None;
        }
        let no_member: Arc<str> = Arc::default();
        let acked_to = subscription
            .body
            .kind()
            .acked_to(&state.stored.cursors, &no_member)?;
        // What was here before did not go there, and was not acknowledged there.
        let since = state.stored.replication.since(from)?;
        (since <= acked_to && acked_to < to).then_some(acked_to)
    }
}
