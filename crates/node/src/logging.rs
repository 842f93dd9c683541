//! The log: to standard error, for people on a terminal and as JSON elsewhere.

use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::LogFormat;

/// Whether a text is a log filter: a level, or levels per module.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    !text.trim().is_empty() && Targets::from_str(text).is_ok()
}

/// Starts logging. Later calls in the same process do nothing, so tests may start several nodes.
pub fn init(format: LogFormat, level: &str) {
    let filter =
        Targets::from_str(level).unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let on_terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !on_terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let registry = tracing_subscriber::registry().with(filter);
    let started = if json {
        let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
        registry.with(layer.with_writer(std::io::stderr)).try_init()
    } else {
        let layer = tracing_subscriber::fmt::layer().with_ansi(on_terminal);
        registry.with(layer.with_writer(std::io::stderr)).try_init()
    };
    if started.is_ok() {
        // A panic is a fault like others: in the same log, in the same form.
        std::panic::set_hook(Box::new(
            |panic| tracing::error!(%panic, "a thread or task panicked"),
        ));
    }
}
