//! Cursor state published for Pulsar's brokers: `managed-ledger` writes it, in Pulsar's layout only.

use std::ops::Deref;
use std::rc::Rc;

use pharos_ledger::FaultKind;
use pharos_managed_ledger::cursor_log::{NodeError, NodeOwner, NodeTurns};
use pharos_managed_ledger::{CursorLog, LedgerTable};
use pharos_requests::error::chain;
use pharos_runtime::clock;

use super::Topic;

/// The cursors of a topic.
pub(super) struct NodesOf<T: Deref<Target = Topic>>(pub(super) T);

impl<T: Deref<Target = Topic>> NodeOwner for NodesOf<T> {
    fn turns(&self) -> Rc<NodeTurns> {
        Rc::clone(&self.0.state.borrow().stored.commits.node_turns)
    }

    fn with_log<R>(&self, run: impl FnOnce(&mut CursorLog, LedgerTable, u64) -> R) -> R {
        let mut state = self.0.state.borrow_mut();
        let table = state.stored.log.ledger.table();
        run(state.stored.cursors.log_mut(), table, clock::wall_ms())
    }

    fn on_fenced(&self, error: &NodeError) {
        let publishing = &mut self.0.state.borrow_mut().stored.publishing;
        publishing.fail(&self.0.cx, &chain(error), FaultKind::Fenced);
    }
}
