//! The answer to a broker that asks for new credentials. It is found beside the reader, which goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use pharos_wire::{encode, request};
use tokio::sync::mpsc;

use crate::connection::spawn;
use crate::driver::Routes;
use crate::{CredentialSource, credentials};

/// Answers challenges, one at a time.
pub(crate) struct Refresh {
    source: Option<Arc<dyn CredentialSource>>,
    queue: mpsc::WeakSender<Bytes>,
    routes: Arc<Routes>,
    /// An answer is being found: a further challenge is answered by it.
    is_under_way: Arc<AtomicBool>,
}

impl Refresh {
    pub(crate) fn new(
        source: Option<Arc<dyn CredentialSource>>,
        queue: mpsc::WeakSender<Bytes>,
        routes: Arc<Routes>,
    ) -> Self {
        Self {
            source,
            queue,
            routes,
            is_under_way: Arc::default(),
        }
    }

    /// Begins to answer. A client without credentials has no answer: the broker will close the connection.
    pub(crate) fn begin(&self) {
        let Some(source) = self.source.clone() else {
            return;
        };
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let (queue, routes) = (self.queue.clone(), self.routes.clone());
        let is_under_way = self.is_under_way.clone();
        spawn(async move {
            match credentials::current(&source).await {
                Ok(data) => {
                    if let Some(queue) = queue.upgrade() {
                        let answer = request::auth_response(source.method(), data);
                        // An error says that the connection has ended.
                        let _ = queue.send(encode::encode_command(&answer)).await;
                    }
                }
                Err(error) => routes.end(error),
            }
            is_under_way.store(false, Ordering::Release);
        });
    }
}
