//! Requests that wait for their answer: a bounded number for each connection.
//!
//! While a connection has too many it is not read, so that what a client asks in one breath waits in its own socket and not in our
//! memory.

use std::rc::Rc;

use pharos_runtime::spawn_local;

use crate::connection::Connection;

impl Connection {
    /// Answers a request in a task of its own, which counts until it ends.
    pub(crate) fn answer_later<F>(self: &Rc<Self>, answer: impl FnOnce(Rc<Self>) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.requests_waiting.set(self.requests_waiting.get() + 1);
        let (connection, answer) = (self.clone(), answer(self.clone()));
        spawn_local(async move {
            answer.await;
            connection
                .requests_waiting
                .set(connection.requests_waiting.get() - 1);
            if connection.may_resume() {
                connection.resumed.notify_one();
            }
        });
    }

    /// Whether as many requests wait as may.
    pub(crate) fn has_enough_requests(&self) -> bool {
        let most = self.server.limiter.limits.requests_per_connection;
        most > 0 && self.requests_waiting.get() >= most
    }
}
