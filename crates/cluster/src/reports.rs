//! Exchange of load reports between brokers, and the resulting actions.
//!
//! ```text
//! loadbalance/brokers/<host:port>    ephemeral: the LoadReport of a broker, put anew when it is different enough or old
//! ```
//! Reports are hints: a late or lost one costs balance, and nothing else.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::Expect;
use pharos_runtime::clock::{self, Nanos};

use crate::assign::Placing;
use crate::balance::{self, BalanceOptions};
use crate::bundles::PREFIX;
use crate::keeping::REGISTRY;
use crate::{BundleOwnership, LoadReport, Ownership as _};

/// Known load of the brokers.
#[derive(Default)]
pub(crate) struct Loads {
    pub(crate) options: BalanceOptions,
    /// By broker, ours among them.
    pub(crate) reports: HashMap<String, LoadReport>,
    /// Last report of this broker, and its time.
    told: Option<(LoadReport, Nanos)>,
    /// Arrival time of bundles from other brokers, by their key.
    came_at: HashMap<String, Nanos>,
    /// Bundles that we gave away because of our load.
    shed: u64,
    /// Times that we gave away at least one.
    shed_rounds: u64,
    /// Bundles that were cut because they carried too much.
    split: u64,
}

impl Loads {
    /// Returns the last report of this broker.
    pub(crate) fn own(&self) -> Option<&LoadReport> {
        self.told.as_ref().map(|(report, _)| report)
    }

    /// Our registration as it is put with a new session, if we have told anything.
    pub(crate) fn registered(&self) -> Option<Bytes> {
        let told = serde_json::to_vec(self.own()?).ok()?;
        Some(Bytes::from(told))
    }

    /// A bundle came from another broker, which is not to get it back at once.
    pub(crate) fn came(&mut self, key: &str) {
        self.came_at.insert(key.to_owned(), clock::now());
    }

    /// Notes the registered value of a broker.
    fn hear(&mut self, id: &str, value: Option<&[u8]>) {
        // One that has told nothing yet has its addresses there.
        let report = value.and_then(|value| serde_json::from_slice(value).ok());
        match report.filter(|report: &LoadReport| !report.load_report_type.is_empty()) {
            Some(report) => drop(self.reports.insert(id.to_owned(), report)),
            None => drop(self.reports.remove(id)),
        }
    }
}

/// A broker has registered, or says something else of itself.
pub(crate) async fn look_at_broker(ownership: &BundleOwnership, key: &str) {
    let Some(id) = key.strip_prefix(REGISTRY) else {
        return;
    };
    match ownership.store.get(key).await {
        Ok(found) => {
            let mut state = ownership.lock();
            if found.is_some() {
                state.brokers.insert(id.to_owned());
            }
            state.loads.hear(id, found.as_ref().map(|found| &*found.value));
        }
        Err(error) => tracing::warn!(key, %error, "what a broker says of itself is not known"),
    }
}

/// Shares bundles among brokers by their load. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Balancer {
    ownership: Arc<BundleOwnership>,
}

impl Balancer {
    /// Load balancing of the bundles of this broker.
    #[must_use]
    pub fn of(ownership: Arc<BundleOwnership>) -> Self {
        Self { ownership }
    }

    /// Sets the options of load balancing.
    pub fn set_options(&self, options: BalanceOptions) {
        self.ownership.lock().loads.options = options;
    }

    /// Bundles that this broker owns, as `<tenant>/<namespace>/<range>`.
    #[must_use]
    pub fn bundles(&self) -> BTreeSet<String> {
        self.ownership.bundles()
    }

    /// Returns the last report of this broker.
    #[must_use]
    pub fn own_report(&self) -> Option<LoadReport> {
        self.ownership.lock().loads.own().cloned()
    }

    /// Bundles that this broker gave away because of its load.
    #[must_use]
    pub fn shed_count(&self) -> u64 {
        self.ownership.lock().loads.shed
    }

