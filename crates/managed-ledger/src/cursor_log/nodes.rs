//! Writing subscriptions to Pulsar's nodes, some time after the log knows: what was made or deleted before that is answered, what
//! was acknowledged about once a second, and all of it before a topic closes.
//!
//! What a node has no room for, and parts of batches, go to a ledger that the node names; while that is open, what follows goes there too.
//!
//! System cursors are written to their nodes by the commit itself, and nowhere else: what holds is what a broker of Pulsar reads, too. Of those that
//! move often the states go to a ledger.
//!
//! Always true: of one log one write is under way at most, so no older state follows a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_metadata::{Expect, MetadataLayout, Version};
use pharos_types::Ordinal;
use prost::Message as _;

use super::mirror::{Mirror, SystemCursor};
use super::node_ledger::NodeLedger;
use super::node_write::{NodeError, NodeOf, NodesWritten, Write, WriteTask};
use super::record::{Record, Slot, SubscriptionId};
use super::{CursorLog, QueueError};
use crate::cursor::AckState;
use crate::info::InfoHandle;
use crate::pulsar::cursor::state_of;
use crate::pulsar::nodes::{self, KnownSubscription, NodeFacts, Taken};
use crate::pulsar::proto::LongProperty;
use crate::table::LedgerTable;

/// A state of more bytes is written seldom while the topic is open.
const LARGE_BYTES: usize = 64 << 10;
const LARGE_PAUSE_MS: u64 = 5_000;
/// A system cursor that is written again within this goes to a ledger, as the store of the nodes is everyone's.
const OFTEN_MS: u64 = 10_000;

/// Subscriptions to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeScope {
    /// Subscriptions that were created, deleted or given other properties.
    Made,
    /// Also subscriptions whose cursor moved; large states not each time.
    Moved,
    /// Everything that a node does not have yet.
    All,
}

/// Changes of the log that are not in the nodes yet.
pub(super) struct Nodes {
    /// The kind of subscriptions that have nodes.
    kind: u8,
    moved: BTreeSet<NodeOf>,
    made: BTreeSet<NodeOf>,
    /// By name, with a ledger that goes with them.
    removed: BTreeMap<String, Option<u64>>,
    is_writing: bool,
    /// True if the write under way has creations or deletions: callers wait for those.
    is_awaited: bool,
    /// Time of the last write of each large state or system cursor, in milliseconds since 1970.
    written_ms: BTreeMap<NodeOf, u64>,
    /// Open ledgers of cursors whose state does not fit their node.
    ledgers: BTreeMap<NodeOf, NodeLedger>,
    /// Ledgers that no node will name any more.
    useless: Vec<u64>,
    /// The nodes of system cursors that have one.
    system: BTreeMap<Box<str>, NodeFacts>,
}

impl Nodes {
    /// The state for a log that was just opened.
    pub(super) fn new(kind: u8) -> Self {
        Self {
            kind,
            moved: BTreeSet::new(),
            made: BTreeSet::new(),
            removed: BTreeMap::new(),
            is_writing: false,
            is_awaited: false,
            written_ms: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            useless: Vec::new(),
            system: BTreeMap::new(),
        }
    }

    /// Hears of a record. Says whether it is of a system cursor, which the log does not keep.
    pub(super) fn takes(&mut self, record: &Record) -> bool {
        match record {
            Record::SystemCursorPut { name, .. } => {
                self.made.insert(NodeOf::System(name.as_str().into()));
                true
            }
            Record::SystemCursorRemoved { name } => {
                self.forget(&NodeOf::System(name.as_str().into()));
                let ledger = self.system.remove(name.as_str()).and_then(|facts| facts.ledger);
                self.removed.insert(name.clone(), ledger);
                true
            }
            _ => false,
        }
    }

    /// A cursor is gone.
    fn forget(&mut self, id: &NodeOf) {
        self.made.remove(id);
        self.moved.remove(id);
        self.written_ms.remove(id);
        self.useless
            .extend(self.ledgers.remove(id).map(|ledger| ledger.id()));
    }

