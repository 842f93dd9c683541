//! A workload file: what is run, in which cases, and what is expected of them.
//!
//! ```toml
//! title = "Latency as topics grow"
//! about = "What is measured, where the numbers come from, how to scale it."
//!
//! columns = ["publish_p99_ms"]   # figures of the table; the usual ones unless given
//! relative = ["publish_p99_ms"]  # figures also shown as multiples of the first case's; `[]` for none
//!
//! [load]                  # every key of `Load`, the same for all cases
//! size = "1KB"
//! rate = 20000
//!
//! [broker]                # settings of the broker, as in its own file
//! storage.sync = "sync"
//!
//! [[case]]                # cases by name; without any there is one
//! name = "small"
//! size = 300
//!
//! [[vary]]                # every case is run with every value; several such tables multiply
//! key = "topics"
//! values = [100, 10000]
//!
//! [[expect]]
//! what = "ten thousand topics cost what a hundred cost"
//! metric = "publish_p99_ms"
//! case = { topics = 10000 }
//! of = { topics = 100 }   # the same case, but for these values
//! max = 1.5
//! ```
//!
//! Keys of the broker's settings appear as `broker.storage.sync` in `case`, `vary` and `--set`. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use super::expect::Expect;
use super::load::Load;
use super::metric::{self, METRICS, Metric};

/// Parameters of a case by key; those of the broker begin with [`BROKER`].
pub(super) type Params = BTreeMap<String, Value>;

/// Prefix of keys with settings of the broker.
pub(super) const BROKER: &str = "broker.";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    about: String,
    columns: Option<Vec<String>>,
    relative: Option<Vec<String>>,
    #[serde(default)]
    load: Table,
    #[serde(default)]
    broker: Table,
    #[serde(default, rename = "case")]
    cases: Vec<Table>,
    #[serde(default)]
    vary: Vec<Vary>,
    #[serde(default)]
    expect: Vec<Expect>,
}

/// A key and the values it takes in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    key: String,
    values: Vec<Value>,
}

/// A workload file, read and checked.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The file's name without its ending.
    pub(super) name: String,
    /// Title, in one line.
    pub(super) title: String,
    /// Purpose of the measurement, and how to scale it.
    pub(super) about: String,
    /// Figures of the table.
    pub(super) columns: Vec<&'static Metric>,
    /// Figures that are also shown as multiples of the first case's.
    pub(super) relative: Vec<&'static Metric>,
    /// In the order in which they run.
    pub(super) cases: Vec<Case>,
    /// Expected results.
    pub(super) expect: Vec<Expect>,
}

/// Case of a workload.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The name of its `[[case]]`; empty without.
    pub(super) name: String,
    /// Parameters that distinguish it from the other cases.
    pub(super) label: String,
    /// Everything that was said about it.
    pub(super) params: Params,
    /// Parsed parameters.
    pub(super) load: Load,
}

impl Scenario {
    /// Reads a file and the changes asked for on the command line (`key=value`).
    pub(super) fn read(path: &Path, changes: &[String]) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text, changes).with_context(|| format!("in {}", path.display()))
    }

    fn parse(name: &str, text: &str, changes: &[String]) -> anyhow::Result<Self> {
        let raw: Raw = toml::from_str(text)?;
        let mut base = flat(&raw.load, "");
        base.extend(flat(&raw.broker, BROKER));
        let mut named = Vec::new();
        for case in &raw.cases {
            named.push(named_case(case)?);
        }
        let mut vary = raw.vary;
        for change in changes {
            apply(change, &mut base, &mut named, &mut vary)?;
        }
        if named.is_empty() {
            named.push((String::new(), Params::new()));
        }
        let mut cases = Vec::new();
        for (name, own) in named {
            let mut params = base.clone();
            params.extend(own);
            for (values, params) in product(&vary, params)? {
                let label = label(&name, &values);
                let load = Load::of(&params).with_context(|| format!("case {label}"))?;
                cases.push(Case {
                    name: name.clone(),
                    label,
                    params,
                    load,
                });
            }
        }
        for expect in &raw.expect {
            expect
                .check()
                .with_context(|| format!("[[expect]] {}", expect.what))?;
        }
        let named_metrics = |names: Option<Vec<String>>, usual: fn(&Metric) -> bool| match names {
            Some(names) => names.iter().map(|name| known_metric(name)).collect(),
            None => Ok(METRICS.iter().filter(|metric| usual(metric)).collect()),
        };
        Ok(Self {
            name: name.to_owned(),
            title: raw.title,
            about: raw.about.trim().to_owned(),
            columns: named_metrics(raw.columns, |metric| metric.shown)?,
            relative: named_metrics(raw.relative, |metric| RELATIVE.contains(&metric.name))?,
            cases,
            expect: raw.expect,
        })
    }
}

/// Figures that are shown as multiples of the first case's unless the file says otherwise.
const RELATIVE: [&str; 3] = ["publish_msg_s", "publish_p99_ms", "e2e_p99_ms"];

fn known_metric(name: &str) -> anyhow::Result<&'static Metric> {
    metric::find(name).with_context(|| format!("no figure `{name}`"))
}

fn named_case(case: &Table) -> anyhow::Result<(String, Params)> {
    let mut params = flat(case, "");
    match params.remove("name") {
        Some(Value::String(name)) => Ok((name, params)),
        _ => bail!("a [[case]] has no name"),
    }
}