    /// Times that this broker gave away bundles because of its load.
    #[must_use]
    pub fn shed_round_count(&self) -> u64 {
        self.ownership.lock().loads.shed_rounds
    }

    /// Counts bundles of [`to_shed`](Self::to_shed) that were unloaded.
    pub fn note_shed(&self, bundles: u64) {
        let loads = &mut self.ownership.lock().loads;
        loads.shed += bundles;
        loads.shed_rounds += u64::from(bundles > 0);
    }

    /// Bundles that this broker cut because they carried too much.
    #[must_use]
    pub fn split_count(&self) -> u64 {
        self.ownership.lock().loads.split
    }

    /// A bundle was cut because it carried too much.
    pub fn note_split(&self) {
        self.ownership.lock().loads.split += 1;
    }

    /// The other broker that should have a bundle `<tenant>/<namespace>/<range>` by what all carry; `None`: it stays here.
    #[must_use]
    pub fn better_place(&self, bundle: &str) -> Option<String> {
        let found = Placing(&self.ownership).least_for(&format!("{PREFIX}{bundle}"));
        found.ok().flatten()
    }

    /// Tells other brokers of our load, if it is different enough from what they know or that is older than `age_max`.
    ///
    /// Cancel safety: they may have heard of it or not; the next call tells it again.
    pub async fn tell(&self, report: LoadReport, age_max: Duration) {
        let now = clock::now();
        let value = Bytes::from(serde_json::to_vec(&report).unwrap_or_default());
        let session = {
            let mut state = self.ownership.lock();
            let percent = state.loads.options.change_percent;
            let is_known = state.loads.told.as_ref().is_some_and(|(told, at)| {
                Duration::from_nanos(now.since(*at)) < age_max && !report.differs(told, percent)
            });
            if is_known {
                return;
            }
            if let Some(id) = self.ownership.id() {
                state.loads.reports.insert(id.to_owned(), report.clone());
            }
            // Old at once, in case that it is not told after all.
            state.loads.told = Some((report, Nanos(0)));
            state.session.clone()
        };
        let (Some(session), Some(key)) = (session, self.ownership.registration.get()) else {
            return;
        };
        match session.put(key, value, Expect::Any).await {
            Ok(_) => {
                if let Some((_, at)) = &mut self.ownership.lock().loads.told {
                    *at = now;
                }
            }
            Err(error) => tracing::info!(%error, "other brokers do not hear of this one's load"),
        }
    }

    /// Bundles that this broker should give away because it is busier than the others, and to whom; none that came to it within `grace`.
    #[must_use]
    pub fn to_shed(&self, grace: Duration) -> Vec<(String, String)> {
        let now = clock::now();
        let (options, reports, ours) = {
            let mut guard = self.ownership.lock();
            let state = &mut *guard;
            let ours = &state.ours;
            state.loads.came_at.retain(|key, _| ours.contains_key(key));
            let came_at = &state.loads.came_at;
            let stays = |key: &String| {
                came_at
                    .get(key)
                    .is_some_and(|at| Duration::from_nanos(now.since(*at)) < grace)
            };
            let may_go = ours.keys().filter(|key| !stays(key));
            let may_go: BTreeSet<String> = may_go
                .filter_map(|key| Some(key.strip_prefix(PREFIX)?.to_owned()))
                .collect();
            let present = &state.brokers;
            let reports = state.loads.reports.iter().filter(|(id, _)| present.contains(*id));
            let reports = reports.map(|(id, report)| (id.clone(), report.clone()));
            (state.loads.options, reports.collect(), may_go)
        };
        let Some(us) = self
            .ownership
            .id()
            .filter(|_| options.enabled && options.shedding)
        else {
            return Vec::new();
        };
        balance::shed(
            us,
            &reports,
            |bundle| ours.contains(bundle),
            |bundle, brokers| Placing(&self.ownership).allowed(bundle, brokers),
            &options,
        )
    }
}
