//! Putting the layers together: default, file, environment, flags.

use std::path::{Path, PathBuf};

use super::aliases::{self, ENVIRONMENT_PREFIX};
use super::cluster;
use super::env::{self, Variable};
use super::table::{SETTINGS, Setting, by_key};
use super::{Engine, Settings, Value as _};

/// Where the value in force came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was not set.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag, without its dashes.
    Flag(String),
}

/// What a start is given. Built by `main` from the process, by tests from literals.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file and its content.
    pub file: Option<(PathBuf, String)>,
    /// All environment variables.
    pub environment: Vec<(String, String)>,
    /// Settings given as flags: key and value.
    pub flags: Vec<(String, String)>,
}

/// The settings in force, and where each came from, in the order of the table.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The values.
    pub settings: Settings,
    /// One per row of [`SETTINGS`].
    pub origins: Vec<Origin>,
}

/// Why there are no settings. The messages name the place and the next step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file is not TOML.
    #[error("{}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says, with line and column.
        reason: String,
    },
    /// The file has a key that is no setting.
    #[error("{}: unknown setting '{key}'{}", path.display(), hint(suggestion))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key with its sections.
        key: String,
        /// A key that may have been meant.
        suggestion: Option<String>,
    },
    /// There is an environment variable that begins like ours and is no setting.
    #[error("unknown environment variable {name}{}", hint(suggestion))]
    UnknownVariable {
        /// Its name.
        name: String,
        /// A variable that may have been meant.
        suggestion: Option<String>,
    },
    /// A value cannot be read.
    #[error("{place}: {reason}")]
    Value {
        /// Flag, variable, or file and key.
        place: String,
        /// What was expected.
        reason: String,
    },
    /// Values that do not go together.
    #[error("{}", .0.join("; "))]
    Faults(Vec<String>),
}

fn hint(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean {name}?"),
        None => "; 'pharos config' lists them all".into(),
    }
}

impl Effective {
    /// Reads all layers and checks the result.
    ///
    /// # Errors
    /// [`LoadError`] for the first thing that is wrong, or all faults of the whole.
    pub fn load(sources: &Sources) -> Result<Self, LoadError> {
        let mut effective = Self {
            settings: Settings::default(),
            origins: vec![Origin::Default; SETTINGS.len()],
        };
        if let Some((path, text)) = &sources.file {
            effective.apply_file(path, text)?;
        }
        for (name, text) in &sources.environment {
            if let Some(alias) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                let Some(setting) = aliases::setting_of(alias) else {
                    return Err(unknown_variable(name));
                };
                let text = aliases::translate(setting, text);
                effective.apply(setting, &text, Origin::Environment(name.clone()))?;
            }
        }
        for (name, text) in &sources.environment {
            match env::classify(name) {
                Variable::Ignored => {}
                Variable::Setting(setting) => {
                    effective.apply(setting, text, Origin::Environment(name.clone()))?;
                }
                Variable::Unknown => return Err(unknown_variable(name)),
            }
        }
        for (key, text) in &sources.flags {
            if let Some(setting) = by_key(key) {
                effective.apply(setting, text, Origin::Flag(setting.flag()))?;
            }
        }
        let mut faults = effective.settings.faults();
        faults.extend(effective.without_effect());
        if faults.is_empty() {
            Ok(effective)
        } else {
            Err(LoadError::Faults(faults))
        }
    }

    /// A sentence for each setting that was given and says nothing where ledgers are.
    fn without_effect(&self) -> Vec<String> {
        let is_cluster = self.settings.cluster.engine == Engine::BookKeeper;
        let given = SETTINGS.iter().zip(&self.origins);
        let given = given.filter(|(_, origin)| **origin != Origin::Default);
        let without = given.filter(|(setting, _)| match is_cluster {
            true => cluster::is_of_the_embedded_engine(setting.key),
            false => cluster::is_of_a_cluster(setting.key),
        });
        let engine = self.settings.cluster.engine.show();
        without
            .map(|(setting, _)| format!("{} has no effect with engine = {engine}", setting.key))
            .collect()
    }

    fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), LoadError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| LoadError::Syntax {
            path: path.to_path_buf(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let mut leaves = Vec::new();
        flatten("", &table, &mut leaves);
        for (key, value) in leaves {
            let alias = aliases::setting_of(&key);
            let Some(setting) = by_key(&key).or(alias) else {
                let suggestion = suggest(&key);
                return Err(LoadError::UnknownKey {
                    path: path.to_path_buf(),
                    key,
                    suggestion,
                });
            };
            let text = leaf_text(&value).ok_or_else(|| LoadError::Value {
                place: format!("{}: {key}", path.display()),
                reason: format!("expected {}, found {}", setting.kind, value.type_str()),
            })?;
            let text = match alias {
                Some(setting) => aliases::translate(setting, &text),
                None => text,
            };
            self.apply(setting, &text, Origin::File(path.to_path_buf()))?;
        }
        Ok(())
    }

    fn apply(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), LoadError> {
        let place = match &origin {
            Origin::Default => setting.key.to_owned(),
            Origin::File(path) => format!("{}: {}", path.display(), setting.key),
            Origin::Environment(name) => name.clone(),
            Origin::Flag(flag) => format!("--{flag}"),
        };
        (setting.set)(&mut self.settings, text).map_err(|reason| LoadError::Value { place, reason })?;
        let row = SETTINGS.iter().position(|other| other.key == setting.key);
        if let Some(slot) = row.and_then(|row| self.origins.get_mut(row)) {
            *slot = origin;
        }
        Ok(())
    }
}

/// Turns sections into dotted keys.
fn flatten(prefix: &str, table: &toml::Table, leaves: &mut Vec<(String, toml::Value)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            toml::Value::Table(inner) if by_key(&key).is_none() => flatten(&key, inner, leaves),
            other => leaves.push((key, other.clone())),
        }
    }
}

fn leaf_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn unknown_variable(name: &str) -> LoadError {
    let key = name.trim_start_matches("PHAROS_").to_lowercase();
    let known = SETTINGS
        .iter()
        .map(|setting| (setting.env(), setting.key.replace('.', "_")));
    let suggestion = closest(&key, known.map(|(env, flat)| (flat, env)));
    LoadError::UnknownVariable {
        name: name.to_owned(),
        suggestion,
    }
}

/// The setting that may have been meant: the nearest key, also without its section, or Pulsar's name.
fn suggest(key: &str) -> Option<String> {
    let leaf = key.rsplit('.').next().unwrap_or(key);
    let by_pulsar_name = SETTINGS
        .iter()
        .find(|setting| setting.pulsar_key.split(", ").any(|name| name == leaf));
    if let Some(setting) = by_pulsar_name {
        return Some(setting.key.to_owned());
    }
    let same_leaf = SETTINGS
        .iter()
        .find(|setting| setting.key.rsplit('.').next() == Some(leaf));
    if let Some(setting) = same_leaf {
        return Some(setting.key.to_owned());
    }
    closest(
        key,
        SETTINGS
            .iter()
            .map(|setting| (setting.key.to_owned(), setting.key.to_owned())),
    )
}

/// The answer whose name is nearest to `text`, if any is near at all.
fn closest(text: &str, names: impl Iterator<Item = (String, String)>) -> Option<String> {
    let rated = names.map(|(name, answer)| (strsim::jaro_winkler(text, &name), answer));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(similarity, _)| *similarity > 0.85)
        .map(|(_, answer)| answer)
}
