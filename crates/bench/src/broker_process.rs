//! A broker of the run's own: `pharos serve` on free ports with a data directory that is thrown away.
//!
//! Always true: when the value is dropped the broker has been told to stop, waited for, and its directory is gone. Should
//! this process itself be killed, the kernel ends the broker (see [`run_guarded`]).

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::clock;

/// Time limit for output from a broker that has not opened both listeners yet, in nanoseconds; it reports progress
/// during recovery.
const START_TIMEOUT_NS: u64 = 60_000_000_000;
/// Time limit for a stop before the broker is killed, in nanoseconds.
const STOP_TIMEOUT_NS: u64 = 30_000_000_000;
/// Lines of its output kept for a report of its failure.
const TAIL_LINES: usize = 20;

/// Name of the settings file of a broker of the run's own.
pub(crate) const SETTINGS_FILE: &str = "bench-settings.toml";

/// Data and settings directories of a broker. Dropping the last handle removes them.
#[derive(Debug)]
pub(crate) struct BrokerHome {
    data: TempDir,
    /// Directories on other devices.
    others: Vec<TempDir>,
    settings: Option<PathBuf>,
}

impl BrokerHome {
    /// Fresh directories: one in the first of `parents` (or the system's temporary directory) for the broker, one in each of
    /// the others.
    pub(crate) fn new(parents: &[PathBuf]) -> anyhow::Result<Self> {
        let fresh = |parent: &PathBuf| {
            TempDir::with_prefix_in("pharos-bench-", parent)
                .with_context(|| format!("cannot make a directory in {}", parent.display()))
        };
        let data = match parents.first() {
            Some(parent) => fresh(parent)?,
            None => TempDir::with_prefix("pharos-bench-").context("no temporary directory")?,
        };
        Ok(Self {
            data,
            others: parents.iter().skip(1).map(fresh).collect::<Result<_, _>>()?,
            settings: None,
        })
    }

    /// Settings the broker starts with, as the text of its file.
    pub(crate) fn with_settings(mut self, text: &str) -> anyhow::Result<Self> {
        let path = self.data.path().join(SETTINGS_FILE);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.settings = Some(path);
        Ok(self)
    }

    /// All directories; the first holds the broker's data directory.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        let all = std::iter::once(&self.data).chain(&self.others);
        all.map(|dir| dir.path().to_owned()).collect()
    }
}

/// A running broker.
#[derive(Debug)]
pub(crate) struct BrokerProcess {
    child: Child,
    home: Arc<BrokerHome>,
    /// `pulsar://127.0.0.1:PORT`.
    pub(crate) pulsar_url: String,
    /// `http://127.0.0.1:PORT`.
    pub(crate) http_url: String,
}

