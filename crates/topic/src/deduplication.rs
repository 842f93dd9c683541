//! Deduplication of a topic's producers: [`SequenceIds`] decides; here it is told what happens, and its state is stored and replayed.
//!
//! ```text
//!   Initialized, Disabled, Failed ─ turned on ─► Recovering ─ log read again ─► Enabled ─ turned off ─► Removing ─► Disabled
//! ```
//! No producer is let in while a log is read again, so the first send of each is judged. Producers that were there when it was turned on
//! go on meanwhile, and are noted. The state is stored in the system cursor [`CURSOR`], which holds back trimming: what it does not
//! count is in the log.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use pharos_dedup::{SequenceIds, SourcePlace, Verdict};
use pharos_feed::ids::ProducerKey;
use pharos_mesh::Publish;
use pharos_requests::error::{ProducerError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_types::{EntryId, LedgerId, Ordinal, Position};
use tokio::sync::oneshot;

use super::{Publishing, Stored, Topic, TopicContext};

/// The system cursor of its state, as in Pulsar.
const CURSOR: &str = "pulsar.dedup";
/// Position in the receipt of a duplicate: its first copy is somewhere before.
pub(super) const NOWHERE: Position = Position {
    ledger: LedgerId(u64::MAX),
    entry: EntryId(u64::MAX),
};
/// Bytes of one read of a replay.
const READ_BYTES: usize = 4 << 20;

/// Status of deduplication, as stats show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeduplicationStatus {
    #[default]
    Initialized,
    Disabled,
    Recovering,
    Enabled,
    Removing,
    Failed,
}

/// Deduplication of one topic.
#[derive(Default)]
pub(super) struct Deduplication {
    status: DeduplicationStatus,
    ids: Option<Box<SequenceIds>>,
    /// Rises with each replay that begins or is given up.
    generation: u64,
    /// Tasks that wait until the status or the durable end changes: notified by being dropped.
    waiting: Vec<oneshot::Sender<()>>,
    /// A snapshot is on its way.
    is_storing: bool,
    /// True if a snapshot is scheduled.
    is_timed: bool,
}

/// Identity of a send that counts for deduplication.
pub(super) enum Numbered {
    /// Its producer, and the number of its last message.
    Producer { name: Rc<str>, highest: u64 },
    /// The cluster that it comes from, and its place there.
    Source { cluster: Box<str>, place: SourcePlace },
}

/// Decision about a send.
pub(super) enum Judged {
    /// The send is appended.
    Accept(Option<Numbered>),
    Duplicate,
    Undecidable,
}

impl Judged {
    fn of(verdict: Verdict, numbered: impl FnOnce() -> Numbered) -> Self {
        match verdict {
            Verdict::Accept => Self::Accept(Some(numbered())),
            Verdict::Duplicate => Self::Duplicate,
            Verdict::Undecidable => Self::Undecidable,
        }
    }
}

impl Deduplication {
    /// As stats show it.
    pub(super) fn status(&self) -> &'static str {
        match self.status {
            DeduplicationStatus::Initialized => "Initialized",
            DeduplicationStatus::Disabled => "Disabled",
            DeduplicationStatus::Recovering => "Recovering",
            DeduplicationStatus::Enabled => "Enabled",
            DeduplicationStatus::Removing => "Removing",
            DeduplicationStatus::Failed => "Failed",
        }
    }

    /// True if sends are checked.
    pub(super) fn is_judging(&self) -> bool {
        self.ids.is_some()
    }

    fn become_status(&mut self, status: DeduplicationStatus) {
        self.status = status;
        self.waiting.clear();
    }

    fn changed(&mut self) -> oneshot::Receiver<()> {
        let (sender, changed) = oneshot::channel();
        self.waiting.push(sender);
        changed
    }

    /// An entry was appended.
    pub(super) fn on_pushed(&mut self, numbered: Option<&Numbered>) {
        let Some(ids) = &mut self.ids else { return };
        match numbered {
            Some(Numbered::Producer { name, highest }) => ids.on_pushed(name, *highest),
            Some(Numbered::Source { cluster, place }) => ids.on_source_pushed(cluster, *place),
            None => {}
        }
    }

    /// An entry is durable.
    pub(super) fn on_persisted(&mut self, numbered: Option<&Numbered>) {
        let Some(ids) = &mut self.ids else { return };
        match numbered {
            Some(Numbered::Producer { name, highest }) => ids.on_persisted(name, *highest),
            Some(Numbered::Source { cluster, place }) => ids.on_source_persisted(cluster, *place),
            None => {}
        }
    }

    /// All entries before `end` are durable, and were told of; `entries` of them just now.
    pub(super) fn on_durable(&mut self, end: Ordinal, entries: usize) {
        if let Some(ids) = &mut self.ids {
            ids.on_durable(end, entries as u64);
            self.waiting.clear();
        }
    }

    /// Handles a failed write: what is not durable never will be.
    pub(super) fn on_failed(&mut self) {
        if let Some(ids) = &mut self.ids {
            ids.take_back();
        }
        self.waiting.clear();
    }

    /// The number of the last message of a name that is stored, as PRODUCER_SUCCESS says it.
    fn last(&self, name: &str) -> i64 {
        let ids = self
            .ids
            .as_ref()
            .filter(|_| self.status == DeduplicationStatus::Enabled);
        ids.and_then(|ids| ids.last(name)).unwrap_or(-1)
    }
}

