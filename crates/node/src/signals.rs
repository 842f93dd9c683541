//! Signals that ask the process to stop.
//!
//! SIGHUP is one of them: it comes when the terminal of a foreground process hangs up, and settings are read at the start
//! only, so there is nothing that it could make the broker read again. Who started the broker under `nohup` had it
//! ignored, and so it stays.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGTERM, SIGINT and SIGHUP. Made before anything that needs an orderly stop, so that none is missed.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` when the process was started with it ignored.
    hang_up: Option<Signal>,
}

impl StopSignals {
    /// Takes over the signals.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn install() -> io::Result<Self> {
        let hang_up = (!is_hang_up_ignored()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: hang_up.transpose()?,
        })
    }

    /// Resolves with the name of the next one.
    ///
    /// Cancel safety: safe; a signal that arrives meanwhile is seen by the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hang_up => "SIGHUP",
        }
    }

    /// Resolves with the next one that was sent on purpose. A terminal that goes away sends SIGHUP more than once: its
    /// shell does, and the kernel.
    ///
    /// Cancel safety: as `next`.
    pub(crate) async fn next_on_purpose(&mut self) -> &'static str {
        loop {
            let signal = self.next().await;
            if signal != "SIGHUP" {
                return signal;
            }
        }
    }
}

/// True if SIGHUP is ignored now, as after `nohup`. Without /proc that is unknown; then false.
fn is_hang_up_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hang_up(&status))
}

/// True if a process with this status ignores signal 1, SIGHUP.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::ignores_hang_up;

    #[test]
    fn the_status_of_a_process_says_what_it_ignores() {
        let status =
            |mask: &str| format!("Name:\tpharos\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(ignores_hang_up(&status("0000000000001001")));
        assert!(!ignores_hang_up(&status("0000000000001000")));
        assert!(!ignores_hang_up("Name:\tpharos\n"));
    }
}
