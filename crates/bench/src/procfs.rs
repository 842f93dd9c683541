//! CPU time and memory of another process, from `/proc/PID`.

use std::fs;

/// A reading of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessSample {
    /// User and system time since its start, seconds. Resolution is the kernel's tick, 10 ms.
    pub cpu_seconds: f64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// Reads `/proc/PID`; `None` when the process is gone.
pub fn sample(pid: u32) -> Option<ProcessSample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(ProcessSample {
        cpu_seconds: cpu_ticks(&stat)? as f64 / ticks_per_second(),
        rss_bytes: rss_kib(&status)? * 1024,
    })
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the command in parentheses and may itself hold spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_with_parentheses_do_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 120 30 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!(rss_kib("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2048));
    }

    #[test]
    fn the_own_process_can_be_read() {
        let own = sample(std::process::id()).expect("alive");
        assert!(own.rss_bytes > 100_000);
    }
}
