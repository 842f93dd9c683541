//! Reconnect of consumers and producers lost with their broker, at the broker that serves the topic by then.
//!
//! ```text
//! lost ──► a round: wait, look the topic up, make ──► made
//!   ▲                                   │ fails for now
//!   └───────────────────────────────────┘
//! ```
//! A permanent error ends it. Owned by the loop of a command: nothing here locks or spawns.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use pharos_client::{AssignedBroker, Brokers, ClientError, Connection};
use tokio::time::Instant;

/// The first wait before another try.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time without failures after which the backoff starts again from the first wait.
const WELL_AFTER: Duration = Duration::from_secs(20);

/// Makes a consumer or producer on a connection to the broker that serves its topic.
pub(crate) type Make<T> = Box<dyn Fn(Connection) -> LocalBoxFuture<'static, Result<T, ClientError>>>;

/// A consumer or producer that is to be made anew.
pub(crate) struct Lost<T> {
    /// Index at its owner.
    pub(crate) index: usize,
    pub(crate) topic: String,
    /// The broker that it is to go to, by the word of the last one; tried once, then the topic is looked up.
    pub(crate) assigned: Option<AssignedBroker>,
    pub(crate) make: Make<T>,
}

type Outcomes<T> = Vec<(Lost<T>, Result<T, ClientError>)>;

/// All that is lost of one command.
pub(crate) struct Comeback<T> {
    /// `None` while a round has them.
    brokers: Option<Brokers>,
    /// The round under way.
    round: Option<LocalBoxFuture<'static, (Brokers, Outcomes<T>)>>,
    /// For the next round.
    lost: Vec<Lost<T>>,
    /// Made, and not yet given back.
    made: VecDeque<(usize, T)>,
    backoff: Backoff,
    /// Time of the last success, and the error since; `None` while nothing is lost.
    trouble: Option<(Instant, ClientError)>,
    /// The person who watches was told of it.
    is_told: bool,
    /// All is well only when the owner says so, not when something is made anew.
    waits_for_proof: bool,
    /// How long it may go on without being well.
    give_up_after: Option<Duration>,
}

impl<T: 'static> Comeback<T> {
    pub(crate) fn new(brokers: Brokers) -> Self {
        Self {
            brokers: Some(brokers),
            round: None,
            lost: Vec::new(),
            made: VecDeque::new(),
            backoff: Backoff::default(),
            trouble: None,
            is_told: false,
            waits_for_proof: false,
            give_up_after: None,
        }
    }

    /// One whose owner says when all is well ([`proved`](Self::proved)): that a producer is made anew does not mean that its messages are
    /// stored. Gives up when that does not happen for so long; `None`: never.
    pub(crate) fn until_proved(brokers: Brokers, give_up_after: Option<Duration>) -> Self {
        Self {
            waits_for_proof: true,
            give_up_after,
            ..Self::new(brokers)
        }
    }

    /// Notes that what was created anew works.
    pub(crate) fn proved(&mut self) {
        if self.lost.is_empty() && self.made.is_empty() && self.round.is_none() {
            self.well();
        }
    }

    /// Returns the error that caused the present loss, as far as is known; `None` while nothing is lost.
    pub(crate) fn trouble(&self) -> Option<&ClientError> {
        self.trouble.as_ref().map(|(_, error)| error)
    }

    /// Takes what was lost for this reason.
    ///
    /// # Errors
    /// The reason, when another try cannot mend it.
    pub(crate) fn lose(&mut self, lost: Lost<T>, reason: ClientError) -> Result<(), ClientError> {
        if !reason.is_transient() {
            return Err(reason);
        }
        if !self.is_told && lost.assigned.is_none() {
            self.is_told = true;
            if self.waits_for_proof && matches!(reason, ClientError::Refused { .. }) {
                talk(&format_args!(
                    "publish to {} failed: {reason}; retrying",
                    lost.topic
                ));
            } else {
                talk(&format_args!("lost {}: {reason}; trying again", lost.topic));
            }
        }
        let since = self.trouble.take().map_or_else(Instant::now, |(since, _)| since);
        if self.give_up_after.is_some_and(|limit| since.elapsed() >= limit) {
            talk(&format_args!(
                "giving up after {:.1} s without a receipt (--give-up-after)",
                since.elapsed().as_secs_f64()
            ));
            return Err(reason);
        }
        self.trouble = Some((since, reason));
        self.lost.push(lost);
        Ok(())
    }

    /// The next that was made anew; never while nothing is lost.
    ///
    /// # Errors
    /// What another try cannot mend.
    ///
    /// Cancel safety: the round under way goes on with the next call.
    pub(crate) async fn mended(&mut self) -> Result<(usize, T), ClientError> {
        loop {
            if let Some(made) = self.made.pop_front() {
                if self.made.is_empty() && self.lost.is_empty() && !self.waits_for_proof {
                    self.well();
                }
                return Ok(made);
            }
            let round = match (&mut self.round, &self.lost[..]) {
                (None, []) => return pending().await,
                (Some(round), _) => round,
                (none, _) => match self.brokers.take() {
                    Some(brokers) => {
                        let lost = std::mem::take(&mut self.lost);
                        none.insert(round(brokers, lost, self.backoff.wait()).boxed_local())
                    }
                    // Either they are here or a round has them.
                    None => return pending().await,
                },
            };
            let (brokers, outcomes) = round.await;
            self.round = None;
            self.brokers = Some(brokers);
            for (lost, outcome) in outcomes {
                match outcome {
                    Ok(made) => self.made.push_back((lost.index, made)),
                    Err(error) => self.lose(lost, error)?,
                }
            }
        }
    }

    fn well(&mut self) {
        // To be sent to another broker is no trouble.
        if let Some((since, _)) = self.trouble.take()
            && std::mem::take(&mut self.is_told)
        {
            talk(&format_args!(
                "recovered after {:.1} s",
                since.elapsed().as_secs_f64()
            ));
        }
    }
}