impl Publishing {
    /// Checks if a send was stored before. Costs a look at one field while deduplication is off.
    pub(super) fn judge(&mut self, cx: &TopicContext, key: ProducerKey, entry: &Publish) -> Judged {
        let Some(ids) = &self.dedup.ids else {
            return Judged::Accept(None);
        };
        let Some(producer) = self.producers.get_mut(key) else {
            return Judged::Accept(None);
        };
        let is_piece = || {
            cx.codec
                .chunk(&entry.payload)
                .is_some_and(|piece| !piece.is_last())
        };
        if producer.is_replicator() {
            return judge_replicated(ids, cx, entry);
        }
        if entry.facts.is_marker || (entry.facts.is_chunk && is_piece()) {
            return Judged::Accept(None);
        }
        let numbered = || Numbered::Producer {
            name: Rc::clone(&producer.name),
            highest: entry.sequence_id.max(entry.highest_sequence_id),
        };
        Judged::of(ids.check(&producer.name, entry.sequence_id), numbered)
    }
}

/// A send of another cluster's replicator goes under the place that it has there; where it does not say that, under its first producer.
fn judge_replicated(ids: &SequenceIds, cx: &TopicContext, entry: &Publish) -> Judged {
    let Some(sequence) = cx.codec.sequence(&entry.payload) else {
        return Judged::Accept(None);
    };
    let Some(source) = sequence.source else {
        let numbered = || Numbered::Producer {
            name: sequence.producer.into(),
            highest: sequence.highest,
        };
        return Judged::of(ids.check(sequence.producer, sequence.first), numbered);
    };
    let place = (source.ledger, source.entry);
    let numbered = || Numbered::Source {
        cluster: source.cluster.into(),
        place,
    };
    Judged::of(ids.check_source(source.cluster, place), numbered)
}

impl Stored {
    /// True if its policies enable deduplication, and the topic supports it.
    fn wants_deduplication(&self, cx: &TopicContext) -> bool {
        self.policies.deduplication && !cx.is_non_persistent() && !self.log.ledger.is_shadow()
    }

    /// Does what the policies say, if that is not done yet.
    pub(super) fn follow_deduplication(&mut self, cx: &TopicContext) {
        if self.closing {
            return;
        }
        let is_wanted = self.wants_deduplication(cx);
        match self.publishing.dedup.status {
            DeduplicationStatus::Recovering | DeduplicationStatus::Enabled if is_wanted => {}
            _ if is_wanted => self.recover(cx),
            DeduplicationStatus::Disabled | DeduplicationStatus::Removing => {}
            _ => self.remove_deduplication(cx),
        }
    }

    fn recover(&mut self, cx: &TopicContext) {
        let (first, end) = (self.log.ledger.first(), self.log.ledger.end());
        let limits = cx.options().deduplication;
        let stored = self.cursors.system_cursor(CURSOR);
        let from = stored.map_or(first, |stored| stored.position.max(first));
        let names = stored.into_iter().flat_map(|stored| &stored.properties);
        let ids = SequenceIds::replaying(limits, from, names.map(|(name, last)| (name.as_str(), *last)));
        let dedup = &mut self.publishing.dedup;
        dedup.ids = Some(Box::new(ids));
        dedup.generation += 1;
        dedup.become_status(DeduplicationStatus::Recovering);
        let generation = dedup.generation;
        if first < end {
            self.hold_deduplication(cx);
        }
        if from >= end {
            return self.end_recovery(cx, end);
        }
        if let Some(me) = cx.me() {
            spawn_local(async move { replay(&me, generation, end).await });
        }
    }

    /// Makes the cursor, unless it is there: from here on nothing is trimmed that is not counted.
    fn hold_deduplication(&mut self, cx: &TopicContext) {
        if self.cursors.system_cursor(CURSOR).is_none() {
            let first = self.log.ledger.first();
            if let Err(error) = self.cursors.put_system_cursor(CURSOR, first, BTreeMap::new()) {
                tracing::warn!(topic = %cx.name, error = chain(&error), "cannot make the cursor of deduplication");
            }
        }
    }

