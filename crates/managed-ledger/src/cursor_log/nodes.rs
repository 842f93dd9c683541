//! Writing subscriptions to Pulsar's nodes, some time after the log knows: what was made or deleted before that is answered, what
//! was acknowledged about once a second, and all of it before a topic closes.
//!
//! What a node has no room for, and parts of batches, go to a ledger that the node names; while that is open, what follows goes there too.
//!
//! Always true: of one log one write is under way at most, so no older state follows a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{BoxFuture, CreateOptions, LedgerEngine};
use pharos_metadata::{Expect, MetadataLayout, Version};
use pharos_types::Ordinal;
use prost::Message as _;

use super::mirror::Mirror;
use super::node_ledger::NodeLedger;
use super::node_write::{NodeError, NodesWritten, Write, WriteTask};
use super::record::{Record, Slot, SubscriptionId};
use super::{CursorLog, QueueError};
use crate::cursor::AckState;
use crate::info::InfoHandle;
use crate::pulsar::cursor::state_of;
use crate::pulsar::nodes::{self, KnownSubscription, NodeFacts, Taken};
use crate::table::LedgerTable;

/// A state of more bytes is written seldom while the topic is open.
const LARGE_BYTES: usize = 64 << 10;
const LARGE_PAUSE_MS: u64 = 5_000;

/// Which subscriptions are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeScope {
    /// Those that were made, deleted or given other properties.
    Made,
    /// Also those whose cursor moved; large states not each time.
    Moved,
    /// Everything that a node does not have yet.
    All,
}

/// What of the log the nodes do not have.
pub(super) struct Nodes {
    /// The kind of subscriptions that have nodes.
    kind: u8,
    moved: BTreeSet<SubscriptionId>,
    made: BTreeSet<SubscriptionId>,
    /// By name, with a ledger that goes with them.
    removed: BTreeMap<String, Option<u64>>,
    is_writing: bool,
    /// When large states were written last.
    large_at_ms: BTreeMap<SubscriptionId, u64>,
    /// Those that are written.
    ledgers: BTreeMap<SubscriptionId, NodeLedger>,
    /// Ledgers that no node will name any more.
    useless: Vec<u64>,
    /// The lowest place that cursors of Pulsar hold which are no subscriptions.
    held: Option<Ordinal>,
}

impl Nodes {
    /// Those of a log that was just opened.
    pub(super) fn new(kind: u8, held: Option<Ordinal>) -> Self {
        Self {
            kind,
            moved: BTreeSet::new(),
            made: BTreeSet::new(),
            removed: BTreeMap::new(),
            is_writing: false,
            large_at_ms: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            useless: Vec::new(),
            held,
        }
    }

    /// Hears of a record before the mirror has it. A subscription's facts are ours.
    pub(super) fn note(&mut self, record: &mut Record, mirror: &Mirror) {
        let is_ours = |id: &SubscriptionId| {
            mirror
                .subscriptions
                .get(id)
                .is_some_and(|found| found.kind == self.kind)
        };
        let of_slot = |slot: &Slot| mirror.cursors.get(slot).map(|cursor| cursor.subscription);
        match record {
            Record::SubscriptionCreated {
                subscription, kind, ..
            } if *kind == self.kind => {
                self.made.insert(*subscription);
            }
            Record::SubscriptionChanged {
                subscription, facts, ..
            } if is_ours(subscription) => {
                self.made.insert(*subscription);
                if let Some(known) = mirror.subscriptions.get(subscription) {
                    *facts = known.facts.to_vec();
                }
            }
            Record::SubscriptionRemoved { subscription } if is_ours(subscription) => {
                self.made.remove(subscription);
                self.moved.remove(subscription);
                self.large_at_ms.remove(subscription);
                self.useless
                    .extend(self.ledgers.remove(subscription).map(|ledger| ledger.id()));
                if let Some(known) = mirror.subscriptions.get(subscription) {
                    let ledger = NodeFacts::of(&known.facts).and_then(|facts| facts.ledger);
                    self.removed.insert(known.name.to_string(), ledger);
                }
            }
            Record::CursorCreated { subscription, .. } if is_ours(subscription) => {
                self.moved.insert(*subscription);
            }
            Record::CursorMoved { slot, .. } | Record::CursorRemoved { slot } => {
                self.moved.extend(of_slot(slot).filter(is_ours));
            }
            _ => {}
        }
    }

