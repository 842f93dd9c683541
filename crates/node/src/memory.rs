//! Return of free allocator memory to the system once the process is quiet.
//!
//! Quiet is judged by the processor time of the process: it needs no counters and covers clients, admin requests and
//! storage alike. While there is work the memory stays, since it would be requested again at once.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Interval between checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// Less than this share of one processor, in percent, is quiet.
const QUIET_PERCENT: u128 = 5;
/// Number of consecutive quiet checks required: by then the write cache has released its memory too.
const QUIET_LOOKS: u32 = 5;

/// Gives memory back once after each busy time, about half a minute into the quiet. Never ends.
///
/// Cancel safety: a call that is under way ends by itself.
pub(crate) async fn give_back_when_quiet() {
    let mut quiet = Quiet::default();
    let mut before = cpu_time();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = cpu_time();
        if quiet.look(now.saturating_sub(before)) {
            // Threads of the runtime have requests to answer; this one may wait.
            let _ = tokio::task::spawn_blocking(pharos_heap::give_back).await;
        }
        before = now;
    }
}

/// Processor time that the process took so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// Counts quiet looks after a busy one.
#[derive(Debug, Default)]
struct Quiet {
    looks: u32,
}

impl Quiet {
    /// `took`: processor time since the last look. Whether it has been quiet for long enough now, for the first time.
    fn look(&mut self, took: Duration) -> bool {
        if took.as_nanos() * 100 > INTERVAL.as_nanos() * QUIET_PERCENT {
            self.looks = 0;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        self.looks == QUIET_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_after_each_busy_time() {
        let busy = Duration::from_secs(1);
        let idle = Duration::from_millis(20);
        let mut quiet = Quiet::default();
        let mut looks = |took, count: usize| -> Vec<bool> { (0..count).map(|_| quiet.look(took)).collect() };
        assert_eq!(looks(idle, 6), [false, false, false, false, true, false]);
        assert_eq!(looks(busy, 3), [false; 3]);
        assert_eq!(looks(idle, 4), [false; 4]);
        assert_eq!(looks(busy, 1), [false]);
        assert_eq!(looks(idle, 7), [false, false, false, false, true, false, false]);
    }
}
