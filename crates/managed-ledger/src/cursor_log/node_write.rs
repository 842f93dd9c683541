//! Write of nodes, off the owner's task: deletions first, then one subscription after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{CreateOptions, FaultKind, LedgerEngine};
use pharos_metadata::Expect;
use pharos_types::LedgerId;
use prost::Message as _;
use tokio::sync::Semaphore;

use super::node_ledger::NodeLedger;
use super::record::SubscriptionId;
use crate::error::CommitError;
use crate::info::{InfoError, InfoHandle};
use crate::pulsar::cursor::{CursorState, fit_node};
use crate::pulsar::nodes::{self, NodeFacts};
use crate::pulsar::proto::KeyValue;

/// Topics whose nodes are written at a time, so that a stop does not send all at once.
static WRITERS: Semaphore = Semaphore::const_new(64);

/// Reason why nodes were not written.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A node itself, or what goes with it.
    #[error("cannot write a cursor's node")]
    Info(#[from] InfoError),
    /// The ledger that it names.
    #[error("cannot write a cursor's ledger")]
    Ledger(#[from] CommitError),
}

impl NodeError {
    /// True if another broker owns the topic. A fenced cursor ledger does not prove that; the node does, when it is
    /// to name the next ledger.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Info(error) if error.kind() == FaultKind::Fenced)
    }
}

/// Cursor that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeOf {
    Subscription(SubscriptionId),
    /// A system cursor.
    System(Box<str>),
}

/// Cursor to write.
pub(super) struct Write {
    pub(super) id: NodeOf,
    pub(super) is_made: bool,
    pub(super) key: String,
    pub(super) state: CursorState,
    pub(super) properties: Vec<KeyValue>,
    pub(super) now_ms: u64,
    pub(super) facts: NodeFacts,
    pub(super) expect: Expect,
    /// The state as it goes to the cursor's ledger, if it does.
    pub(super) entry: Option<Bytes>,
    pub(super) ledger: Option<NodeLedger>,
    /// Options of its next ledger.
    pub(super) options: CreateOptions,
}

impl Write {
    pub(super) fn new(id: NodeOf, key: String, state: CursorState, facts: NodeFacts, expect: Expect) -> Self {
        Self {
            id,
            is_made: false,
            key,
            state,
            properties: Vec::new(),
            now_ms: 0,
            facts,
            expect,
            entry: None,
            ledger: None,
            options: CreateOptions::default(),
        }
    }
}

/// Result of a write; pass it unchanged to [`CursorLog::on_nodes_written`](super::CursorLog::on_nodes_written).
pub struct NodesWritten {
    pub(super) written: Vec<(NodeOf, NodeFacts)>,
    pub(super) ledgers: Vec<(NodeOf, NodeLedger)>,
    /// Writes to retry.
    pub(super) left: Vec<(NodeOf, bool)>,
    pub(super) left_removed: BTreeMap<String, Option<u64>>,
    pub(super) outcome: Result<(), NodeError>,
}

/// State shared by all cursors of one write.
pub(super) struct WriteTask {
    pub(super) engine: Arc<dyn LedgerEngine>,
    pub(super) info: Arc<InfoHandle>,
    /// True if the topic closes.
    pub(super) is_last: bool,
    pub(super) useless: Vec<u64>,
    pub(super) closing: Vec<NodeLedger>,
}

impl WriteTask {
    pub(super) async fn run(
        mut self,
        mut removed: BTreeMap<String, Option<u64>>,
        writes: Vec<Write>,
    ) -> NodesWritten {
        // Never closed.
        let _turn = WRITERS.acquire().await;
        let mut written = Vec::new();
        let mut ledgers = Vec::new();
        let mut left = Vec::new();
        let mut outcome = Ok(());
        while let Some((name, ledger)) = removed.pop_first() {
            let key = nodes::key(self.info.name(), &name);
            if let Err(error) = nodes::remove(&self.info, &key).await {
                outcome = Err(NodeError::Info(error));
                removed.insert(name, ledger);
                break;
            }
            self.useless.extend(ledger);
        }
        for mut write in writes {
            if let Err(NodeError::Info(_)) = outcome {
                left.push((write.id.clone(), write.is_made));
                ledgers.extend(write.ledger.map(|ledger| (write.id, ledger)));
                continue;
            }
            match self.write(&mut write).await {
                Ok(has_node) => {
                    written.extend(has_node.then(|| (write.id.clone(), std::mem::take(&mut write.facts))))
                }
                Err(error) => {
                    // A ledger that fails is one cursor's trouble; the store is that of all.
                    if outcome.is_ok() || matches!(error, NodeError::Info(_)) {
                        outcome = Err(error);
                    }
                    left.push((write.id.clone(), write.is_made));
                }
            }
            match write.ledger {
                Some(ledger) if self.is_last && outcome.is_ok() => self.closing.push(ledger),
                ledger => ledgers.extend(ledger.map(|ledger| (write.id, ledger))),
            }
        }
        for ledger in self.closing {
            ledger.close().await;
        }
        if !self.useless.is_empty() {
            give_up(&*self.engine, &self.info, &self.useless).await;
        }
        NodesWritten {
            written,
            ledgers,
            left,
            left_removed: removed,
            outcome,
        }
    }

    /// Writes one. Says whether the node is another now.
    async fn write(&mut self, write: &mut Write) -> Result<bool, NodeError> {
        if let Some(entry) = write.entry.clone() {
            let mut ledger = match write.ledger.take().filter(|ledger| !ledger.is_full()) {
                Some(ledger) => ledger,
                None => NodeLedger::create(&*self.engine, write.options.clone()).await?,
            };
            let is_named = write.facts.ledger == Some(ledger.id());
            if let Err(error) = ledger.append(entry).await {
                // The next try makes another.
                self.useless.extend((!is_named).then(|| ledger.id()));
                return Err(error.into());
            }
            write.ledger = Some(ledger);
            // What was made of a subscription, its properties, is in the node.
            if is_named && !(write.is_made && matches!(write.id, NodeOf::Subscription(_))) {
                return Ok(false);
            }
        }
        let ledger = write.ledger.as_ref().map(NodeLedger::id);
        let mut node = write.state.node(ledger);
        node.last_active = i64::try_from(write.now_ms).ok();
        if ledger.is_none() || fit_node(&write.facts.properties) {
            node.properties.clone_from(&write.facts.properties);
        }
        node.cursor_properties.clone_from(&write.properties);
        let version = nodes::put(&self.info, &write.key, node.encode_to_vec().into(), write.expect).await?;
        let before = std::mem::replace(&mut write.facts.ledger, ledger);
        self.useless
            .extend(before.filter(|before| Some(*before) != ledger));
        write.facts.version = version.0;
        Ok(true)
    }
}

/// Deletes ledgers of Pulsar's cursors that no node names any more: noted first, so that what fails now is done by the next opening.
async fn give_up(engine: &dyn LedgerEngine, info: &InfoHandle, ledgers: &[u64]) {
    let note =
        |info: &mut crate::info::ManagedLedgerInfo| ledgers.iter().for_each(|ledger| info.give_up(*ledger));
    if info.update(note).await.is_ok() {
        for ledger in ledgers.iter().copied().map(LedgerId) {
            if engine.delete(ledger).await.is_ok() {
                info.note_deleted(ledger);
            }
        }
    }
}
