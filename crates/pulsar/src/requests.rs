//! Requests that wait for their answer: a bounded number for each connection; and those that wait for their turn, because their role
//! or the clients of the tenant ask too fast, or their connection asks for lists of topics too fast.
//!
//! A role's request waits before it is looked at. For a tenant it is counted once it is known that the client may ask
//! ([`counted`]), so that who may not uses up nothing of what is others'; what is too fast is made up for by the connection's next
//! request.
//!
//! While a connection has too many, or one that waits for its turn, it is not read, so that what a client asks in one breath waits in
//! its own socket and not in our memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use pharos_auth::Denied;
use pharos_broker::shard::Refused;
use pharos_runtime::{clock, spawn_local};
use pharos_wire::Command;

use crate::connection::Connection;
use crate::decision::{Decision, decision};
use crate::list_turns;

/// Interval at which a waiting request checks if its connection has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waiting requests of one connection.
#[derive(Default)]
pub(crate) struct WaitingRequests {
    count: Cell<u32>,
    /// The next one waits for its turn.
    is_paced: Cell<bool>,
    /// The next one waits until then (monotonic ns), for the clients of a tenant asked too fast.
    tenant_until: Cell<u64>,
}

/// Result of a request that may be denied to the client.
pub(crate) trait Answered {
    /// True if the client is not authorized.
    fn is_denied(&self) -> bool;
}

impl<T> Answered for Result<T, Denied> {
    fn is_denied(&self) -> bool {
        self.is_err()
    }
}

impl<T, E: std::error::Error> Answered for Result<T, Refused<E>> {
    fn is_denied(&self) -> bool {
        matches!(self, Err(Refused::Denied(_)))
    }
}

impl WaitingRequests {
    /// True if the maximum number of requests wait; `most` of 0 is no limit.
    pub(crate) fn are_enough(&self, most: u32) -> bool {
        most > 0 && self.count.get() >= most
    }

    /// True if reading from the connection pauses because its role exceeds its request rate.
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
        if connection.read_ahead.may_resume() {
            connection.read_ahead.resume();
        }
    });
}

/// Counts a request for the tenant that it concerns, unless the client may not make it. Hands on what came of it.
pub(crate) fn counted<A: Answered>(connection: &Connection, tenant: &str, answered: A) -> A {
    if !answered.is_denied() {
        let wait = connection.server.limiter.request_of_tenant(tenant);
        if !wait.is_zero() {
            let until = &connection.requests_waiting.tenant_until;
            until.set(until.get().max(clock::now().0.saturating_add(nanos(wait))));
        }
    }
    answered
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time that a command has to wait for its turn. Commands of a producer or consumer that was admitted,
/// and those that concern the connection alone, do not wait.
pub(crate) fn turn(connection: &Connection, command: &Command) -> Duration {
    let is_request = match decision(command.command_type()) {
        Decision::Asks(_) | Decision::AsksOfConsumer(_) | Decision::OwnTransaction | Decision::NotServed => {
            true
        }
        Decision::Proves | Decision::Attached | Decision::Connection | Decision::OfBrokers => false,
    };
    if !is_request {
        return Duration::ZERO;
    }
    let limiter = &connection.server.limiter;
    let of_role = limiter.request(&connection.peer.borrow().principal, &connection.address);
    let until = connection.requests_waiting.tenant_until.get();
    // Most have nothing to make up for, and the clock is not read for them.
    let of_tenant = (until > 0).then(|| until.saturating_sub(clock::now().0));
    let of_lists = list_turns::pace(connection, command);
    of_role
        .max(of_lists)
        .max(Duration::from_nanos(of_tenant.unwrap_or(0)))
}

/// Waits so long. Returns false when the connection closed meanwhile.
pub(crate) async fn wait_for_turn(connection: &Connection, turn: Duration) -> bool {
    connection.requests_waiting.is_paced.set(true);
    let until = clock::now().0.saturating_add(nanos(turn));
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