/// Tries each lost consumer or producer once.
async fn round<T>(mut brokers: Brokers, lost: Vec<Lost<T>>, wait: Duration) -> (Brokers, Outcomes<T>) {
    tokio::time::sleep(wait).await;
    let mut outcomes = Vec::new();
    for mut lost in lost {
        let connection = match lost.assigned.take() {
            Some(assigned) => brokers.assigned(&assigned).await,
            None => brokers.serving(&lost.topic).await,
        };
        let outcome = match connection {
            Ok(connection) => {
                let made = (lost.make)(connection.clone()).await;
                if let Err(ClientError::TimedOut { .. }) = made {
                    brokers.discard(&connection);
                }
                made
            }
            Err(error) => Err(error),
        };
        outcomes.push((lost, outcome));
    }
    (brokers, outcomes)
}

/// Wait before the next try: doubles each time, up to [`WAIT_MAX`].
#[derive(Default)]
struct Backoff {
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let wait = match self.last {
            Some((end, wait)) if now < end + WELL_AFTER => (wait * 2).min(WAIT_MAX),
            _ => WAIT_MIN,
        };
        self.last = Some((now + wait, wait));
        jittered(wait, RandomState::new().hash_one(0))
    }
}

/// Up to a fifth less, so that those who lost the same broker do not come back in one moment.
fn jittered(wait: Duration, random: u64) -> Duration {
    let percent = u32::try_from(random % 21).unwrap_or_default();
    wait * (100 - percent) / 100
}

/// Prints a line for the user, apart from the data.
pub(crate) fn talk(line: &impl Display) {
    // There may be none who watches.
    let _ = writeln!(std::io::stderr(), "pharos: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_bound_and_begin_again_when_all_was_well() {
        let mut backoff = Backoff::default();
        let mut bounds = Vec::new();
        for _ in 0..8 {
            backoff.wait();
            let (end, wait) = backoff.last.unwrap();
            bounds.push(wait.as_millis());
            tokio::time::advance(end - Instant::now()).await;
        }
        assert_eq!(bounds, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        tokio::time::advance(WELL_AFTER).await;
        assert!(backoff.wait() <= WAIT_MIN);
    }

    #[test]
    fn a_fifth_of_a_wait_is_left_to_chance() {
        let wait = Duration::from_secs(1);
        assert_eq!(jittered(wait, 0), wait);
        assert_eq!(jittered(wait, 20), Duration::from_millis(800));
    }
}
