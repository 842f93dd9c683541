//! The consumer processes of a run: one binary, started several times, spoken to over pipes in lines of JSON.
//!
//! A process may hold only so many sockets, and one thread parses only so much; so consumers are spread over processes.
//! Always true: dropping a [`Fleet`] ends its processes and waits for them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock;

/// Connections one process is trusted with; well below the usual hard limit of 20,000 open files.
pub(crate) const CONNECTIONS_PER_PROCESS: u32 = 18_000;
/// Time limit for a process to exit before it is killed, in nanoseconds.
const LEAVE_TIMEOUT_NS: u64 = 5_000_000_000;

/// Something a process said.
#[derive(Debug)]
pub(crate) enum Said<R> {
    /// A report.
    Report(R),
    /// Its output has ended: it is gone.
    Gone,
    /// A line that is no report.
    Garbled(String),
}

struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
}

/// Running processes that report values of `R`.
pub(crate) struct Fleet<R> {
    members: Vec<Member>,
    reports: Receiver<(usize, Said<R>)>,
}

impl<R: DeserializeOwned + Send + 'static> Fleet<R> {
    /// Starts this binary once per plan with the hidden subcommand, giving each its plan as the first line.
    pub(crate) fn start<P: Serialize>(subcommand: &str, plans: &[P]) -> anyhow::Result<Self> {
        let (sender, reports) = sync_channel(1024);
        let mut fleet = Self {
            members: Vec::new(),
            reports,
        };
        for plan in plans {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["bench", subcommand])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start a consumer process")?;
            let stdout = child.stdout.take().context("no pipe from the process")?;
            let stdin = child.stdin.take();
            let number = fleet.members.len();
            fleet.members.push(Member { child, stdin });
            fleet.tell(number, plan)?;
            listen(number, stdout, sender.clone())?;
        }
        Ok(fleet)
    }

    /// Returns the number of processes started.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Sends one line to one process.
    pub(crate) fn tell<T: Serialize>(&mut self, number: usize, value: &T) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(value)?;
        line.push('\n');
        let stdin = self
            .members
            .get_mut(number)
            .and_then(|member| member.stdin.as_mut());
        let stdin = stdin.context("no such process")?;
        stdin
            .write_all(line.as_bytes())
            .context("a consumer process is gone")
    }

    /// The next thing any process says, if it comes in time.
    pub(crate) fn hear(&self, timeout: Duration) -> Option<(usize, Said<R>)> {
        self.reports.recv_timeout(timeout).ok()
    }
}

impl<R> Drop for Fleet<R> {
    fn drop(&mut self) {
        for member in &mut self.members {
            // The end of its input is the word to leave.
            member.stdin = None;
        }
        let deadline = clock::monotonic_ns() + LEAVE_TIMEOUT_NS;
        for member in &mut self.members {
            while let Ok(None) = member.child.try_wait() {
                if clock::monotonic_ns() > deadline {
                    let _ = member.child.kill();
                    let _ = member.child.wait();
                    break;
                }
                // Reports that will not be read must not keep a process from leaving.
                while self.reports.try_recv().is_ok() {}
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn listen<R: DeserializeOwned + Send + 'static>(
    number: usize,
    stdout: impl std::io::Read + Send + 'static,
    sender: SyncSender<(usize, Said<R>)>,
) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name(format!("process-{number}"))
        .spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let said = match serde_json::from_str(&line) {
                    Ok(report) => Said::Report(report),
                    Err(_) => Said::Garbled(line),
                };
                if sender.send((number, said)).is_err() {
                    return;
                }
            }
            let _ = sender.send((number, Said::Gone));
        })?;
    Ok(())
}

/// Splits `total` into `parts` shares that differ by at most one: `(first, count)` of each.
pub(crate) fn shares(total: u32, parts: u32) -> Vec<(u32, u32)> {
    let at = |part: u32| (u64::from(total) * u64::from(part) / u64::from(parts.max(1))) as u32;
    (0..parts)
        .map(|part| (at(part), at(part + 1) - at(part)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (total, parts) in [(10, 3), (100_000, 7), (3, 3), (0, 2)] {
            let shares = shares(total, parts);
            assert_eq!(shares.len(), parts as usize);
            let mut next = 0;
            for (first, count) in shares {
                assert_eq!(first, next);
                next += count;
            }
            assert_eq!(next, total);
        }
    }
}