/// Tables within tables become keys with dots.
fn flat(table: &Table, prefix: &str) -> Params {
    let mut params = Params::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => params.extend(flat(inner, &format!("{prefix}{key}."))),
            value => drop(params.insert(format!("{prefix}{key}"), value.clone())),
        }
    }
    params
}

/// `key=value` replaces the key wherever it stands; a list of values is run through.
fn apply(
    change: &str,
    base: &mut Params,
    named: &mut [(String, Params)],
    vary: &mut Vec<Vary>,
) -> anyhow::Result<()> {
    let (key, text) = change
        .split_once('=')
        .with_context(|| format!("--set {change}: not key=value"))?;
    let (key, text) = (key.trim().to_owned(), text.trim());
    let value = parse_value(text);
    for (_, params) in named.iter_mut() {
        params.remove(&key);
    }
    let at = vary.iter().position(|vary| vary.key == key);
    match value {
        Value::Array(values) => match at.and_then(|at| vary.get_mut(at)) {
            Some(known) => known.values = values,
            None => vary.push(Vary { key, values }),
        },
        value => {
            if let Some(at) = at {
                vary.remove(at);
            }
            base.insert(key, value);
        }
    }
    Ok(())
}

/// A TOML value, or else a text.
fn parse_value(text: &str) -> Value {
    let line = format!("value = {text}");
    let table: Option<Table> = toml::from_str(&line).ok();
    table
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Keys with the value that one case has, in the order of the file.
type Chosen = Vec<(String, Value)>;

/// All combinations: the values chosen, and the parameters with them in place. The first key turns slowest.
fn product(vary: &[Vary], params: Params) -> anyhow::Result<Vec<(Chosen, Params)>> {
    let mut all = vec![(Chosen::new(), params)];
    for Vary { key, values } in vary {
        ensure!(!values.is_empty(), "[[vary]] {key} has no values");
        all = all
            .into_iter()
            .flat_map(|(chosen, params)| {
                values.iter().map(move |value| {
                    let (mut chosen, mut params) = (chosen.clone(), params.clone());
                    chosen.push((key.clone(), value.clone()));
                    params.insert(key.clone(), value.clone());
                    (chosen, params)
                })
            })
            .collect();
    }
    Ok(all)
}

fn label(name: &str, chosen: &Chosen) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !name.is_empty() {
        parts.push(name.to_owned());
    }
    for (key, value) in chosen {
        let short = key.strip_prefix(BROKER).unwrap_or(key);
        let short = short.strip_prefix("storage.").unwrap_or(short);
        parts.push(format!("{short}={}", show(value)));
    }
    if parts.is_empty() {
        parts.push("all".to_owned());
    }
    parts.join(" ")
}

/// A value without quotes.
pub(super) fn show(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "title = 't'\nabout = 'a'\n[load]\nsize = 300\n[broker]\nstorage.sync = 'sync'\n\
                        [[vary]]\nkey = 'topics'\nvalues = [1, 2]\n\
                        [[vary]]\nkey = 'broker.storage.sync'\nvalues = ['sync', 'async']\n";

    fn labels(text: &str, changes: &[&str]) -> Vec<String> {
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        let scenario = Scenario::parse("x", text, &changes).expect("reads");
        scenario.cases.into_iter().map(|case| case.label).collect()
    }

    #[test]
    fn values_multiply() {
        assert_eq!(
            labels(FILE, &[]),
            [
                "topics=1 sync=sync",
                "topics=1 sync=async",
                "topics=2 sync=sync",
                "topics=2 sync=async"
            ]
        );
    }

    #[test]
    fn a_change_replaces_the_key_everywhere() {
        assert_eq!(
            labels(FILE, &["topics=7"]),
            ["sync=sync", "sync=async"],
            "a single value ends the variation"
        );
        assert_eq!(
            labels(FILE, &["broker.storage.sync=async", "topics=[3]"]),
            ["topics=3"]
        );
        let named = format!("{FILE}[[case]]\nname = 'c'\nduration = '9s'\n");
        let scenario = Scenario::parse("x", &named, &["duration=1s".to_owned()]).expect("reads");
        assert!(
            scenario
                .cases
                .iter()
                .all(|case| case.load.duration.0.as_secs() == 1)
        );
    }

    #[test]
    fn unknown_keys_are_refused() {
        for wrong in [
            "title = 't'\nabout = 'a'\ntypo = 1",
            "title = 't'\nabout = 'a'\ncolumns = ['nothing']",
            "title = 't'\nabout = 'a'\n[load]\nsise = 300",
            "title = 't'\nabout = 'a'\n[[case]]\nname = 'x'\nsise = 300",
            "title = 't'\nabout = 'a'\n[[case]]\nsize = 300",
            "title = 't'\nabout = 'a'\n[[vary]]\nkey = 'sise'\nvalues = [1]",
            "title = 't'\nabout = 'a'\n[[expect]]\nwhat = 'x'\nmetric = 'nothing'\nmax = 1",
            "title = 't'\nabout = 'a'\n[[expect]]\nwhat = 'x'\nmetric = 'publish_p99_ms'",
        ] {
            assert!(Scenario::parse("x", wrong, &[]).is_err(), "{wrong}");
        }
    }
}
