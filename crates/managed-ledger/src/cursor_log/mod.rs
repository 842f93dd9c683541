//! Cursor log: one log for all cursors of a topic, so that a hundred thousand of them are group-committed together.
//!
//! ```text
//!   queue(record) ─► mirror (memory) and open chunk ─ commit ─► entry of ≤ 1 MiB ─► cursor ledger ─► ticket resolves
//!                                                      └ while rolling also ─► next cursor ledger
//! ```
//!
//! The log is a ledger of its own in the topic's engine, named in the managed ledger's info. It begins with a
//! snapshot of everything, followed by changes. When it has grown to several times its snapshot it *rolls*, in this
//! order:
//! 1. a new ledger is created;
//! 2. a snapshot of the mirror is queued there, and from then on every change goes to both ledgers;
//! 3. once the snapshot is durable the info names the new ledger, by compare-and-set;
//! 4. the old ledger is deleted.
//!
//! Cursor ledgers are synced whatever the durability of the topic's entries: the info is synced, and what it names
//! must not be less durable. So every commit is synced too.
//!
//! While the engine accepts nothing, changes are gathered in the mirror alone, and the log rolls: the next snapshot
//! has them all, and commits made meanwhile wait for it.
//!
//! A crash at any point leaves the info naming one complete ledger, the old or the new one. Therefore a change made
//! between 2 and 4 counts as durable only when it is durable in both ledgers, and step 3 is retried rather than given
//! up when its outcome is unknown.
//!
//! Owned by the topic's task, like the managed ledger and in the same manner: nothing waits, nothing is spawned, the
//! slow steps are futures that the owner runs. The meaning of records (kinds, facts) is defined by the broker.
//!
//! Always true: the mirror equals a replay of everything queued.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{
    Affinity, CreateOptions, Durability, FaultKind, LedgerEngine, Replication, StorageFault,
};
use pharos_types::LedgerId;
use tokio::sync::{oneshot, watch};

mod commit;
mod mirror;
mod node_ledger;
mod node_task;
mod node_write;
mod nodes;
mod open;
mod record;
mod roll;
#[cfg(test)]
mod tests;

pub use crate::pulsar::nodes::REPLICATED;
pub use commit::CommitTicket;
pub use mirror::{Cursor, Subscription, SystemCursor};
pub use node_task::{NodeOwner, NodeTurns, write_all_nodes, write_nodes, write_nodes_soon};
pub use node_write::{NodeError, NodesWritten};
pub use nodes::NodeScope;
pub use record::{Record, Slot, SubscriptionId};
pub use roll::{RollDone, RollEvent};

use crate::cursor::AckState;
use crate::error::CommitError;
use crate::info::InfoHandle;
use crate::options::custom;
use commit::{DurableAt, Target};
use mirror::Mirror;
use record::{CHANGES, encode};
use roll::Roll;

/// Settings of a cursor log.
#[derive(Clone, Debug)]
pub struct CursorLogOptions {
    /// Size below which the log never rolls, in bytes. Default 1 MiB.
    pub roll_bytes_min: u64,
    /// Times its snapshot that the log may grow to before it rolls. Default 4.
    pub roll_factor: u64,
    /// Records are gathered into entries of about this many bytes. Default 1 MiB.
    pub entry_bytes: usize,
    /// Limit of bytes queued and not yet accepted by the engine; above it changes are gathered in memory until a new
    /// ledger takes all of them at once. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// On how many machines its next ledger is kept; `None`: as the engine's settings say. Default `None`.
    pub replication: Option<Replication>,
    /// Machines that keep its next ledger; `None`: any. Default `None`.
    pub affinity: Option<Arc<Affinity>>,
    /// The kind of subscriptions that Pulsar has too; they have nodes of their own in its layout. Default 0.
    pub node_kind: u8,
}

impl Default for CursorLogOptions {
    fn default() -> Self {
        Self {
            roll_bytes_min: 1 << 20,
            roll_factor: 4,
            entry_bytes: 1 << 20,
            queue_bytes_max: 64 << 20,
            replication: None,
            affinity: None,
            node_kind: 0,
        }
    }
}

impl CursorLogOptions {
    /// Options of a new cursor ledger. Always synced: the info or a node names the ledger, and a name must not
    /// outlive its ledger. Its writes are background work: positions are stored later and many at a time, and must
    /// not slow down reads, least of all those of the readers whose positions they are.
    fn create_options(&self, info: &InfoHandle, cursor: &str) -> CreateOptions {
        CreateOptions {
            durability: Durability::Sync,
            is_background: true,
            replication: self.replication,
            affinity: self.affinity.as_deref().cloned(),
            custom: custom(info.layout(), info.name(), Some(cursor)),
            ..CreateOptions::default()
        }
    }
}

