//! Requests that wait for their answer: a bounded number for each connection; and those that wait for their turn, because their role
//! asks too fast.
//!
//! While a connection has too many, or one that waits for its turn, it is not read, so that what a client asks in one breath waits in
//! its own socket and not in our memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use pharos_runtime::{clock, spawn_local};
use pharos_wire::Command;

use crate::connection::Connection;
use crate::decision::{Decision, decision};

/// How often one that waits for its turn looks whether its connection is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Those of one connection.
#[derive(Default)]
pub(crate) struct WaitingRequests {
    count: Cell<u32>,
    /// The next one waits for its turn.
    is_paced: Cell<bool>,
}

impl WaitingRequests {
    /// Whether as many wait as may; `most` of 0 is no limit.
    pub(crate) fn are_enough(&self, most: u32) -> bool {
        most > 0 && self.count.get() >= most
    }

    /// Whether the connection is not read because its role asks too fast.
    pub(crate) fn is_paced(&self) -> bool {
        self.is_paced.get()
    }
}

/// Answers a request of `connection` in a task of its own, which counts until it ends.
pub(crate) fn answer_later<F>(connection: &Rc<Connection>, answer: impl FnOnce(Rc<Connection>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let waiting = &connection.requests_waiting.count;
    waiting.set(waiting.get() + 1);
    // Boxed: the task would hold it twice, and it is thousands of bytes.
    let (connection, answer) = (connection.clone(), Box::pin(answer(connection.clone())));
    spawn_local(async move {
        answer.await;
        let waiting = &connection.requests_waiting.count;
        waiting.set(waiting.get() - 1);
        if connection.may_resume() {
            connection.resumed.notify_one();
        }
    });
}

/// How long a command has to wait for its turn. What belongs to a producer or consumer that was let in, and what concerns the connection
/// alone, waits for none.
pub(crate) fn turn(connection: &Connection, command: &Command) -> Duration {
    let is_request = match decision(command.command_type()) {
        Decision::Asks(_) | Decision::AsksOfConsumer(_) | Decision::NotServed => true,
        Decision::Proves | Decision::Attached | Decision::Connection | Decision::OfBrokers => false,
    };
    match connection.peer.borrow().as_ref() {
        Some(peer) if is_request => connection
            .server
            .limiter
            .request(&peer.principal, &connection.address),
        _ => Duration::ZERO,
    }
}

/// Waits so long. Returns false when the connection closed meanwhile.
pub(crate) async fn wait_for_turn(connection: &Connection, turn: Duration) -> bool {
    connection.requests_waiting.is_paced.set(true);
    let nanos = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
    let until = clock::now().0.saturating_add(nanos);
    while !connection.is_closed() {
        let left = Duration::from_nanos(until.saturating_sub(clock::now().0));
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
    }
    connection.requests_waiting.is_paced.set(false);
    !connection.is_closed()
}