    fn end_recovery(&mut self, cx: &TopicContext, end: Ordinal) {
        let producers = &self.publishing.producers;
        let fresh: Vec<_> = producers
            .iter()
            .filter(|producer| producer.counters.messages == 0)
            .map(|producer| Rc::clone(&producer.name))
            .collect();
        let dedup = &mut self.publishing.dedup;
        if let Some(ids) = &mut dedup.ids {
            ids.end_replay(end, fresh.iter().map(|name| &**name));
        }
        dedup.become_status(DeduplicationStatus::Enabled);
        self.store_sequence_ids(cx);
    }

    /// Ends it, and gives up what is stored of it.
    fn remove_deduplication(&mut self, cx: &TopicContext) {
        let dedup = &mut self.publishing.dedup;
        dedup.ids = None;
        dedup.generation += 1;
        if self.cursors.system_cursor(CURSOR).is_none() {
            return dedup.become_status(DeduplicationStatus::Disabled);
        }
        dedup.become_status(DeduplicationStatus::Removing);
        let Some(me) = cx.me() else { return };
        if let Err(error) = self.cursors.remove_system_cursor(CURSOR) {
            tracing::warn!(topic = %cx.name, error = chain(&error), "cannot remove the cursor of deduplication");
        }
        spawn_local(async move {
            // What a commit that failed left is removed when the topic is loaded again.
            let _ = me.commit_cursors().await;
            let dedup = &mut me.state.borrow_mut().stored.publishing.dedup;
            if dedup.status == DeduplicationStatus::Removing {
                dedup.become_status(DeduplicationStatus::Disabled);
            }
        });
    }

    /// Queues a snapshot. Returns whether there was something to store.
    fn put_sequence_ids(&mut self, cx: &TopicContext) -> bool {
        let dedup = &mut self.publishing.dedup;
        let Some(ids) = dedup.ids.as_mut().filter(|ids| ids.has_news()) else {
            return false;
        };
        let attached: HashSet<&str> = self
            .publishing
            .producers
            .iter()
            .map(|producer| &*producer.name)
            .collect();
        ids.forget_gone(clock::wall_ms(), |name| attached.contains(name));
        let snapshot = ids.snapshot();
        self.hold_deduplication(cx);
        let put = self
            .cursors
            .put_system_cursor(CURSOR, snapshot.position, snapshot.persisted);
        if let Err(error) = put {
            tracing::warn!(topic = %cx.name, error = chain(&error), "cannot store the state of deduplication");
        }
        true
    }

    /// Stores a snapshot, one at a time.
    fn store_sequence_ids(&mut self, cx: &TopicContext) {
        if self.publishing.dedup.is_storing || !self.put_sequence_ids(cx) {
            return;
        }
        let Some(me) = cx.me() else { return };
        self.publishing.dedup.is_storing = true;
        spawn_local(async move {
            // Until it is durable the one before holds, and what it does not count is in the log.
            let _ = me.commit_cursors().await;
            let mut state = me.state.borrow_mut();
            state.stored.publishing.dedup.is_storing = false;
            state.stored.store_sequence_ids_if_due(&me.cx);
        });
    }

    /// Stores a snapshot when enough entries came; makes sure that one comes when its time has.
    pub(super) fn store_sequence_ids_if_due(&mut self, cx: &TopicContext) {
        let Some(ids) = &self.publishing.dedup.ids else {
            return;
        };
        if ids.is_due() || (ids.has_news() && self.cursors.system_cursor(CURSOR).is_none()) {
            return self.store_sequence_ids(cx);
        }
        let Some(interval_ms) = self.policies.deduplication_snapshot_interval.millis() else {
            return;
        };
        if ids.has_news() && !std::mem::replace(&mut self.publishing.dedup.is_timed, true) {
            let me = cx.me.clone();
            spawn_local(async move {
                tokio::time::sleep(std::time::Duration::from_millis(interval_ms)).await;
                if let Some(me) = me.upgrade() {
                    let mut state = me.state.borrow_mut();
                    state.stored.publishing.dedup.is_timed = false;
                    if !state.stored.closing {
                        state.stored.store_sequence_ids(&me.cx);
                    }
                }
            });
        }
    }
}