/// Largest record, in bytes: below every engine's largest entry.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// Reason why a record was not queued; nothing changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueueError {
    /// No such subscription; a bug of the caller.
    #[error("no subscription {0:?}")]
    NoSubscription(SubscriptionId),
    /// No such cursor; a bug of the caller.
    #[error("no cursor {0:?}")]
    NoCursor(Slot),
    /// No such system cursor; a bug of the caller.
    #[error("no system cursor {0}")]
    NoSystemCursor(String),
    /// The subscription id or the cursor's slot is in use; a bug of the caller.
    #[error("id is in use")]
    InUse,
    /// The record is larger than an entry may be.
    #[error("cursor record of {bytes} bytes is larger than {RECORD_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The cursor ledger failed; reopen the topic.
    #[error("cursor log has failed")]
    Failed(#[source] Arc<StorageFault>),
}

/// Hears where its records will be durable, or why that is not known yet.
type Waiter = oneshot::Sender<Result<DurableAt, CommitError>>;

impl QueueError {
    /// Severity for the owner. If it is transient, opening the topic again may succeed.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Failed(fault) => fault.kind(),
            // Memory and log have parted, which an opening mends.
            Self::NoSubscription(_)
            | Self::NoCursor(_)
            | Self::NoSystemCursor(_)
            | Self::InUse
            | Self::TooLarge { .. } => FaultKind::Transient,
        }
    }
}

/// All cursors of one topic. See the module.
pub struct CursorLog {
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
    options: CursorLogOptions,
    /// The state that everything queued amounts to.
    mirror: Mirror,
    /// Records that are not yet part of an entry.
    chunk: Vec<u8>,
    /// The ledger that the info names, when this owner opened it for writing. Without one, nothing was queued since the opening,
    /// or a roll is about to make it.
    primary: Option<Target>,
    /// The ledger that the info names.
    named: Option<LedgerId>,
    roll: Roll,
    /// The ledger that a roll replaced, and how far it must be durable before it is deleted.
    retired: Option<(LedgerId, Option<DurableAt>)>,
    /// True if a queued record is in no ledger: the next roll's snapshot writes it, and until then all later records.
    is_unwritten: bool,
    /// True if the roll under way has changes that the ledger named by the info lacks. That ledger gets no more
    /// records then: a replay could not apply later changes without the missing one.
    is_cut_off: bool,
    /// Tickets that wait for the next roll, because what they are for is in no ledger yet.
    waiting: Vec<Waiter>,
    /// Tickets that wait for the roll under way to be named.
    waiting_copy: Vec<Waiter>,
    /// Approximate size of a snapshot, in bytes.
    snapshot_bytes: u64,
    /// A roll that could not begin waits until then.
    retry_at_ms: u64,
    /// Changes not yet written to Pulsar's nodes; in its layout only.
    nodes: Option<nodes::Nodes>,
    /// The first failure, final; tickets watch it.
    failure: watch::Sender<Option<CommitError>>,
}

impl CursorLog {
    /// On how many machines and on which its ledgers are kept, from the next one on.
    pub fn set_copies(&mut self, replication: Option<Replication>, affinity: Option<Arc<Affinity>>) {
        self.options.replication = replication;
        self.options.affinity = affinity;
    }

    /// Queues a change: it is seen in the mirror at once, and durable after a [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`QueueError`]; nothing changed.
    pub fn queue(&mut self, mut record: Record) -> Result<(), QueueError> {
        self.mirror.check(&record)?;
        if let Some(nodes) = &mut self.nodes {
            if nodes.takes(&record) {
                self.check_failure()?;
                self.mirror.apply(record);
                return Ok(());
            }
            nodes.note(&mut record, &self.mirror);
        }
        self.queue_record(record)
    }

    fn check_failure(&self) -> Result<(), QueueError> {
        match &*self.failure.borrow() {
            Some(failure) => {
                let fault = StorageFault::of(failure.kind(), "cursor log", failure);
                Err(QueueError::Failed(fault))
            }
            None => Ok(()),
        }
    }

    fn queue_record(&mut self, record: Record) -> Result<(), QueueError> {
        self.check_failure()?;
        if self.queued_bytes() > self.options.queue_bytes_max {
            // The engine takes nothing at the moment. Memory holds what all changes from here on come to, and a new ledger's
            // snapshot will.
            self.is_unwritten = true;
        }
        let start = self.chunk.len();
        if start == 0 {
            self.chunk.extend_from_slice(&CHANGES);
        }
        let body = self.chunk.len();
        encode(&record, self.mirror.acks_before(&record), &mut self.chunk);
        let bytes = self.chunk.len() - body;
        if bytes > RECORD_BYTES_MAX {
            self.chunk.truncate(start);
            return Err(QueueError::TooLarge { bytes });
        }
        let is_new = match &record {
            Record::CursorCreated { .. } | Record::SubscriptionCreated { .. } => true,
            Record::SystemCursorPut { name, .. } => !self.mirror.system_cursors.contains_key(&**name),
            _ => false,
        };
        if is_new {
            self.snapshot_bytes += bytes as u64;
        }
        self.mirror.apply(record);
        let has_target = self.primary.is_some() || matches!(self.roll, Roll::Copying { .. });
        if self.is_unwritten || !has_target {
            // No ledger to write to, or one that lacks an earlier change: the snapshot that begins the next will hold this.
            self.chunk.truncate(start);
            self.is_unwritten = true;
        } else if self.chunk.len() >= self.options.entry_bytes {
            self.seal_chunk();
        }
        Ok(())
    }

