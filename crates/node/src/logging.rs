//! The log: to standard error, for people on a terminal and as JSON elsewhere.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::LogFormat;

/// Description of a valid filter, for a user who wrote another.
const ALLOWED: &str = "a level (off, error, warn, info, debug or trace), or levels by module after it, \
                       such as info,pharos_broker=debug";

/// Parses a log filter: a level for everything, and others for modules. Without a level for everything that is info:
/// a user who asks for more of one module does not ask for less of all others.
///
/// # Errors
/// A sentence that names the part that is not understood and says what is allowed. A word that is no level is never
/// taken for the name of a module.
pub fn filter_of(text: &str) -> Result<Targets, String> {
    let refused = |part: &str| format!("'{part}' is no log filter; write {ALLOWED}");
    if text.trim().is_empty() {
        return Err(refused(""));
    }
    let mut filter = Targets::new().with_default(LevelFilter::INFO);
    for part in text.split(',').map(str::trim) {
        let (module, word) = match part.split_once('=') {
            Some((module, word)) => (Some(module.trim()), word.trim()),
            None => (None, part),
        };
        let level = level_of(word).ok_or_else(|| refused(part))?;
        filter = match module {
            None => filter.with_default(level),
            Some(module) if is_module(module) => filter.with_target(module, level),
            Some(_) => return Err(refused(part)),
        };
    }
    Ok(filter)
}

fn level_of(word: &str) -> Option<LevelFilter> {
    let levels = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let found = levels
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, level)| level)
}

fn is_module(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-:".contains(c);
    !name.is_empty() && name.chars().all(fits)
}

/// Starts logging. Later calls in the same process do nothing, so tests may start several nodes.
///
/// `level`: as checked with [`filter_of`]; anything else counts as info.
pub fn init(format: LogFormat, level: &str) {
    let filter = filter_of(level).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let on_terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !on_terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    // A log that cannot be written is no fault of who logs: told on standard error, as it would be by default, it would be
    // a panic, since that is what went away, with a terminal or a pipe.
    let registry = tracing_subscriber::registry().with(filter);
    let started = if json {
        let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
        let layer = layer.log_internal_errors(false);
        registry.with(layer.with_writer(std::io::stderr)).try_init()
    } else {
        let layer = tracing_subscriber::fmt::layer().with_ansi(on_terminal);
        let layer = layer.log_internal_errors(false);
        registry.with(layer.with_writer(std::io::stderr)).try_init()
    };
    if started.is_ok() {
        // A panic is a fault like others: in the same log, in the same form.
        std::panic::set_hook(Box::new(
            |panic| tracing::error!(%panic, "a thread or task panicked"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_levels_by_module_are_filters() {
        let only = filter_of("warn").unwrap();
        assert!(only.would_enable("pharos_broker", &Level::WARN));
        assert!(!only.would_enable("pharos_broker", &Level::INFO));
        let more = filter_of(" Info , pharos_broker::home = DEBUG").unwrap();
        assert!(more.would_enable("pharos_broker::home::rest", &Level::DEBUG));
        assert!(!more.would_enable("pharos_pulsar", &Level::DEBUG));
        assert!(more.would_enable("pharos_pulsar", &Level::INFO));
        let nothing = filter_of("off").unwrap();
        assert!(!nothing.would_enable("pharos_broker", &Level::ERROR));
    }

    #[test]
    fn more_of_one_module_is_not_less_of_the_others() {
        let filter = filter_of("pharos_broker=debug").unwrap();
        assert!(filter.would_enable("pharos_broker", &Level::DEBUG));
        assert!(filter.would_enable("pharos_pulsar", &Level::INFO));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_with_what_is_allowed() {
        for text in [
            "inof",
            "",
            " ",
            "info,",
            "info,pharos_broker",
            "pharos_broker=loud",
            "=info",
            "a b=info",
            "info=",
            "3",
        ] {
            let reason = filter_of(text).unwrap_err();
            assert!(
                reason.contains("off, error, warn, info, debug or trace"),
                "{reason}"
            );
        }
    }
}
