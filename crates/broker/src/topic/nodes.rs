//! What Pulsar's brokers are to know of the cursors: written to its nodes in the metadata store, in its layout only.
//!
//! What was made or deleted is written before that is answered, by the commit that makes it durable here. What was acknowledged is written
//! about once a second, and all of it when the topic closes: a clean stop hands over exact positions.

use std::rc::Rc;
use std::time::Duration;

use pharos_ledger::FaultKind;
use pharos_managed_ledger::cursor_log::NodeScope;
use pharos_runtime::{clock, spawn_local};

use super::Topic;
use crate::error::chain;

/// How often cursors that moved are written.
const INTERVAL: Duration = Duration::from_secs(1);
/// Times that a topic which closes tries to write its nodes, and the pause between.
const CLOSING_TRIES: usize = 5;
const CLOSING_PAUSE: Duration = Duration::from_millis(500);

impl Topic {
    /// Writes what the nodes lack, after a write that is under way.
    ///
    /// # Errors
    /// The store's reason; what was not written is written later.
    pub(super) async fn write_nodes(&self, scope: NodeScope) -> Result<(), String> {
        loop {
            let written = self.state.borrow().stored.commits.nodes_written.clone();
            let over = written.notified();
            let write = {
                let mut state = self.state.borrow_mut();
                let table = state.stored.log.ledger.table();
                let log = state.stored.cursors.log_mut();
                if !log.is_node_due(scope) {
                    return Ok(());
                }
                log.write_nodes(scope, &table, clock::wall_ms())
            };
            let Some(write) = write else {
                over.await;
                continue;
            };
            let done = write.await;
            let outcome = {
                let mut state = self.state.borrow_mut();
                let outcome = state.stored.cursors.log_mut().on_nodes_written(done);
                if let Err(error) = &outcome
                    && error.kind() == FaultKind::Fenced
                {
                    state
                        .stored
                        .publishing
                        .fail(&self.cx, &chain(error), error.kind());
                }
                outcome
            };
            written.notify_waiters();
            return outcome.map_err(|error| chain(&error));
        }
    }
}

/// Sees to it that cursors which moved are written, about once a second, while there are any.
pub(super) fn write_nodes_soon(topic: &Topic) {
    let Some(me) = topic.cx.me() else { return };
    {
        let mut state = topic.state.borrow_mut();
        let is_due = state.stored.cursors.log().is_node_due(NodeScope::Moved);
        if !is_due || std::mem::replace(&mut state.stored.commits.writes_nodes_soon, true) {
            return;
        }
    }
    let me = Rc::downgrade(&me);
    spawn_local(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(me) = me.upgrade() else { return };
            if let Err(reason) = me.write_nodes(NodeScope::Moved).await {
                tracing::debug!(topic = %me.cx.name, reason, "positions are written for Pulsar later");
            }
            let mut state = me.state.borrow_mut();
            if state.stored.closing || !state.stored.cursors.log().is_node_due(NodeScope::Moved) {
                state.stored.commits.writes_nodes_soon = false;
                return;
            }
        }
    });
}

/// Writes everything, for a topic that closes and whose last commit is durable.
pub(super) async fn write_all_nodes(topic: &Topic) {
    for tried in 1..=CLOSING_TRIES {
        let Err(reason) = topic.write_nodes(NodeScope::All).await else {
            break;
        };
        let has_failed = topic.state.borrow().stored.publishing.fault.is_some();
        if has_failed || tried == CLOSING_TRIES {
            tracing::error!(
                topic = %topic.cx.name,
                reason,
                "closed before its subscriptions' positions were written for Pulsar"
            );
            return;
        }
        tokio::time::sleep(CLOSING_PAUSE).await;
    }
    // Which version each node has: without it the nodes are read at the next opening, and say the same.
    let ticket = topic.state.borrow_mut().stored.cursors.log_mut().commit();
    if let Err(error) = ticket.durable().await {
        tracing::debug!(topic = %topic.cx.name, error = chain(&error), "versions of nodes are not noted");
    }
}
