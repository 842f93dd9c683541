//! Workload files: which cases, against which contestants, with which load.
//!
//! ```toml
//! title = "One line"
//! about = "What is asked, and whose figure it repeats"
//! contestants = ["pharos", "pulsar", "kafka", "nats"]
//!
//! [load]                      # for all cases
//! size = 1024
//!
//! [quick]                     # with --quick, over what stands above
//! duration_s = 8
//!
//! [[case]]
//! name = "1 partition"
//! figures = ["publish_msg_s", "publish_p99_ms"]
//! partitions = 1
//! quick = { partitions = 1 }  # with --quick, for this case
//! left_out = { nats = "why" } # goes onto the page
//! ```
//!
//! The keys are those of [`Load`]; unknown ones are errors. A case with `quick = false` is left out of the quick form. `rounds`, of the file or
//! of a case, is how often all contestants run in turn in the long form: 3 unless given; the quick form has one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::figure::{self, Figure};
use crate::peer::Contestant;
use crate::spec::Load;

/// Case of a file.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: String,
    /// In the order in which they run.
    pub(crate) contestants: Vec<Contestant>,
    /// Figures to compare, the most important first.
    pub(crate) figures: Vec<&'static Figure>,
    /// Contestants that are left out, with the reason.
    pub(crate) left_out: Vec<(Contestant, String)>,
    /// Number of runs of all contestants in turn.
    pub(crate) rounds: u32,
    /// The load.
    pub(crate) load: Load,
}

/// A workload file.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// Title, one line.
    pub(crate) title: String,
    /// Question of the case, and the published figure it repeats.
    pub(crate) about: String,
    /// In the order in which they run.
    pub(crate) cases: Vec<Case>,
    /// Cases that the quick form leaves out.
    pub(crate) only_long: Vec<String>,
}

/// Rounds of the long form where a file says nothing, and the most that it may ask for.
const ROUNDS: u32 = 3;
const ROUNDS_MAX: u32 = 20;

/// Reason for leaving something out of the quick form.
const ONLY_LONG: &str = "in the long form only";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    about: String,
    contestants: Vec<String>,
    #[serde(default)]
    rounds: Option<u32>,
    #[serde(default)]
    load: Table,
    #[serde(default)]
    quick: Table,
    #[serde(rename = "case")]
    cases: Vec<Table>,
}

impl Workload {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or says what is not known here.
    pub(crate) fn read(path: &Path, quick: bool) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text, quick).with_context(|| format!("in {}", path.display()))
    }

    fn parse(name: &str, text: &str, quick: bool) -> anyhow::Result<Self> {
        let raw: Raw = toml::from_str(text)?;
        let (mut cases, mut only_long) = (Vec::new(), Vec::new());
        for case in &raw.cases {
            match raw.case(case.clone(), quick)? {
                Taken::Case(case) => cases.push(*case),
                Taken::OnlyLong(name) => only_long.push(name),
            }
        }
        Ok(Self {
            name: name.to_owned(),
            title: raw.title,
            about: raw.about.trim().to_owned(),
            cases,
            only_long,
        })
    }
}

/// Result of reading a case.
enum Taken {
    /// Case to run.
    Case(Box<Case>),
    /// The quick form is without it.
    OnlyLong(String),
}

impl Raw {
    fn case(&self, mut own: Table, quick: bool) -> anyhow::Result<Taken> {
        let name = match own.remove("name") {
            Some(Value::String(name)) => name,
            _ => anyhow::bail!("a [[case]] has no name"),
        };
        let mut own_quick = match own.remove("quick") {
            Some(Value::Table(table)) => table,
            Some(Value::Boolean(false)) if quick => return Ok(Taken::OnlyLong(name)),
            Some(Value::Boolean(_)) | None => Table::new(),
            Some(_) => anyhow::bail!("case {name}: `quick` is neither a table nor false"),
        };
        let words = |value: Option<Value>| value.map(Value::try_into::<Vec<String>>).transpose();
        let in_case = || format!("case {name}");
        let long = words(own.remove("contestants")).with_context(in_case)?;
        let long = parse_all(&long.unwrap_or_else(|| self.contestants.clone()))?;
        let short = words(own_quick.remove("contestants").filter(|_| quick)).with_context(in_case)?;
        let contestants = short.map_or_else(|| Ok(long.clone()), |words| parse_all(&words))?;
        let mut left_out = Vec::new();
        if let Some(reasons) = own.remove("left_out") {
            let reasons: BTreeMap<String, String> = reasons.try_into().with_context(in_case)?;
            for (word, why) in reasons {
                left_out.push((Contestant::parse(&word)?, why));
            }
        }
        let missing = long.into_iter().filter(|it| !contestants.contains(it));
        left_out.extend(missing.map(|contestant| (contestant, ONLY_LONG.to_owned())));
        let figures: Vec<String> = match own.remove("figures") {
            Some(value) => value.try_into().with_context(|| format!("case {name}"))?,
            None => anyhow::bail!("case {name} compares no figures"),
        };
        ensure!(!figures.is_empty(), "case {name} compares no figures");
        let own_rounds = own.remove("rounds").map(Value::try_into::<u32>).transpose();
        let rounds = own_rounds
            .with_context(in_case)?
            .or(self.rounds)
            .unwrap_or(ROUNDS);
        ensure!(
            (1..=ROUNDS_MAX).contains(&rounds),
            "case {name}: `rounds` must be from 1 to {ROUNDS_MAX}"
        );
        let mut keys = self.load.clone();
        keys.extend(own);
        if quick {
            keys.extend(self.quick.clone());
            keys.extend(own_quick);
        }
        let load: Load = Value::Table(keys)
            .try_into()
            .with_context(|| format!("case {name}"))?;
        load.check().with_context(|| format!("case {name}"))?;
        let figures = figures.iter().map(|name| figure::find(name));
        Ok(Taken::Case(Box::new(Case {
            contestants,
            left_out,
            rounds: if quick { 1 } else { rounds },
            figures: figures.collect::<anyhow::Result<_>>()?,
            load,
            name,
        })))
    }
}