    /// Sends what is queued to the ledger as one group. The ticket resolves when everything queued so far is durable.
    ///
    /// Never waits. Without anything queued the ticket resolves once earlier commits are durable.
    pub fn commit(&mut self) -> CommitTicket {
        self.seal_chunk();
        self.flush();
        if let Some(failure) = &*self.failure.borrow() {
            return CommitTicket::failed(failure.clone());
        }
        if self.is_unwritten || self.is_cut_off || self.primary.is_none() {
            let is_copied = matches!(self.roll, Roll::Copying { .. });
            let waiting = match (self.is_unwritten, is_copied) {
                (true, _) => &mut self.waiting,
                (false, true) => &mut self.waiting_copy,
                (false, false) => return CommitTicket::at(Vec::new(), self.failure.subscribe()),
            };
            let (answer, later) = oneshot::channel();
            waiting.push(answer);
            return CommitTicket::later(later, self.failure.subscribe());
        }
        if self.targets().any(|target| target.is_short) {
            // They stay queued; the caller is not to wait until there is room.
            return CommitTicket::failed(CommitError::NoSpace);
        }
        let places = self.targets().map(Target::all).collect();
        CommitTicket::at(places, self.failure.subscribe())
    }

    /// True if progress depends only on time or the engine: a step to be retried, or records that the engine has not
    /// accepted. The owner calls [`take_maintenance`](Self::take_maintenance) again a little later.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let is_due = matches!(self.roll, Roll::Idle) && self.is_roll_due();
        let waits = matches!(self.roll, Roll::Copying { is_naming: false, .. });
        !self.is_failed() && (is_due || waits || self.targets().any(|target| target.queued_bytes > 0))
    }

    /// The cursors and what they belong to.
    #[must_use]
    pub fn cursor(&self, slot: Slot) -> Option<&Cursor> {
        self.mirror.cursors.get(&slot)
    }

    /// A subscription.
    #[must_use]
    pub fn subscription(&self, subscription: SubscriptionId) -> Option<&Subscription> {
        self.mirror.subscriptions.get(&subscription).map(|found| &**found)
    }

    /// All subscriptions, by id.
    #[must_use]
    pub fn subscriptions(&self) -> &BTreeMap<SubscriptionId, Box<Subscription>> {
        &self.mirror.subscriptions
    }

    /// All cursors, by slot.
    #[must_use]
    pub fn cursors(&self) -> &BTreeMap<Slot, Cursor> {
        &self.mirror.cursors
    }

    /// The system cursors, by name.
    #[must_use]
    pub fn system_cursors(&self) -> &BTreeMap<Box<str>, SystemCursor> {
        &self.mirror.system_cursors
    }

    /// Notes whose keys start with `prefix`, in key order.
    pub fn notes(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.mirror.notes_under(prefix)
    }

    /// A slot that no cursor has. Queue the cursor's creation before asking for another.
    #[must_use]
    pub fn slot_free(&self) -> Slot {
        self.mirror.slot_free()
    }

    /// An id that no subscription has. Queue the subscription's creation before asking for another.
    #[must_use]
    pub fn subscription_free(&self) -> SubscriptionId {
        self.mirror.subscription_free()
    }

    /// The state of a cursor as queued last.
    #[must_use]
    pub fn acks(&self, slot: Slot) -> Option<&AckState> {
        self.cursor(slot).map(|cursor| &cursor.acks)
    }

    /// Makes an entry of the open chunk, for each ledger that has all before it.
    fn seal_chunk(&mut self) {
        if !self.chunk.is_empty() {
            let entry = Bytes::from(std::mem::take(&mut self.chunk));
            let whole = self.primary.as_mut().filter(|_| !self.is_cut_off);
            for target in whole.into_iter().chain(self.roll.target_mut()) {
                target.push(entry.clone());
            }
        }
    }

    /// Gives entries to the engine as far as it takes them.
    fn flush(&mut self) {
        let refused = self.targets_mut().find_map(|target| target.flush().err());
        if let Some(error) = refused {
            self.fail(error.into());
        }
    }

    fn fail(&mut self, error: CommitError) {
        // Tickets that wait for a ledger see the failure too.
        self.waiting.clear();
        self.waiting_copy.clear();
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(error);
            is_first
        });
    }

    fn is_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    fn queued_bytes(&self) -> usize {
        self.chunk.len()
            + self
                .targets()
                .map(|target| target.queued_bytes)
                .max()
                .unwrap_or_default()
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.primary.iter().chain(self.roll.target())
    }

    fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.primary.iter_mut().chain(self.roll.target_mut())
    }
}
