//! The broker being measured: one that runs already, or one of the run's own.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

use crate::access::Access;
use crate::args::TargetArgs;
use crate::broker_process::BrokerProcess;
use crate::http::HttpDoor;
use crate::metrics::{self, Stage};
use crate::procfs::{self, ProcessSample};

/// Broker to measure, and access to its state. Dropping it stops a broker that the run started.
#[derive(Debug)]
pub(crate) struct Target {
    own: Option<BrokerProcess>,
    /// `pulsar://host:port`.
    pub(crate) url: String,
    /// Access settings of the run; a broker that it starts itself requires none.
    pub(crate) access: Access,
    /// Its HTTP door, if known.
    pub(crate) http: Option<HttpDoor>,
    pid: Option<u32>,
}

impl Target {
    /// Takes the given broker, or starts one.
    pub(crate) fn open(args: &TargetArgs, stop: &AtomicBool) -> anyhow::Result<Self> {
        // A context that merely is in use says how to get in where --url leads. Its broker is loaded only where that is asked for.
        if args.url.is_some() || args.access.names_context() {
            let known = args.access.known(args.http_url.as_ref(), args.url.as_ref())?;
            let url = known
                .service_url
                .clone()
                .context("the context has no --service-url; say --url")?;
            anyhow::ensure!(
                !url.contains(','),
                "{url} names several brokers, and a run loads one: say it with --url"
            );
            // The admin API of a context belongs to its broker, not to one that --url names.
            let http = match (&args.http_url, args.access.names_context()) {
                (None, false) => None,
                _ => known.admin_url.as_deref(),
            };
            return Ok(Self {
                own: None,
                access: Access::to(&url, &known)?,
                http: http.map(|base| HttpDoor::of(base, &known)).transpose()?,
                url,
                pid: args.broker_pid,
            });
        }
        Ok(Self::of(BrokerProcess::start(stop)?))
    }

    /// A broker of the run's own that was started already.
    pub(crate) fn of(own: BrokerProcess) -> Self {
        Self {
            url: own.pulsar_url.clone(),
            access: Access::default(),
            http: Some(HttpDoor::plain(&own.http_url)),
            pid: Some(own.pid()),
            own: Some(own),
        }
    }

    /// The process of a broker of the run's own; another one is left alone.
    pub(crate) fn into_own(self) -> Option<BrokerProcess> {
        self.own
    }

    /// The directories of a broker of the run's own.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        self.own.as_ref().map_or_else(Vec::new, |own| own.home().dirs())
    }

    /// True if the run started the broker, and stops it at its end.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// CPU time and memory of the broker: from `/proc` when its process id is known, else from its metrics page.
    pub(crate) fn sample(&self) -> Option<ProcessSample> {
        if let Some(pid) = self.pid {
            return procfs::sample(pid);
        }
        let samples = metrics::fetch(self.http.as_ref()?).ok()?;
        Some(ProcessSample {
            cpu_seconds: metrics::value(&samples, "process_cpu_seconds_total")?,
            rss_bytes: metrics::value(&samples, "process_resident_memory_bytes")? as u64,
        })
    }

    /// Returns a value of its metrics page, summed over its labels.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let samples = metrics::fetch(self.http.as_ref()?).ok()?;
        metrics::value(&samples, name)
    }

    /// The stages of a message as the broker timed them; empty when it does not say.
    pub(crate) fn stages(&self) -> Vec<Stage> {
        self.http
            .as_ref()
            .and_then(|http| metrics::fetch(http).ok())
            .map_or_else(Vec::new, |samples| metrics::stages(&samples))
    }
}
