//! The clocks of the load tool, in nanoseconds.
//!
//! `CLOCK_MONOTONIC` is one clock for every process of a machine, so a publisher and consumers in other processes may
//! subtract each other's readings. Source: clock_getres(2).

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the machine's monotonic clock; comparable between processes of one machine.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds since the Unix epoch; comparable between machines as far as their clocks agree.
pub fn realtime_ns() -> u64 {
    read(ClockId::Realtime)
}

/// Wall-clock time of a monotonic reading, nanoseconds since the Unix epoch.
///
/// The distance between the two clocks is taken once, so that a step of the wall clock during a run tears no latency.
pub fn wall_ns(monotonic: u64) -> u64 {
    static DISTANCE: OnceLock<u64> = OnceLock::new();
    *DISTANCE.get_or_init(|| realtime_ns().wrapping_sub(monotonic_ns())) + monotonic
}

/// CPU time this process has used so far, user and system together.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock can be negative on a running system; a wrong date before 1970 reads as zero.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_run_backwards() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert!(process_cpu_ns() > 0);
        assert!(realtime_ns() > 1_600_000_000_000_000_000);
    }
}
