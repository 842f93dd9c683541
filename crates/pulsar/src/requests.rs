//! Requests that wait for their answer: a bounded number for each connection.
//!
//! While a connection has too many it is not read, so that what a client asks in one breath waits in its own socket and not in our
//! memory.

use std::cell::Cell;
use std::rc::Rc;

use pharos_runtime::spawn_local;

use crate::connection::Connection;

/// Those of one connection.
#[derive(Default)]
pub(crate) struct WaitingRequests(Cell<u32>);

impl WaitingRequests {
    /// Whether as many wait as may; `most` of 0 is no limit.
    pub(crate) fn are_enough(&self, most: u32) -> bool {
        most > 0 && self.0.get() >= most
    }
}

/// Answers a request of `connection` in a task of its own, which counts until it ends.
pub(crate) fn answer_later<F>(connection: &Rc<Connection>, answer: impl FnOnce(Rc<Connection>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let waiting = &connection.requests_waiting.0;
    waiting.set(waiting.get() + 1);
    // Boxed: the task would hold it twice, and it is thousands of bytes.
    let (connection, answer) = (connection.clone(), Box::pin(answer(connection.clone())));
    spawn_local(async move {
        answer.await;
        let waiting = &connection.requests_waiting.0;
        waiting.set(waiting.get() - 1);
        if connection.may_resume() {
            connection.resumed.notify_one();
        }
    });
}
