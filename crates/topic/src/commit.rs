//! Waiting for the cursor log, many together: a caller that comes while one commit is on its way shares the next.

use std::rc::Rc;

use pharos_feed::ids::ConsumerKey;
use pharos_managed_ledger::cursor_log::{NodeScope, NodeTurns, write_nodes, write_nodes_soon};
use pharos_requests::error::{CursorError, chain};
use pharos_runtime::spawn_local;
use tokio::sync::oneshot;

use super::carrier::Carrier;
use super::durable_cursors::Ending;
use super::nodes::NodesOf;
use super::{Stored, Topic, TopicContext};

/// Tasks that wait for a commit.
#[derive(Default)]
pub(super) struct Commits {
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
    running: bool,
    /// A commit was asked for after the one that runs began.
    queued: bool,
    /// A task will look at the cursor log again.
    pub(super) comes_again: bool,
    /// Turns of the tasks that write Pulsar's metadata nodes of the cursors.
    pub(super) node_turns: Rc<NodeTurns>,
}

impl Topic {
    /// Makes everything queued so far in the cursor log durable.
    ///
    /// # Errors
    /// The storage's reason; the records may or may not survive.
    pub(super) async fn commit_cursors(&self) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        self.state.borrow_mut().stored.commits.waiting.push(sender);
        self.start_commit();
        receiver
            .await
            .unwrap_or_else(|_| Err("topic was closed".to_owned()))
    }

    /// Makes what a consumer acknowledged until now durable, where its acknowledgements were heard of.
    ///
    /// # Errors
    /// As for [`commit_cursors`](Self::commit_cursors).
    pub async fn settle_acks(&self, key: ConsumerKey) -> Result<(), String> {
        if self.cx.is_non_persistent() {
            return Ok(());
        }
        let name = {
            let state = self.state.borrow();
            let consumer = state.attached.consumers.get(&key);
            consumer.map(|consumer| consumer.subscription.clone())
        };
        if let Some(name) = name {
            self.flush_dispatched(&name);
        }
        self.commit_cursors().await
    }

    /// Makes all that stream consumers and dispatchers have acknowledged until now durable.
    ///
    /// # Errors
    /// As for [`commit_cursors`](Self::commit_cursors).
    pub(crate) async fn settle(&self) -> Result<(), CursorError> {
        self.hear_progress().await;
        self.commit_cursors().await.map_err(CursorError::Storage)
    }

    /// Starts writing what is queued in the cursor log, without waiting for it.
    pub(super) fn start_commit(&self) {
        let Some(me) = self.cx.me() else { return };
        {
            let mut state = self.state.borrow_mut();
            state.stored.commits.queued = true;
            if std::mem::replace(&mut state.stored.commits.running, true) {
                return;
            }
        }
        spawn_local(async move {
            // Let the others of this turn queue theirs first.
            tokio::task::yield_now().await;
            loop {
                let (waiting, ending, lowest, ticket) = {
                    let mut state = me.state.borrow_mut();
                    state.stored.commits.queued = false;
                    let waiting = std::mem::take(&mut state.stored.commits.waiting);
                    let ending = state.stored.cursors.take_ending();
                    let lowest = state.stored.cursors.lowest();
                    let ticket = state.stored.cursors.log_mut().commit();
                    state.stored.maintain_cursors(&me.cx);
                    (waiting, ending, lowest, ticket)
                };
                let outcome = ticket.durable().await.map_err(|error| {
                    let reason = chain(&error);
                    if error.is_transient() {
                        // The store says what it lacks; here it would be said for each topic, every second.
                        tracing::debug!(topic = %me.cx.name, reason, "cursors are stored later");
                    } else {
                        let mut state = me.state.borrow_mut();
                        let reason = format!("cursor log: {reason}");
                        state.stored.publishing.fail(&me.cx, &reason, error.kind());
                    }
                    reason
                });
                // What was made or deleted is told once a broker of Pulsar would know it too.
                let outcome = match outcome {
                    Ok(()) => write_nodes(&NodesOf(&*me), NodeScope::Made)
                        .await
                        .map_err(|error| chain(&error)),
                    Err(reason) => Err(reason),
                };
                let outcome = match outcome {
                    Ok(()) => Carrier(&me).on_cursors_durable(lowest).await,
                    failed => failed,
                };
                for waiter in waiting {
                    // A waiter that left does not mind.
                    let _ = waiter.send(outcome.clone());
                }
                let mut state = me.state.borrow_mut();
                match outcome {
                    Ok(()) => state.stored.let_go(&me.cx, &ending),
                    Err(_) => state.stored.cursors.put_back_ending(ending),
                }
                if outcome.is_err() {
                    // Those who came meanwhile would fail the same way: dropping their senders tells them.
                    state.stored.commits.waiting.clear();
                }
                if state.stored.commits.waiting.is_empty()
                    && (outcome.is_err() || !state.stored.commits.queued)
                {
                    state.stored.commits.running = false;
                    drop(state);
                    let topic = Rc::downgrade(&me);
                    let owner = move || topic.upgrade().map(NodesOf);
                    if let Some(task) = write_nodes_soon(&NodesOf(me), owner) {
                        spawn_local(task);
                    }
                    return;
                }
            }
        });
    }
}

impl Stored {
    /// The end of cursors is durable: what they held may go.
    fn let_go(&mut self, cx: &TopicContext, ending: &Ending) {
        if !ending.is_empty() {
            self.cursors.let_go(ending);
            self.trim_soon(cx);
        }
    }
}
