//! Preparation of a case: measurement of the devices, and the start of a broker with its settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use toml::{Table, Value};

use crate::broker_process::{BrokerHome, BrokerProcess, SETTINGS_FILE, StartError};
use crate::target::Target;

use super::file::{BROKER, Case, Params};
use super::outcome::CaseOutcome;
use super::probe::{self, Limits};
use super::run::Around;

/// The broker's setting that names its journal directories, separated by commas.
const JOURNAL_DIRS: &str = "storage.journal_dirs";

/// A broker, ready.
pub(super) struct Prepared {
    /// It.
    pub(super) target: Target,
    /// Limits of its devices.
    pub(super) limits: Option<Limits>,
    /// Directories for measuring them again, if requested.
    pub(super) places: Option<Places>,
}

/// Directories of a broker, which stay until this is dropped.
pub(super) struct Places {
    /// Directories, one for each journal, on its device.
    pub(super) journals: Vec<PathBuf>,
    _home: Arc<BrokerHome>,
}

/// Returns the last line of a broker's output, without the name of a settings file that no longer exists when the
/// line is read.
pub(super) fn last_words(said: &str) -> &str {
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or("it said nothing").trim();
    last.rsplit_once(&format!("{SETTINGS_FILE}: "))
        .map_or(last, |(_, why)| why)
}

/// The broker of the case, and what its devices can do.
///
/// # Errors
/// The broker does not start, or the devices cannot be measured.
pub(super) fn prepare(
    case: &Case,
    around: &Around<'_>,
    outcome: &mut CaseOutcome,
) -> Result<Prepared, StartError> {
    if around.target.url.is_some() {
        let ignored: Vec<String> = settings_of(&case.params)
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        if !ignored.is_empty() || case.load.journals > 1 {
            let note = "the broker was running already; what the file says of its settings was not applied";
            outcome.notes.push(format!("{note}: {}", ignored.join(", ")));
        }
        return Ok(Prepared {
            target: Target::open(around.target, around.stop)?,
            limits: None,
            places: None,
        });
    }
    let home = BrokerHome::new(around.data_dirs)?;
    let dirs = home.dirs();
    let journals = journal_dirs(&dirs, case.load.journals)?;
    let text = settings_text(&case.params, &journals)?;
    let home = Arc::new(home.with_settings(&text)?);
    let mut places = Places {
        journals,
        _home: Arc::clone(&home),
    };
    if places.journals.is_empty() {
        places.journals.extend(dirs.first().cloned());
    }
    let data = dirs.first().map_or(Path::new("."), PathBuf::as_path);
    let probed = !case.load.probe.0.is_zero();
    let limits = if probed {
        Some(probe::measure(&case.load, data, &places.journals)?)
    } else {
        None
    };
    if limits.as_ref().is_some_and(|limits| !limits.direct) {
        let note = "this file system has no direct I/O: the device's limits are those of the page cache";
        outcome.notes.push(note.to_owned());
    }
    let broker = BrokerProcess::start_in(home, around.stop)?;
    Ok(Prepared {
        target: Target::of(broker),
        limits,
        places: probed.then_some(places),
    })
}

/// Directories for `count` journals, one after the other on each device; none when the broker's default will do.
fn journal_dirs(dirs: &[PathBuf], count: u32) -> anyhow::Result<Vec<PathBuf>> {
    if count < 2 {
        return Ok(Vec::new());
    }
    let mut journals = Vec::new();
    for (number, dir) in (0..count).zip(dirs.iter().cycle()) {
        let path = dir.join(format!("journal-{number}"));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        journals.push(path);
    }
    Ok(journals)
}

fn settings_of(params: &Params) -> impl Iterator<Item = (&str, &Value)> {
    params
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(BROKER)?, value)))
}

/// The broker's settings file.
fn settings_text(params: &Params, journals: &[PathBuf]) -> anyhow::Result<String> {
    let mut table = Table::new();
    for (key, value) in settings_of(params) {
        put(&mut table, key, value.clone())?;
    }
    if !journals.is_empty() {
        let all: Vec<String> = journals.iter().map(|dir| dir.display().to_string()).collect();
        put(&mut table, JOURNAL_DIRS, Value::String(all.join(",")))?;
    }
    Ok(toml::to_string(&table)?)
}

/// Puts `a.b.c` into tables within tables.
fn put(table: &mut Table, key: &str, value: Value) -> anyhow::Result<()> {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            let inner = inner
                .as_table_mut()
                .with_context(|| format!("broker.{section} is a value and a section"))?;
            put(inner, rest, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_the_broker_reads_them() {
        let params = Params::from([
            ("size".to_owned(), Value::Integer(3)),
            ("broker.storage.sync".to_owned(), Value::String("async".into())),
            ("broker.shards".to_owned(), Value::Integer(2)),
        ]);
        let text = settings_text(&params, &["/a/b".into(), "/c".into()]).expect("writes");
        let table: Table = toml::from_str(&text).expect("reads");
        assert_eq!(table["shards"].as_integer(), Some(2));
        assert_eq!(table["storage"]["sync"].as_str(), Some("async"));
        assert_eq!(table["storage"]["journal_dirs"].as_str(), Some("/a/b,/c"));
        assert!(!table.contains_key("size"));
    }

    #[test]
    fn the_reason_of_a_refusal_stands_alone() {
        let said = format!("INFO begins\npharos: /tmp/x/{SETTINGS_FILE}: unknown setting 'a'\n\n");
        assert_eq!(last_words(&said), "unknown setting 'a'");
        assert_eq!(last_words("panic"), "panic");
    }

    #[test]
    fn journals_are_dealt_out_over_devices() {
        let dirs = [
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        ];
        let paths = [dirs[0].path().to_owned(), dirs[1].path().to_owned()];
        let journals = journal_dirs(&paths, 3).expect("made");
        assert!(journals[0].starts_with(&paths[0]) && journals[1].starts_with(&paths[1]));
        assert!(journals[2].starts_with(&paths[0]) && journals[2].is_dir());
        assert!(journal_dirs(&paths, 1).expect("made").is_empty());
    }
}