    fn is_due(&self, scope: NodeScope) -> bool {
        !self.made.is_empty()
            || !self.removed.is_empty()
            || (scope > NodeScope::Made && !self.moved.is_empty())
            || (scope == NodeScope::All && !self.ledgers.is_empty())
    }
}

impl CursorLog {
    /// Where cursors of Pulsar stand that are no subscriptions: entries from there on are kept for its brokers.
    #[must_use]
    pub fn held(&self) -> Option<Ordinal> {
        self.nodes.as_ref().and_then(|nodes| nodes.held)
    }

    /// Whether Pulsar's nodes lack something. Never in Pharos's own layout.
    #[must_use]
    pub fn is_node_due(&self, scope: NodeScope) -> bool {
        !self.is_failed() && self.nodes.as_ref().is_some_and(|nodes| nodes.is_due(scope))
    }

    /// Whether nodes are being written.
    #[must_use]
    pub fn is_writing_nodes(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.is_writing)
    }

    /// Writes what Pulsar's nodes lack; what was queued must be durable. `table`: of the managed ledger now. `None` when nothing is to
    /// be written or a write is under way. The owner runs it and gives it back.
    ///
    /// Cancel safety: a future that is dropped unfinished stalls the nodes; reopen then.
    pub fn write_nodes(
        &mut self,
        scope: NodeScope,
        table: &LedgerTable,
        now_ms: u64,
    ) -> Option<BoxFuture<'static, NodesWritten>> {
        if !self.is_node_due(scope) || self.is_writing_nodes() {
            return None;
        }
        let nodes = self.nodes.as_mut()?;
        nodes.is_writing = true;
        let removed = std::mem::take(&mut nodes.removed);
        let mut due: BTreeMap<SubscriptionId, bool> = BTreeMap::new();
        if scope > NodeScope::Made {
            due.extend(std::mem::take(&mut nodes.moved).into_iter().map(|id| (id, false)));
        }
        due.extend(std::mem::take(&mut nodes.made).into_iter().map(|id| (id, true)));
        let mut writes = Vec::new();
        for (id, is_made) in due {
            nodes.moved.remove(&id);
            let ledger = nodes.ledgers.remove(&id);
            let Some(mut write) = write_of(&self.mirror, self.info.name(), id, table) else {
                continue;
            };
            let goes_on = ledger.is_some() && scope < NodeScope::All;
            if goes_on || !write.state.fits_node() {
                let entry = write.state.entry(write.facts.properties.clone());
                write.entry = Some(Bytes::from(entry.encode_to_vec()));
                write.ledger = ledger;
            }
            if write
                .entry
                .as_ref()
                .is_some_and(|entry| entry.len() > LARGE_BYTES)
            {
                let last = nodes.large_at_ms.entry(id).or_default();
                if !is_made && scope < NodeScope::All && now_ms < last.saturating_add(LARGE_PAUSE_MS) {
                    nodes.moved.insert(id);
                    nodes.ledgers.extend(write.ledger.map(|ledger| (id, ledger)));
                    continue;
                }
                *last = now_ms;
            }
            (write.is_made, write.now_ms) = (is_made, now_ms);
            write.options = self.options.create_options(&self.info, name_of(&self.mirror, id));
            writes.push(write);
        }
        let task = WriteTask {
            engine: Arc::clone(&self.engine),
            info: Arc::clone(&self.info),
            is_last: scope == NodeScope::All,
            useless: std::mem::take(&mut nodes.useless),
            // They have what there is.
            closing: match scope {
                NodeScope::All => std::mem::take(&mut nodes.ledgers).into_values().collect(),
                NodeScope::Made | NodeScope::Moved => Vec::new(),
            },
        };
        Some(Box::pin(task.run(removed, writes)))
    }

    /// Takes what a write came to. What was not written is written with the next one.
    ///
    /// # Errors
    /// The first failure. When it [is fenced](NodeError::is_fenced) the log is not ours any more: reopen the topic.
    pub fn on_nodes_written(&mut self, done: NodesWritten) -> Result<(), NodeError> {
        if let Some(nodes) = &mut self.nodes {
            nodes.is_writing = false;
            for (name, ledger) in done.left_removed {
                nodes.removed.entry(name).or_insert(ledger);
            }
            for (id, is_made) in done.left {
                if self.mirror.subscriptions.contains_key(&id) {
                    let set = if is_made {
                        &mut nodes.made
                    } else {
                        &mut nodes.moved
                    };
                    set.insert(id);
                }
            }
            for (id, ledger) in done.ledgers {
                if self.mirror.subscriptions.contains_key(&id) {
                    nodes.ledgers.insert(id, ledger);
                } else {
                    nodes.useless.push(ledger.id());
                }
            }
        }
        for (id, facts) in done.written {
            // What a log that failed does not keep is read from the node.
            let _ = self.queue_facts(id, &facts);
        }
        done.outcome
    }

    /// Notes which version of its node a subscription wrote last.
    fn queue_facts(&mut self, id: SubscriptionId, facts: &NodeFacts) -> Result<(), QueueError> {
        let Some(known) = self.mirror.subscriptions.get(&id) else {
            return Ok(());
        };
        let record = Record::SubscriptionChanged {
            subscription: id,
            kind: known.kind,
            properties: known.properties.clone(),
            facts: facts.encode_to_vec(),
        };
        self.queue_record(record)
    }
}

