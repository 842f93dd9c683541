//! Settings on paper: `pharos config` as text and JSON, and the reference page.

use std::fmt::Write as _;

use super::env::OTHERS;
use super::layers::{Effective, Origin};
use super::table::SETTINGS;

/// A table of every setting, its value and its origin, for people.
#[must_use]
pub fn text_listing(effective: &Effective) -> String {
    let rows: Vec<[String; 3]> = SETTINGS
        .iter()
        .zip(&effective.origins)
        .map(|(setting, origin)| {
            let value = (setting.get)(&effective.settings);
            let value = if value.is_empty() {
                "\"\"".to_owned()
            } else {
                value
            };
            [setting.key.to_owned(), value, describe(origin)]
        })
        .collect();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let (keys, values) = (width(0), width(1));
    let mut out = String::new();
    for [key, value, origin] in &rows {
        let _ = writeln!(out, "{key:keys$}  {value:values$}  {origin}");
    }
    out
}

/// The same as a JSON array of `{key, value, origin, source}`.
#[must_use]
pub fn json_listing(effective: &Effective) -> String {
    let rows: Vec<serde_json::Value> = SETTINGS
        .iter()
        .zip(&effective.origins)
        .map(|(setting, origin)| {
            let (name, source) = match origin {
                Origin::Default => ("default", None),
                Origin::File(path) => ("file", Some(path.display().to_string())),
                Origin::Environment(name) => ("environment", Some(name.clone())),
                Origin::Flag(flag) => ("flag", Some(format!("--{flag}"))),
            };
            let value = (setting.get)(&effective.settings);
            serde_json::json!({ "key": setting.key, "value": value, "origin": name, "source": source })
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&rows).unwrap_or_default();
    text.push('\n');
    text
}

fn describe(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".into(),
        Origin::File(path) => format!("file {}", path.display()),
        Origin::Environment(name) => format!("environment {name}"),
        Origin::Flag(flag) => format!("flag --{flag}"),
    }
}

const INTRODUCTION: &str = "\
# Settings

<!-- Made by `pharos config --reference`; a test compares. Do not edit. -->

A setting is taken from, strongest first: a flag of `pharos serve`, an environment variable, the file named by
`--config` or `PHAROS_CONFIG`, the default. `pharos config` takes the same flags and prints what would be in force and
where it came from; `--output json` prints that for machines.

- The flag is the key with dashes: `ledger.max_size` is `--ledger-max-size`. The environment variable is
  `PHAROS_LEDGER_MAX_SIZE`. In the file, a dot is a section: `max_size` under `[ledger]`.
- Unknown keys in the file and unknown variables that begin with `PHAROS_` are errors. Variables that Kubernetes makes
  for a service called `pharos` are left alone.
- Sizes are bytes or carry a unit: `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, `KB`, `MB`, `GB`, `TB` powers of 1000.
  Durations carry `ms`, `s`, `m`, `h` or `d`.
- Pulsar's names are taken as well, where the table has one name for a setting: in the file on a line of their
  own before the first section (`managedLedgerMaxLedgerRolloverTimeMinutes = 30`), and as environment variables with the prefix
  `PULSAR_PREFIX_`. A bare number has the unit that the name says, -1 is unlimited. Names that are not in the table are errors.
- Settings are read at start. Some can be changed while the broker runs, for all brokers of a cluster: `pharos brokers`
  and `POST /admin/v2/brokers/configuration/{name}/{value}`; `GET /admin/v2/brokers/configuration` lists their names.

```toml
data_dir = \"/var/lib/pharos\"
pulsar_listen = \"0.0.0.0:6650\"
http_listen = \"0.0.0.0:8080\"
advertised_address = \"pharos.example.com\"

[authentication]
enabled = true
providers = \"token\"
token_public_key = \"file:///etc/pharos/tokens.pub\"

[authorization]
enabled = true
super_user_roles = \"admin\"

[ledger]
default_retention_time = \"7d\"
default_retention_size = \"unlimited\"
```
";

/// The reference page.
#[must_use]
pub fn markdown_reference() -> String {
    let mut out = String::from(INTRODUCTION);
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            let _ = write!(
                out,
                "\n## {group}\n\n| key | value | default | effect | in Pulsar | since |\n"
            );
            out.push_str("|---|---|---|---|---|---|\n");
        }
        let default = setting.default();
        let default = if default.is_empty() {
            "empty".to_owned()
        } else {
            format!("`{default}`")
        };
        let names = setting.pulsar_key.split(", ").filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {default} | {} | {} | {} |",
            setting.key,
            setting.kind,
            setting.help,
            names.join(", "),
            setting.since
        );
    }
    out.push_str("\n## Other environment variables\n\n| variable | effect |\n|---|---|\n");
    for (name, effect) in OTHERS {
        let _ = writeln!(out, "| `{name}` | {effect} |");
    }
    out
}
