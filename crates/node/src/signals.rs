//! Signals that ask the process to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGTERM and SIGINT. Made before anything that needs an orderly stop, so that none is missed.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Takes over both signals.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves with the name of the next one.
    ///
    /// Cancel safety: safe; a signal that arrives meanwhile is seen by the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
