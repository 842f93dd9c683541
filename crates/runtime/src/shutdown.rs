//! The word that it is time to stop, as a token that anyone may hold and wait on.

use tokio::sync::watch;

/// The side that says stop.
#[derive(Debug)]
pub struct Shutdown {
    sender: watch::Sender<bool>,
}

/// The side that waits for it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ShutdownToken {
    receiver: watch::Receiver<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            sender: watch::channel(false).0,
        }
    }
}

impl Shutdown {
    /// A token to hand out.
    #[must_use]
    pub fn token(&self) -> ShutdownToken {
        ShutdownToken {
            receiver: self.sender.subscribe(),
        }
    }

    /// Says stop. Idempotent.
    pub fn trigger(&self) {
        self.sender.send_replace(true);
    }
}

impl ShutdownToken {
    /// True if shutdown was triggered.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        *self.receiver.borrow()
    }

    /// Resolves once stop was said, or when the [`Shutdown`] is gone.
    ///
    /// Cancel safety: safe; it only waits.
    pub async fn triggered(&mut self) {
        // An error means that the sender is gone, which is a stop as well.
        let _ = self.receiver.wait_for(|stop| *stop).await;
    }
}
