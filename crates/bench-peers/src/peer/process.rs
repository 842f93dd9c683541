//! A process that ends with this one, whatever happens.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::monotonic_ns;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// First argument with which this program starts itself as a process that ends together with its parent.
pub(crate) const GUARDED: &str = "__guarded";

/// Time limit for a process to stop before it is killed, in nanoseconds.
const STOP_TIMEOUT_NS: u64 = 30_000_000_000;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of its output that are told when it fails.
const TAIL_LINES: usize = 12;

/// A running process. Dropping it ends it: SIGTERM, and SIGKILL when that does not help.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command in `dir`, its output to a file there.
    pub(crate) fn start(command: &[String], dir: &Path, log: &str) -> anyhow::Result<Self> {
        let log = dir.join(log);
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(std::env::current_exe()?)
            .arg(GUARDED)
            .args(command)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start a process")?;
        Ok(Self { child, log })
    }

    /// Its id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The last of what it said.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// Waits until it has done its work, for so many seconds.
    ///
    /// # Errors
    /// It failed, takes too long, or the run was stopped.
    pub(crate) fn wait(mut self, limit_s: f64, stop: &AtomicBool) -> anyhow::Result<()> {
        let deadline = monotonic_ns() + (limit_s * 1e9) as u64;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{status}: {}", self.tail());
                return Ok(());
            }
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            if monotonic_ns() > deadline {
                bail!("ended after the limit of {limit_s} s: {}", self.tail());
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Ok(None)) = (pid, self.child.try_wait()) {
            // It may have gone in between; that is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = monotonic_ns() + STOP_TIMEOUT_NS;
        while let Ok(None) = self.child.try_wait() {
            if monotonic_ns() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Becomes the command, having asked the kernel to end it when its parent dies. Returns only on failure.
pub(crate) fn run_guarded(command: &[String]) -> anyhow::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    let Some((program, arguments)) = command.split_first() else {
        return anyhow::anyhow!("no command");
    };
    let error = Command::new(program).args(arguments).exec();
    anyhow::Error::new(error).context(format!("cannot start {program}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let said = format!("{:#}", run_guarded(&["/no/such/program".to_owned()]));
        assert!(said.contains("cannot start /no/such/program"), "{said}");
    }
}