/// Reads the log again up to `end`, as long as nothing else was decided meanwhile.
async fn replay(me: &Rc<Topic>, generation: u64, end: Ordinal) {
    let mut durable = me.state.borrow().stored.log.ledger.durable_watch();
    // What was appended before is read too. What never becomes durable closes the topic's producers.
    let mut outcome = durable
        .reaches(Ordinal(end.0.saturating_sub(1)))
        .await
        .map_err(|error| chain(&error));
    while outcome.is_ok() {
        let Some(next) = replay_next(me, generation) else {
            return;
        };
        if next >= end {
            let mut state = me.state.borrow_mut();
            return state.stored.end_recovery(&me.cx, end);
        }
        let found = me.reads().go_on(next, end, READ_BYTES).await;
        let mut state = me.state.borrow_mut();
        let stored = &mut state.stored;
        let Some(ids) = stored.publishing.dedup.ids_of(generation) else {
            return;
        };
        match found {
            Ok(entries) if entries.is_empty() => outcome = Err(format!("nothing is at {next}")),
            Ok(entries) => {
                for entry in &entries {
                    let sequence = me.cx.codec.sequence(&entry.payload);
                    let source = sequence.as_ref().and_then(|found| found.source);
                    let own = sequence.filter(|_| source.is_none());
                    ids.on_replayed(entry.ordinal, own.map(|found| (found.producer, found.highest)));
                    if let Some(source) = source {
                        ids.on_source_replayed(source.cluster, (source.ledger, source.entry));
                    }
                }
                if ids.is_due() && stored.put_sequence_ids(&me.cx) {
                    drop(state);
                    me.start_commit();
                }
            }
            // It was trimmed meanwhile: the next read begins behind it.
            Err(_) if next < stored.log.ledger.first() => {
                let before_first = Ordinal(stored.log.ledger.first().0 - 1);
                ids.on_replayed(before_first, None);
            }
            Err(error) if error.is_lasting() => {
                ids.on_replayed(next, None);
                stored.log.note_damage(&me.cx, next, &error);
            }
            Err(error) => outcome = Err(chain(&error)),
        }
    }
    if let Err(reason) = outcome
        && replay_next(me, generation).is_some()
    {
        tracing::warn!(topic = %me.cx.name, reason, "cannot read the log for deduplication; it is tried again");
        let dedup = &mut me.state.borrow_mut().stored.publishing.dedup;
        dedup.become_status(DeduplicationStatus::Failed);
    }
}

fn replay_next(me: &Topic, generation: u64) -> Option<Ordinal> {
    let stored = &mut me.state.borrow_mut().stored;
    let dedup = &mut stored.publishing.dedup;
    if stored.closing {
        // It is read again when the topic is loaded again; who waits here is told.
        dedup.become_status(DeduplicationStatus::Failed);
        return None;
    }
    dedup.ids_of(generation)?.replay_next()
}

impl Deduplication {
    fn ids_of(&mut self, generation: u64) -> Option<&mut SequenceIds> {
        let is_current = self.generation == generation && self.status == DeduplicationStatus::Recovering;
        self.ids.as_deref_mut().filter(|_| is_current)
    }
}

/// A topic, to those who let producers in.
pub(super) struct Admitting<'t>(pub(super) &'t Topic);

impl Admitting<'_> {
    /// Waits until the log is read again, if it must be.
    ///
    /// # Errors
    /// `Storage`: it cannot be read, or the state cannot be kept where this topic is.
    pub(super) async fn ready(&self) -> Result<(), ProducerError> {
        loop {
            let changed = {
                let mut state = self.0.state.borrow_mut();
                let stored = &mut state.stored;
                if stored.publishing.dedup.status == DeduplicationStatus::Failed {
                    stored.follow_deduplication(&self.0.cx);
                }
                match stored.publishing.dedup.status {
                    DeduplicationStatus::Recovering => stored.publishing.dedup.changed(),
                    DeduplicationStatus::Failed => {
                        let reason = "the state of deduplication is not there";
                        return Err(ProducerError::Storage(reason.to_owned()));
                    }
                    _ => return Ok(()),
                }
            };
            // Told by being dropped.
            let _ = changed.await;
        }
    }

    /// Waits until all that was sent under a name is durable, and says the number of the last of it. No producer sends under it
    /// meanwhile.
    ///
    /// # Errors
    /// `Storage`: the topic takes no writes any more.
    pub(super) async fn last_sequence_id(&self, name: &str) -> Result<i64, ProducerError> {
        loop {
            let changed = {
                let publishing = &mut self.0.state.borrow_mut().stored.publishing;
                if let Some(fault) = &publishing.fault {
                    return Err(ProducerError::Storage(fault.clone()));
                }
                let dedup = &mut publishing.dedup;
                match &dedup.ids {
                    Some(ids) if !ids.is_settled(name) => dedup.changed(),
                    _ => return Ok(dedup.last(name)),
                }
            };
            // Told by being dropped.
            let _ = changed.await;
        }
    }

    /// Queues what is to be stored before the topic is unloaded or cut.
    pub(super) fn store(&self) {
        let stored = &mut self.0.state.borrow_mut().stored;
        if stored.publishing.dedup.status == DeduplicationStatus::Enabled {
            stored.put_sequence_ids(&self.0.cx);
        }
    }
}