/// Reason why a broker does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The broker exited by itself, with this output.
    #[error("the broker did not start; give --url to use one that runs. It said:\n{0}")]
    Refused(String),
    /// Ctrl-C was pressed meanwhile.
    #[error("stopped")]
    Stopped,
    /// The start could not be attempted.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl BrokerProcess {
    /// Starts the broker that lives in this very binary and waits until it says where it listens.
    pub(crate) fn start(stop: &AtomicBool) -> Result<Self, StartError> {
        Self::start_in(Arc::new(BrokerHome::new(&[])?), stop)
    }

    /// Starts a broker on existing directories, which may hold the data of an earlier one.
    pub(crate) fn start_in(home: Arc<BrokerHome>, stop: &AtomicBool) -> Result<Self, StartError> {
        let own = std::env::current_exe().context("own binary")?;
        let mut command = Command::new(own);
        command
            .args(["bench", "__serve", "--data-dir"])
            .arg(home.data.path().join("data"))
            .args(["--pulsar-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
        if let Some(path) = &home.settings {
            command.arg("--config").arg(path);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a broker")?;
        let mut broker = Self {
            child,
            home,
            pulsar_url: String::new(),
            http_url: String::new(),
        };
        broker.await_addresses(stop)?;
        Ok(broker)
    }

    /// The broker's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its directories.
    pub(crate) fn home(&self) -> Arc<BrokerHome> {
        Arc::clone(&self.home)
    }

    /// Ends it in good order; its data stays for the next one.
    pub(crate) fn stop(self) -> Arc<BrokerHome> {
        self.home()
    }

    /// Ends it with SIGKILL, as a crash would; its data stays for the next one.
    pub(crate) fn kill(mut self) -> anyhow::Result<Arc<BrokerHome>> {
        self.child.kill().context("cannot kill the broker")?;
        self.child.wait().context("cannot wait for the broker")?;
        Ok(self.home())
    }

    fn await_addresses(&mut self, stop: &AtomicBool) -> Result<(), StartError> {
        let (sender, lines) = sync_channel(64);
        let tail = Arc::new(Mutex::new(Vec::new()));
        if let Some(stdout) = self.child.stdout.take() {
            follow(stdout, sender.clone(), Arc::clone(&tail))?;
        }
        if let Some(stderr) = self.child.stderr.take() {
            follow(stderr, sender, Arc::clone(&tail))?;
        }
        let mut deadline = clock::monotonic_ns() + START_TIMEOUT_NS;
        while self.pulsar_url.is_empty() || self.http_url.is_empty() {
            match self.next_line(&lines) {
                Ok(line) => {
                    deadline = clock::monotonic_ns() + START_TIMEOUT_NS;
                    self.take_addresses(&line);
                }
                Err(RecvTimeoutError::Timeout) if clock::monotonic_ns() < deadline => {
                    if stop.load(Ordering::Relaxed) {
                        return Err(StartError::Stopped);
                    }
                }
                Err(_) => {
                    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
                    return Err(StartError::Refused(tail));
                }
            }
        }
        Ok(())
    }

    fn next_line(&self, lines: &Receiver<String>) -> Result<String, RecvTimeoutError> {
        lines.recv_timeout(Duration::from_millis(100))
    }

    fn take_addresses(&mut self, line: &str) {
        if self.pulsar_url.is_empty()
            && let Some(url) = find_url(line, "pulsar://")
        {
            self.pulsar_url = url;
        }
        if self.http_url.is_empty()
            && let Some(url) = find_url(line, "http://")
        {
            self.http_url = url;
        }
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Ok(None)) = (pid, self.child.try_wait()) {
            // It may have gone in between; that is what we want.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = clock::monotonic_ns() + STOP_TIMEOUT_NS;
        while let Ok(None) = self.child.try_wait() {
            if clock::monotonic_ns() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads a broker's output to its end, so that it never blocks on a full pipe.
fn follow(
    output: impl Read + Send + 'static,
    sender: SyncSender<String>,
    tail: Arc<Mutex<Vec<String>>>,
) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("broker-output".to_owned())
        .spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                if tail.len() == TAIL_LINES {
                    tail.remove(0);
                }
                tail.push(line.clone());
                drop(tail);
                // The receiver is gone once the addresses are known.
                let _ = sender.try_send(line);
            }
        })?;
    Ok(())
}

/// The first `scheme` address of this machine in a line of log.
fn find_url(line: &str, scheme: &str) -> Option<String> {
    let url = line.get(line.find(scheme)?..)?;
    let end = url[scheme.len()..]
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '[' | ']')))
        .map_or(url.len(), |end| end + scheme.len());
    let url = &url[..end];
    // A port of 0 is the request, not the answer.
    let port: u16 = url.rsplit_once(':')?.1.parse().ok()?;
    (port != 0).then(|| url.to_owned())
}

/// Becomes `pharos serve`, having asked the kernel to end it when its parent dies.
///
/// Returns only on failure.
pub(crate) fn run_guarded(arguments: &[String]) -> anyhow::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return error.into();
    }
    match std::env::current_exe() {
        Ok(own) => Command::new(own).arg("serve").args(arguments).exec().into(),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_anywhere_in_a_line() {
        let line = "INFO ready pulsar=pulsar://127.0.0.1:41234 http=\"http://127.0.0.1:41235\" in 12 ms";
        assert_eq!(
            find_url(line, "pulsar://").as_deref(),
            Some("pulsar://127.0.0.1:41234")
        );
        assert_eq!(
            find_url(line, "http://").as_deref(),
            Some("http://127.0.0.1:41235")
        );
        assert_eq!(find_url("listening on pulsar://127.0.0.1:0", "pulsar://"), None);
        assert_eq!(find_url("nothing here", "http://"), None);
        assert_eq!(
            find_url("\u{1b}[1mhttp://127.0.0.1:80\u{1b}[0m", "http://").as_deref(),
            Some("http://127.0.0.1:80")
        );
    }
}
