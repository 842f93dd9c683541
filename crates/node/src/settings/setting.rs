//! One row of the list of settings.

use super::{Settings, Value};

/// One setting.
pub struct Setting {
    /// Key in the file; a dot is a section.
    pub key: &'static str,
    /// Heading under which help and reference show it.
    pub group: &'static str,
    /// What kind of value it takes.
    pub kind: &'static str,
    /// What it does, in a sentence or two.
    pub help: &'static str,
    /// Pulsar's key of the same effect; empty when there is none.
    pub pulsar_key: &'static str,
    /// Release that brought it.
    pub since: &'static str,
    /// Reads a text into the settings.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Prints the value.
    pub get: fn(&Settings) -> String,
}

impl Setting {
    /// Its flag without the dashes: `ledger.max_size` is `ledger-max-size`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Its environment variable: `ledger.max_size` is `PHAROS_LEDGER_MAX_SIZE`.
    #[must_use]
    pub fn env(&self) -> String {
        format!("PHAROS_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Its default as text.
    #[must_use]
    pub fn default(&self) -> String {
        (self.get)(&Settings::default())
    }
}

/// What a setting's type is called; the function only serves to name its field.
pub(super) const fn kind_of<T: Value>(_: fn(&Settings) -> &T) -> &'static str {
    T::KIND
}

/// A row. `path as Shape` is for a field of another crate's type: `Shape` says how it is written.
macro_rules! setting {
    ($group:literal, $key:literal, $pulsar:literal, $($field:ident).+ as $shape:ty, $help:literal) => {
        $crate::settings::setting::Setting {
            key: $key,
            group: $group,
            kind: <$shape as $crate::settings::Value>::KIND,
            help: $help,
            pulsar_key: $pulsar,
            since: "0.1.0",
            set: |settings, text| <$shape as $crate::settings::Value>::parse(text).map(|value| settings.$($field).+ = value.into()),
            get: |settings| <$shape>::from(settings.$($field).+).show(),
        }
    };
    ($group:literal, $key:literal, $pulsar:literal, $($field:ident).+, $help:literal) => {
        $crate::settings::setting::Setting {
            key: $key,
            group: $group,
            kind: $crate::settings::setting::kind_of(|settings| &settings.$($field).+),
            help: $help,
            pulsar_key: $pulsar,
            since: "0.1.0",
            set: |settings, text| $crate::settings::Value::parse(text).map(|value| settings.$($field).+ = value),
            get: |settings| settings.$($field).+.show(),
        }
    };
}

pub(super) use setting;