fn name_of(mirror: &Mirror, id: SubscriptionId) -> &str {
    mirror.subscriptions.get(&id).map_or("", |known| &known.name)
}

fn write_of(mirror: &Mirror, managed_ledger: &str, id: SubscriptionId, table: &LedgerTable) -> Option<Write> {
    let known = mirror.subscriptions.get(&id)?;
    let cursor = known.slots.iter().find_map(|slot| mirror.cursors.get(slot));
    let first = AckState::new(table.first());
    let state = state_of(cursor.map_or(&first, |cursor| &cursor.acks), table)?;
    let facts = NodeFacts::of(&known.facts);
    let expect = match &facts {
        Some(facts) => Expect::Version(Version(facts.version)),
        None => Expect::Absent,
    };
    Some(Write {
        id,
        is_made: false,
        key: nodes::key(managed_ledger, &known.name),
        state,
        properties: nodes::properties_of(&known.properties),
        now_ms: 0,
        facts: facts.unwrap_or_default(),
        expect,
        entry: None,
        ledger: None,
        options: CreateOptions::default(),
    })
}

/// Takes over what Pulsar's nodes say of the cursors of a managed ledger that was just opened. Says whether the mirror changed.
pub(super) async fn take(
    engine: &dyn LedgerEngine,
    info: &InfoHandle,
    mirror: &mut Mirror,
    kind: u8,
    log: (&LedgerTable, Ordinal),
) -> Result<(Option<Nodes>, bool), crate::error::OpenError> {
    if info.layout() == MetadataLayout::Pharos {
        return Ok((None, false));
    }
    let known = mirror.subscriptions.iter().map(|(id, known)| {
        let subscription = KnownSubscription {
            id: *id,
            is_shared: known.kind == kind,
            facts: NodeFacts::of(&known.facts),
        };
        (known.name.to_string(), subscription)
    });
    let taken = nodes::take(&**info.store(), engine, info.name(), log, known.collect()).await?;
    let held = taken.held;
    let is_changed = apply(mirror, kind, taken, log);
    Ok((Some(Nodes::new(kind, held)), is_changed))
}

fn apply(mirror: &mut Mirror, kind: u8, taken: Taken, (table, end): (&LedgerTable, Ordinal)) -> bool {
    let is_changed = !taken.removed.is_empty() || !taken.moved.is_empty();
    for subscription in taken.removed {
        mirror.apply(Record::SubscriptionRemoved { subscription });
    }
    for cursor in taken.moved {
        let acks = cursor.state.acks(table, end);
        let subscription = cursor.id.unwrap_or_else(|| mirror.subscription_free());
        if cursor.id.is_none() {
            mirror.apply(Record::SubscriptionCreated {
                subscription,
                name: cursor.name.clone(),
                kind,
                properties: BTreeMap::new(),
                facts: Vec::new(),
            });
        }
        mirror.apply(nodes::facts_record(subscription, kind, &cursor));
        let known = mirror.subscriptions.get(&subscription);
        match known.and_then(|known| known.slots.first().copied()) {
            Some(slot) => mirror.apply(Record::CursorMoved { slot, acks }),
            None => mirror.apply(Record::CursorCreated {
                slot: mirror.slot_free(),
                subscription,
                consumer: String::new(),
                facts: Vec::new(),
                acks,
            }),
        }
    }
    is_changed
}
