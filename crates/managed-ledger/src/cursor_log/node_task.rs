//! Schedule of writes to Pulsar's nodes, for the owner of a cursor log, which is a task of one thread.
//!
//! Creations and deletions are written before they are answered, by the commit that makes them durable here.
//! Acknowledgements are written about once a second, and completely when the topic closes: a clean stop hands over
//! exact positions.
//!
//! Nothing is spawned here: the owner runs the futures it is given.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use super::CursorLog;
use super::node_write::NodeError;
use super::nodes::NodeScope;
use crate::table::LedgerTable;

/// Interval between writes of moved cursors.
const INTERVAL: Duration = Duration::from_secs(1);
/// Times that a topic which closes tries to write its nodes, and the pause between.
const CLOSING_TRIES: usize = 5;
const CLOSING_PAUSE: Duration = Duration::from_millis(500);

/// Coordination of the tasks that write the nodes of a log. Kept by the owner.
#[derive(Default)]
pub struct NodeTurns {
    /// True if a task that writes moved cursors is scheduled.
    comes_soon: Cell<bool>,
    /// Told when a write is over.
    over: Notify,
}

/// The owner of a cursor log.
pub trait NodeOwner {
    /// Coordination of the writing tasks.
    fn turns(&self) -> Rc<NodeTurns>;
    /// Lends the log, with the table of the managed ledger as it is now and the milliseconds since 1970.
    fn with_log<T>(&self, run: impl FnOnce(&mut CursorLog, LedgerTable, u64) -> T) -> T;
    /// Another has the topic: the log is not to be written any more.
    fn on_fenced(&self, error: &NodeError);
}

/// Writes what the nodes lack, after a write that is under way.
///
/// # Errors
/// The store's reason; what was not written is written later.
pub async fn write_nodes(owner: &impl NodeOwner, scope: NodeScope) -> Result<(), NodeError> {
    let turns = owner.turns();
    loop {
        let over = turns.over.notified();
        let write = owner.with_log(|log, table, now_ms| match log.is_node_due(scope) {
            true => Some(log.write_nodes(scope, &table, now_ms)),
            // What is waited for may be under way, and may fail.
            false => log.is_writing_made().then_some(None),
        });
        let Some(write) = write else { return Ok(()) };
        let Some(write) = write else {
            over.await;
            continue;
        };
        let done = write.await;
        let outcome = owner.with_log(|log, _, _| log.on_nodes_written(done));
        if let Err(error) = &outcome
            && error.is_fenced()
        {
            owner.on_fenced(error);
        }
        turns.over.notify_waiters();
        return outcome;
    }
}

/// Returns a future that writes moved cursors about once a second, while there are any and `owner` finds their owner;
/// `None` if none moved, or if such a future exists already.
pub fn write_nodes_soon<O: NodeOwner>(
    now: &O,
    owner: impl Fn() -> Option<O> + 'static,
) -> Option<impl Future<Output = ()> + 'static> {
    let is_due = now.with_log(|log, _, _| log.is_node_due(NodeScope::Moved));
    if !is_due || now.turns().comes_soon.replace(true) {
        return None;
    }
    Some(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(owner) = owner() else { return };
            if let Err(error) = write_nodes(&owner, NodeScope::Moved).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "positions are written for Pulsar later"
                );
            }
            if !owner.with_log(|log, _, _| log.is_node_due(NodeScope::Moved)) {
                owner.turns().comes_soon.set(false);
                return;
            }
        }
    })
}

/// Writes everything, for a topic that closes and whose last commit is durable; tries some times.
pub async fn write_all_nodes(owner: &impl NodeOwner) {
    let mut tries_left = CLOSING_TRIES;
    while let Err(error) = write_nodes(owner, NodeScope::All).await {
        tries_left -= 1;
        if tries_left == 0 || error.is_fenced() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a topic is closed before its positions were written for Pulsar"
            );
            return;
        }
        tokio::time::sleep(CLOSING_PAUSE).await;
    }
    // Which version each node has: without it the nodes are read at the next opening, and say the same.
    let ticket = owner.with_log(|log, _, _| log.commit());
    if let Err(error) = ticket.durable().await {
        tracing::debug!(%error, "versions of nodes are not noted");
    }
}