fn parse_all(words: &[String]) -> anyhow::Result<Vec<Contestant>> {
    words.iter().map(|word| Contestant::parse(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "title = 't'\nabout = 'a'\ncontestants = ['pharos', 'kafka']\n[load]\nsize = 300\nduration_s = 60\n\
                        [quick]\nduration_s = 2\n[[case]]\nname = 'one'\nfigures = ['publish_msg_s']\n\
                        quick = { topics = 3, contestants = ['kafka'] }\n[[case]]\nname = 'two'\ncontestants = ['nats']\nsize = 100\n\
                        figures = ['e2e_p99_ms']\nquick = false\n";

    #[test]
    fn a_case_has_its_own_keys_over_those_of_the_file() {
        let file = Workload::parse("x", FILE, false).expect("reads");
        let loads: Vec<_> = file
            .cases
            .iter()
            .map(|case| (case.load.size, case.load.topics))
            .collect();
        assert_eq!(loads, [(300, 1), (100, 1)]);
        let contestants: Vec<_> = file.cases.iter().map(|case| case.contestants.len()).collect();
        assert_eq!(contestants, [2, 1]);
        assert!(file.cases.iter().all(|case| case.load.duration_s == 60.0));
    }

    #[test]
    fn rounds_are_those_of_the_case_then_of_the_file() {
        let rounds = |text: &str, quick: bool| {
            let file = Workload::parse("x", text, quick).expect("reads");
            file.cases.iter().map(|case| case.rounds).collect::<Vec<_>>()
        };
        assert_eq!(rounds(FILE, false), [3, 3]);
        let of_case = FILE.replacen("name = 'one'", "name = 'one'\nrounds = 2", 1);
        assert_eq!(rounds(&of_case, false), [2, 3]);
        let of_both = format!("rounds = 1\n{of_case}");
        assert_eq!(rounds(&of_both, false), [2, 1]);
        assert_eq!(rounds(&of_both, true), [1]);
    }

    #[test]
    fn the_quick_form_is_shorter() {
        let file = Workload::parse("x", FILE, true).expect("reads");
        assert_eq!(file.cases.len(), 1);
        let load = &file.cases[0].load;
        assert_eq!((load.duration_s, load.topics, load.size), (2.0, 3, 300));
        assert_eq!(file.cases[0].contestants.len(), 1);
        let (left_out, why) = &file.cases[0].left_out[0];
        assert_eq!((left_out.word, why.as_str()), ("pharos", ONLY_LONG));
        assert_eq!(file.only_long, ["two"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (right, wrong) in [
            ("size = 300", "sise = 300"),
            ("size = 300", "size = 3"),
            ("'kafka'", "'carrier pigeon'"),
            ("'publish_msg_s'", "'happiness'"),
            ("size = 100", "topics = 0"),
            ("name = 'one'", "nome = 'one'"),
            ("name = 'one'", "name = 'one'\nrounds = 0"),
            ("name = 'one'", "name = 'one'\nrounds = 'three'"),
        ] {
            let text = FILE.replacen(right, wrong, 1);
            assert!(Workload::parse("x", &text, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_file_that_comes_with_it_can_be_read_in_both_forms() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/peers");
        let mut files = 0;
        for dir in [dir.clone(), dir.join("half-hour")] {
            for entry in std::fs::read_dir(dir).expect("is there") {
                let path = entry.expect("is there").path();
                if path.extension().is_some_and(|ending| ending == "toml") {
                    for quick in [false, true] {
                        Workload::read(&path, quick).expect("reads");
                    }
                    files += 1;
                }
            }
        }
        assert!(files > 9, "{files} files");
    }
}
