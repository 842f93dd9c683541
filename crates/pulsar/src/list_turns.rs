//! Lists of topics of one connection: how fast it may ask for them, and that they are made one after the other.
//!
//! A list is made on a thread that all connections share, and costs it as much as the namespace is large and the pattern is costly. So a
//! connection has one in that line at most, and the next waits until its socket has taken the last.

use std::cell::Cell;
use std::time::Duration;

use pharos_runtime::clock;
use pharos_transport::BURST_SECONDS;
use pharos_wire::Command;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::Connection;

/// Interval at which a list that waits for the socket checks if it took enough.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const SECOND: u64 = 1_000_000_000;

/// The turns of one connection.
pub(crate) struct ListTurns {
    one: Semaphore,
    /// When what it asked for would be used up at its rate (monotonic ns).
    paid_until: Cell<u64>,
}

impl Default for ListTurns {
    fn default() -> Self {
        Self {
            one: Semaphore::new(1),
            paid_until: Cell::new(0),
        }
    }
}

impl ListTurns {
    /// Returns the time that a list requested now has to wait, at `rate_max` a second; 0 is no limit.
    fn pace(&self, rate_max: u32, now: u64) -> Duration {
        if rate_max == 0 {
            return Duration::ZERO;
        }
        let paid_until = self.paid_until.get().max(now);
        self.paid_until.set(paid_until + SECOND / u64::from(rate_max));
        Duration::from_nanos((paid_until - now).saturating_sub(BURST_SECONDS * SECOND))
    }
}

/// How long `command` has to wait because its connection asks for lists too fast; what is no list waits for nothing.
pub(crate) fn pace(connection: &Connection, command: &Command) -> Duration {
    if !matches!(
        command,
        Command::GetTopicsOfNamespace(_) | Command::WatchTopicList(_)
    ) {
        return Duration::ZERO;
    }
    let rate_max = connection.server.limiter.limits.topic_list_rate_per_connection;
    let wait = connection.list_turns.pace(rate_max, clock::now().0);
    if !wait.is_zero() {
        connection.server.limiter.lists_delayed();
    }
    wait
}

/// Waits for the connection's turn to have a list made. `None`: it closed meanwhile.
pub(crate) async fn turn(connection: &Connection) -> Option<SemaphorePermit<'_>> {
    let turn = connection.list_turns.one.acquire().await.ok()?;
    while connection.has_many_answers() && !connection.is_closed() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    (!connection.is_closed()).then_some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_connection_may_ask_for_a_burst_and_then_at_its_rate() {
        let turns = ListTurns::default();
        let now = 1000 * SECOND;
        let burst = (0..1000).take_while(|_| turns.pace(10, now).is_zero()).count();
        assert_eq!(burst as u64, 10 * BURST_SECONDS + 1);
        assert_eq!(turns.pace(10, now), Duration::from_millis(200));
        assert_eq!(turns.pace(10, now + SECOND), Duration::ZERO);
        assert!(turns.pace(0, now).is_zero());
    }
}