    /// Hears of a record before the mirror has it. A subscription's facts are ours.
    pub(super) fn note(&mut self, record: &mut Record, mirror: &Mirror) {
        let is_ours = |id: &NodeOf| match id {
            NodeOf::Subscription(id) => mirror
                .subscriptions
                .get(id)
                .is_some_and(|found| found.kind == self.kind),
            NodeOf::System(_) => false,
        };
        let of_slot = |slot: &Slot| {
            let cursor = mirror.cursors.get(slot);
            cursor.map(|cursor| NodeOf::Subscription(cursor.subscription))
        };
        match record {
            Record::SubscriptionCreated {
                subscription, kind, ..
            } if *kind == self.kind => {
                self.made.insert(NodeOf::Subscription(*subscription));
            }
            Record::SubscriptionChanged {
                subscription, facts, ..
            } if is_ours(&NodeOf::Subscription(*subscription)) => {
                self.made.insert(NodeOf::Subscription(*subscription));
                if let Some(known) = mirror.subscriptions.get(subscription) {
                    *facts = known.facts.to_vec();
                }
            }
            Record::SubscriptionRemoved { subscription } if is_ours(&NodeOf::Subscription(*subscription)) => {
                self.forget(&NodeOf::Subscription(*subscription));
                if let Some(known) = mirror.subscriptions.get(subscription) {
                    let ledger = NodeFacts::of(&known.facts).and_then(|facts| facts.ledger);
                    self.removed.insert(known.name.to_string(), ledger);
                }
            }
            Record::CursorCreated { subscription, .. } if is_ours(&NodeOf::Subscription(*subscription)) => {
                self.moved.insert(NodeOf::Subscription(*subscription));
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
    /// Position of the cursor that holds entries for a compaction by a Pulsar broker, as long as nothing is
    /// compacted.
    #[must_use]
    pub fn held(&self) -> Option<Ordinal> {
        self.info.held()
    }

    /// True if Pulsar's nodes lack something. Always false in Pharos's own layout.
    #[must_use]
    pub fn is_node_due(&self, scope: NodeScope) -> bool {
        !self.is_failed() && self.nodes.as_ref().is_some_and(|nodes| nodes.is_due(scope))
    }

    /// True while nodes are being written.
    #[must_use]
    pub fn is_writing_nodes(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.is_writing)
    }

    /// True while nodes of created or deleted subscriptions, or of a system cursor, are being written.
    #[must_use]
    pub fn is_writing_made(&self) -> bool {
        self.nodes
            .as_ref()
            .is_some_and(|nodes| nodes.is_writing && nodes.is_awaited)
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
        nodes.is_awaited = !nodes.made.is_empty() || !nodes.removed.is_empty();
        let removed = std::mem::take(&mut nodes.removed);
        let mut due: BTreeMap<NodeOf, bool> = BTreeMap::new();
        if scope > NodeScope::Made {
            due.extend(std::mem::take(&mut nodes.moved).into_iter().map(|id| (id, false)));
        }
        due.extend(std::mem::take(&mut nodes.made).into_iter().map(|id| (id, true)));
        let mut writes = Vec::new();
        for (id, is_made) in due {
            nodes.moved.remove(&id);
            let ledger = nodes.ledgers.remove(&id);
            let write = match &id {
                NodeOf::Subscription(_) => write_of(&self.mirror, self.info.name(), &id, table),
                NodeOf::System(name) => nodes.write_of_system(&self.mirror, self.info.name(), name, table),
            };
            let Some(mut write) = write else {
                continue;
            };
            let is_often = matches!(id, NodeOf::System(_)) && {
                let before = nodes.written_ms.insert(id.clone(), now_ms);
                before.is_some_and(|before| now_ms < before.saturating_add(OFTEN_MS))
            };
            let goes_on = (ledger.is_some() || is_often) && scope < NodeScope::All;
            if goes_on || !write.state.fits_node(&write.facts.properties) {
                let entry = write.state.entry(write.facts.properties.clone());
                write.entry = Some(Bytes::from(entry.encode_to_vec()));
                write.ledger = ledger;
            }
            let is_large = |entry: &Bytes| entry.len() > LARGE_BYTES;
            if write.entry.as_ref().is_some_and(is_large) && matches!(id, NodeOf::Subscription(_)) {
                let last = nodes.written_ms.entry(id.clone()).or_default();
                if !is_made && scope < NodeScope::All && now_ms < last.saturating_add(LARGE_PAUSE_MS) {
                    nodes.moved.insert(id.clone());
                    nodes.ledgers.extend(write.ledger.map(|ledger| (id, ledger)));
                    continue;
                }
                *last = now_ms;
            }
            (write.is_made, write.now_ms) = (is_made, now_ms);
            write.options = self
                .options
                .create_options(&self.info, name_of(&self.mirror, &id));
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
                if is_there(&self.mirror, &id) {
                    let set = if is_made {
                        &mut nodes.made
                    } else {
                        &mut nodes.moved
                    };
                    set.insert(id);
                }
            }
            for (id, ledger) in done.ledgers {
                if is_there(&self.mirror, &id) {
                    nodes.ledgers.insert(id, ledger);
                } else {
                    nodes.useless.push(ledger.id());
                }
            }
        }
        for (id, facts) in done.written {
            if !is_there(&self.mirror, &id) {
                continue;
            }
            match id {
                // What a log that failed does not keep is read from the node.
                NodeOf::Subscription(id) => _ = self.queue_facts(id, &facts),
                NodeOf::System(name) => {
                    if let Some(nodes) = &mut self.nodes {
                        nodes.system.insert(name, facts);
                    }
                }
            }
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

fn is_there(mirror: &Mirror, id: &NodeOf) -> bool {
    match id {
        NodeOf::Subscription(id) => mirror.subscriptions.contains_key(id),
        NodeOf::System(name) => mirror.system_cursors.contains_key(name),
    }
}

fn name_of<'a>(mirror: &'a Mirror, id: &'a NodeOf) -> &'a str {
    match id {
        NodeOf::Subscription(id) => mirror.subscriptions.get(id).map_or("", |known| &known.name),
        NodeOf::System(name) => name,
    }
}

impl Nodes {
    fn write_of_system(
        &self,
        mirror: &Mirror,
        managed_ledger: &str,
        name: &str,
        table: &LedgerTable,
    ) -> Option<Write> {
        let SystemCursor { position, properties } = mirror.system_cursors.get(name)?;
        let state = state_of(&AckState::new(*position), table)?;
        let known = self.system.get(name);
        let expect = known.map_or(Expect::Absent, |facts| Expect::Version(Version(facts.version)));
        let properties = properties.iter().map(|(name, value)| LongProperty {
            name: name.clone(),
            value: *value,
        });
        let facts = NodeFacts {
            properties: properties.collect(),
            version: known.map_or(0, |facts| facts.version),
            ledger: known.and_then(|facts| facts.ledger),
        };
        let key = nodes::key(managed_ledger, name);
        Some(Write::new(NodeOf::System(name.into()), key, state, facts, expect))
    }
}

fn write_of(mirror: &Mirror, managed_ledger: &str, id: &NodeOf, table: &LedgerTable) -> Option<Write> {
    let NodeOf::Subscription(number) = id else {
        return None;
    };
    let known = mirror.subscriptions.get(number)?;
    let cursor = known.slots.iter().find_map(|slot| mirror.cursors.get(slot));
    let first = AckState::new(table.first());
    let state = state_of(cursor.map_or(&first, |cursor| &cursor.acks), table)?;
    let facts = NodeFacts::of(&known.facts);
    let expect = match &facts {
        Some(facts) => Expect::Version(Version(facts.version)),
        None => Expect::Absent,
    };
    let key = nodes::key(managed_ledger, &known.name);
    let mut facts = facts.unwrap_or_default();
    nodes::set_replicated(&mut facts.properties, &known.properties);
    let mut write = Write::new(id.clone(), key, state, facts, expect);
    write.properties = nodes::properties_of(&known.properties);
    Some(write)
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
    let mut taken = nodes::take(&**info.store(), engine, info.name(), known.collect()).await?;
    let (table, end) = log;
    let mut of_log = Nodes::new(kind);
    mirror.system_cursors.clear();
    for cursor in std::mem::take(&mut taken.system) {
        let name: Box<str> = cursor.name.into();
        let properties = cursor.facts.properties.iter();
        let put = SystemCursor {
            position: cursor.state.acks(table, end).acked_to(),
            properties: properties
                .map(|property| (property.name.clone(), property.value))
                .collect(),
        };
        mirror.system_cursors.insert(name.clone(), put);
        of_log.system.insert(name, cursor.facts);
    }
    let is_changed = apply(mirror, kind, taken, log);
    Ok((Some(of_log), is_changed))
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
