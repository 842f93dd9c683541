//! An issuer's keys: kept, asked for again in time, and at once when a token names one that is not among them.
//!
//! ```text
//!   shards: keys_with(name) ── at hand ──────────────► used
//!              │ not there, and the last time of asking is long enough ago
//!              └► asks ──► the issuer's task ── fetch ──► news for all who wait
//!                              ▲ refresh_after, or a pause after a failure
//! ```
//! However many tokens ask, an issuer is asked once at a time: one that does not answer after a pause that doubles, one that does
//! not have a key after `miss_refresh`. Kept keys are used while the issuer is down, until `expire_after`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use pharos_runtime::{Nanos, clock};

use super::OpenIdOptions;
use super::fetch::{FetchError, Fetcher, fetch_timeout};
use super::keys::KeySet;
use crate::token::Refused;

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum number of doublings.
const DOUBLINGS_MAX: u32 = 6;
/// The longest that a token waits for its issuer.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Timing of requests to issuers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    refresh_after: Duration,
    expire_after: Duration,
    miss_refresh: Duration,
    /// Maximum time that a token waits for an answer.
    wait: Duration,
}

impl Timing {
    pub(super) fn of(options: &OpenIdOptions) -> Self {
        Self {
            refresh_after: options.refresh_after,
            expire_after: options.expire_after,
            miss_refresh: options.miss_refresh,
            wait: fetch_timeout(options).min(WAIT_MAX),
        }
    }
}

/// Known keys of an issuer.
#[derive(Clone, Default)]
struct KnownKeys {
    keys: Option<Arc<KeySet>>,
    /// Time at which these keys were fetched.
    fetched_at: Nanos,
    /// Time of the last request; `None`: none yet, or its keys were evicted.
    asked_at: Option<Nanos>,
    /// Failures since it last answered.
    failures: u32,
    /// Reason of the last failure.
    failure: Option<Arc<str>>,
}

impl KnownKeys {
    /// The keys, unless they are too old.
    fn fresh(&self, timing: &Timing, now: Nanos) -> Option<&Arc<KeySet>> {
        let age = Duration::from_nanos(now.since(self.fetched_at));
        self.keys.as_ref().filter(|_| age < timing.expire_after)
    }

    /// Returns the time for which no further request is sent.
    fn pause(&self, timing: &Timing) -> Duration {
        match self.failures {
            0 => timing.miss_refresh.min(timing.expire_after),
            count => (PAUSE_MIN * (1 << (count - 1).min(DOUBLINGS_MAX))).min(timing.miss_refresh),
        }
    }

    fn may_be_asked(&self, timing: &Timing, now: Nanos) -> bool {
        let pause = self.pause(timing);
        self.asked_at
            .is_none_or(|at| Duration::from_nanos(now.since(at)) >= pause)
    }

    /// Returns the time until the next request that no token triggers; `None`: there is none.
    fn next_refresh(&self, timing: &Timing, now: Nanos) -> Option<Duration> {
        self.keys.as_ref()?;
        let since = |at: Nanos| Duration::from_nanos(now.since(at));
        let due = timing.refresh_after.saturating_sub(since(self.fetched_at));
        let pause = match (self.failures, self.asked_at) {
            (1.., Some(at)) => self.pause(timing).saturating_sub(since(at)),
            _ => Duration::ZERO,
        };
        Some(due.max(pause))
    }
}

/// Issuer of tokens.
pub(super) struct Issuer {
    name: String,
    timing: Timing,
    known: watch::Sender<KnownKeys>,
    /// A token wants keys that are not there.
    wanted: Notify,
}

impl Issuer {
    pub(super) fn new(name: &str, timing: Timing) -> Self {
        Self {
            name: name.to_owned(),
            timing,
            known: watch::Sender::default(),
            wanted: Notify::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its keys, when they have one of this name. Waits in bounded time for those that it may have made meanwhile.
    pub(super) async fn keys_with(&self, key_id: &str) -> Result<Arc<KeySet>, Refused> {
        let mut news = self.known.subscribe();
        let mut has_waited = false;
        loop {
            let known = news.borrow_and_update().clone();
            let now = clock::now();
            let fresh = known.fresh(&self.timing, now);
            if let Some(keys) = fresh.filter(|keys| keys.get(key_id).is_some()) {
                return Ok(keys.clone());
            }
            if has_waited || !known.may_be_asked(&self.timing, now) {
                return Err(match (fresh, &known.failure) {
                    (Some(_), _) => Refused::UnknownKey,
                    (None, Some(failure)) => Refused::NoKeys(failure.to_string()),
                    (None, None) => Refused::NoKeys("it has not answered yet".to_owned()),
                });
            }
            self.wanted.notify_one();
            // Whether there is news or not: what is known then decides.
            let _ = tokio::time::timeout(self.timing.wait, news.changed()).await;
            has_waited = true;
        }
    }

    /// Lets go of its keys; a token that needs them has them asked for again.
    pub(super) fn forget(&self) {
        self.known.send_replace(KnownKeys::default());
    }

    /// Asks the issuer when it is time, for ever.
    pub(super) async fn keep(self: Arc<Self>, fetcher: Arc<Fetcher>, at_once: bool) {
        let mut is_due = at_once;
        loop {
            if !is_due {
                self.until_due().await;
            }
            is_due = false;
            let fetched = fetcher.keys(&self.name).await;
            self.publish(fetched);
        }
    }

    async fn until_due(&self) {
        loop {
            let known = self.known.borrow().clone();
            let refresh = known.next_refresh(&self.timing, clock::now());
            let refreshing = async {
                match refresh {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = refreshing => {
                    // Keys that were let go of meanwhile are not wanted.
                    if self.known.borrow().keys.is_some() {
                        return;
                    }
                }
                () = self.wanted.notified() => {
                    // A token that came while the issuer was being asked has its answer.
                    if self.known.borrow().may_be_asked(&self.timing, clock::now()) {
                        return;
                    }
                }
            }
        }
    }

    fn publish(&self, fetched: Result<KeySet, FetchError>) {
        let now = clock::now();
        match &fetched {
            Ok(keys) => tracing::debug!(issuer = %self.name, keys = keys.len(), "an issuer's keys are known"),
            Err(error) => {
                tracing::warn!(issuer = %self.name, %error, "an issuer could not be asked for its keys");
            }
        }
        self.known.send_modify(|known| {
            known.asked_at = Some(now);
            match fetched {
                Ok(keys) => {
                    known.keys = Some(Arc::new(keys));
                    known.fetched_at = now;
                    known.failures = 0;
                    known.failure = None;
                }
                Err(error) => {
                    known.failures = known.failures.saturating_add(1);
                    known.failure = Some(error.to_string().into());
                }
            }
        });
    }
}
