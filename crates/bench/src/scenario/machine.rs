//! Facts of the machine and of the run, so that a figure is never without its circumstances.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Machine and build that produced the figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Processor as the kernel names it.
    pub cpu: String,
    /// Processors usable by this process.
    pub cores: usize,
    /// Main memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// File system and device of the data directory.
    pub storage: String,
    /// Runnable processes per core when the run began (the one-minute load average).
    pub load_average: String,
    /// Version of this program.
    pub version: &'static str,
    /// Commit that this program was built from, with `+` when its sources differed; none outside a checkout.
    pub commit: Option<&'static str>,
}

impl Machine {
    /// Looks around. `data` is where the broker keeps its data.
    pub fn look(data: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = field(&read("/proc/cpuinfo"), "model name");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cpu,
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            memory_bytes: kib * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            storage: storage(&read("/proc/self/mountinfo"), data),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("PHAROS_COMMIT"),
        }
    }

    /// Returns a description in one line.
    pub fn line(&self) -> String {
        format!(
            "{} cores ({}), {:.0} GiB, Linux {}, data on {}, load average before {}",
            self.cores,
            self.cpu,
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.storage,
            self.load_average
        )
    }
}

/// The value behind `name:` in one of the kernel's lists.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// File system and device of the mount that holds `path`. Format: proc_pid_mountinfo(5).
fn storage(mounts: &str, path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut right = right.split(' ');
        let (Some(point), Some(kind), Some(device)) = (left.split(' ').nth(4), right.next(), right.next())
        else {
            continue;
        };
        let longer = best.as_ref().is_none_or(|(length, _)| point.len() >= *length);
        if longer && path.starts_with(point) {
            best = Some((point.len(), format!("{kind} {device}")));
        }
    }
    best.map_or_else(|| "unknown".to_owned(), |(_, storage)| storage)
}

/// True if this program was built from a commit without local changes.
pub fn is_clean() -> bool {
    option_env!("PHAROS_COMMIT").is_some_and(|commit| !commit.ends_with('+'))
}

/// This process's command line as one would type it, with the program called `pharos`.
pub fn command_line() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words = std::env::args().skip(1).map(quoted);
    std::iter::once("pharos".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_holds_the_path() {
        let mounts =
            "21 1 8:1 / / rw - ext4 /dev/vda rw\n22 21 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\ngarbage\n";
        assert_eq!(storage(mounts, Path::new("/tmp/nowhere/x")), "tmpfs tmpfs");
        assert_eq!(storage(mounts, Path::new("/nowhere")), "ext4 /dev/vda");
        assert_eq!(storage("", Path::new("/nowhere")), "unknown");
    }

    #[test]
    fn the_machine_can_be_described() {
        let machine = Machine::look(Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(!machine.line().contains('\n'));
    }
}
