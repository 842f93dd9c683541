//! `pharos storage check`.

use std::fmt::Write as _;

use pharos_storage::offline::{Access, Effect, Finding, LostEntries, Remedy, Report};
use serde_json::{Value, json};

use super::owners::{Owners, Unnamed};
use super::{Asked, EXIT_DAMAGED, EXIT_UNCHECKED, print, progress, text};

/// The most lines of one kind in a text report.
const LINES_MAX: usize = 200;

/// Something that a topic names and the store does not have.
#[derive(Debug)]
struct Absent {
    topic: String,
    ledger: u64,
    what: String,
}

/// Checks the store and prints what it found. Says how the process ends.
pub(super) fn run(asked: &Asked<'_>) -> anyhow::Result<u8> {
    let offline = asked.open(Access::Look)?;
    let report = offline.check(&mut progress())?;
    let has_ledgers = report.complete.then_some(!report.ledgers.is_empty());
    let metadata = asked.metadata(has_ledgers);
    let owners = asked.owners();
    let absent = if report.complete {
        absent(&report, &owners)
    } else {
        Vec::new()
    };
    let clean = report.is_clean() && absent.is_empty() && metadata.refusal().is_none();
    let code = match (report.complete, clean) {
        (false, _) => EXIT_UNCHECKED,
        (true, false) => EXIT_DAMAGED,
        (true, true) => 0,
    };
    if asked.json {
        let mut all = in_json(&report, &owners, &absent, code);
        all["metadata"] = metadata.in_json();
        print(&format!("{all:#}\n"))?;
    } else {
        print(&metadata.in_text())?;
        print(&in_text(&report, &owners, &absent, code))?;
    }
    Ok(code)
}

/// A ledger is made before a topic names it, and goes only after no topic names it any more; so what is named and is not
/// there, or has less in it than it had when it was closed, is lost.
fn absent(report: &Report, owners: &Owners) -> Vec<Absent> {
    let entries_of = |ledger: u64| {
        let at = report
            .ledgers
            .binary_search_by_key(&ledger, |(id, _)| id.0)
            .ok()?;
        report.ledgers.get(at).map(|(_, entries)| *entries)
    };
    let mut all = Vec::new();
    for (ledger, owner) in &owners.by_ledger {
        let closed = owner.row.filter(|row| row.closed_at_ms.is_some());
        let what = match (entries_of(*ledger), closed) {
            (None, _) if owner.may_be_gone => continue,
            (None, Some(row)) => format!(
                "is not in the store; it had {}",
                text::count(row.entries, "entry")
            ),
            (None, None) if owner.cursors => "with the topic's cursors is not in the store".to_owned(),
            (None, None) => "is not in the store".to_owned(),
            (Some(found), Some(row)) if found < row.entries => {
                format!(
                    "has {} where it had {} when it was closed",
                    text::count(found, "entry"),
                    row.entries
                )
            }
            (Some(_), _) => continue,
        };
        all.push(Absent {
            topic: owner.topic.clone(),
            ledger: *ledger,
            what,
        });
    }
    all
}

fn verdict(code: u8) -> &'static str {
    match code {
        0 => "nothing is lost",
        EXIT_DAMAGED => "data is damaged or missing",
        _ => "the store cannot be checked",
    }
}

/// The topic that a ledger is of, for a line.
fn whose(owners: &Owners, ledger: u64) -> String {
    match owners.get(ledger) {
        Some(owner) if owner.cursors => format!("cursors of {}: ", owner.topic),
        Some(owner) => format!("{}: ", owner.topic),
        None if owners.known => "no topic: ".to_owned(),
        None => String::new(),
    }
}

fn in_text(report: &Report, owners: &Owners, absent: &[Absent], code: u8) -> String {
    let mut out = String::new();
    for problem in &owners.problems {
        let _ = writeln!(out, "note           {problem}");
    }
    let blocks = |finding: &&Finding| finding.effect == Effect::DoesNotOpen;
    limited(
        &mut out,
        report
            .findings
            .iter()
            .filter(blocks)
            .map(|finding| line("does not open", owners, finding)),
    );
    limited(&mut out, report.lost.iter().map(|lost| lost_line(owners, lost)));
    limited(
        &mut out,
        absent.iter().map(|one| {
            format!(
                "lost           {}: ledger {} {}\n",
                one.topic, one.ledger, one.what
            )
        }),
    );
    for effect in [Effect::MayHide, Effect::Harmless] {
        let word = if effect == Effect::MayHide {
            "may hide"
        } else {
            "harmless"
        };
        let these = report.findings.iter().filter(|finding| finding.effect == effect);
        limited(&mut out, these.map(|finding| line(word, owners, finding)));
    }
    limited(
        &mut out,
        report.unknown_ends.iter().map(|id| {
            let whose = whose(owners, id.0);
            format!("unknown end    {whose}ledger {id}: its last entries may be hidden; it is not written to again \
                     before that is decided (storage.salvage)\n")
        }),
    );
    let unnamed = report.ledgers.iter();
    let unnamed = unnamed.filter_map(|(id, entries)| Some((id, entries, owners.unnamed(id.0)?)));
    limited(
        &mut out,
        unnamed.map(|(id, entries, why)| {
            let entries = text::count(*entries, "entry");
            format!("unnamed        ledger {id} with {entries}: {}\n", why.word())
        }),
    );
    if report.findings_left_out > 0 {
        let _ = writeln!(
            out,
            "and {} that are left out",
            text::count(report.findings_left_out, "finding")
        );
    }
    if report.complete {
        out.push_str(&summary(report));
    }
    let _ = writeln!(out, "{}", verdict(code));
    out
}

fn limited(out: &mut String, lines: impl Iterator<Item = String>) {
    let mut left_out = 0;
    for (number, line) in lines.enumerate() {
        if number < LINES_MAX {
            out.push_str(&line);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        let _ = writeln!(out, "               and {left_out} more; --output json lists all");
    }
}

fn summary(report: &Report) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "read {}: {} with {}; {} ({} sealed) with {}",
        text::size(totals.bytes),
        text::count(totals.segments, "journal segment"),
        text::count(totals.records, "record"),
        text::count(totals.ledgers, "ledger"),
        totals.sealed,
        text::count(totals.entries, "entry"),
    );
    let _ = writeln!(
        text,
        ", {} in {}; {} lost",
        text::count(totals.runs, "run"),
        text::count(totals.logs, "entry log"),
        text::count(totals.entries_lost, "entry"),
    );
    text
}

fn lost_line(owners: &Owners, lost: &LostEntries) -> String {
    let (ledger, first) = (lost.ledger.0, lost.first);
    let entries = if lost.count == 1 {
        format!("entry {ledger}:{first}")
    } else {
        format!(
            "entries {ledger}:{first} to {ledger}:{} ({})",
            first + lost.count - 1,
            lost.count
        )
    };
    let whose = whose(owners, ledger);
    let file = lost.file.display();
    format!(
        "lost           {whose}{entries}: {}; {file} at {}\n",
        lost.what, lost.byte_offset
    )
}

fn line(word: &str, owners: &Owners, finding: &Finding) -> String {
    let mut about = String::new();
    if let Some(ledger) = finding.ledger {
        about = whose(owners, ledger.0);
        match finding.entry {
            Some(entry) => {
                let _ = write!(about, "entry {ledger}:{entry}: ");
            }
            None => {
                let _ = write!(about, "ledger {ledger}: ");
            }
        }
    }
    let bytes = match finding.bytes {
        0 => String::new(),
        bytes => format!(", {}", text::count(bytes, "byte")),
    };
    let remedy = match finding.remedy {
        Remedy::None => "",
        Remedy::Start => "; the next start puts it right",
        Remedy::Repair => "; pharos storage repair puts it right",
        Remedy::Salvage => "; see storage.salvage",
    };
    let (file, at) = (finding.file.display(), finding.byte_offset);
    format!(
        "{word:13}  {about}{file} at {at}{bytes}: {}{remedy}\n",
        finding.what
    )
}

fn in_json(report: &Report, owners: &Owners, absent: &[Absent], code: u8) -> Value {
    let topic = |ledger: u64| owners.get(ledger).map(|owner| owner.topic.clone());
    let cursors = |ledger: u64| owners.get(ledger).is_some_and(|owner| owner.cursors);
    let lost = report.lost.iter().map(|lost| {
        json!({
            "topic": topic(lost.ledger.0), "cursors": cursors(lost.ledger.0), "ledger": lost.ledger.0,
            "first": lost.first, "count": lost.count, "file": lost.file, "byte_offset": lost.byte_offset,
            "what": lost.what,
        })
    });
    let findings = report.findings.iter().map(|finding| {
        json!({
            "effect": match finding.effect {
                Effect::Harmless => "harmless",
                Effect::MayHide => "may hide",
                Effect::DoesNotOpen => "does not open",
            },
            "remedy": match finding.remedy {
                Remedy::None => "none",
                Remedy::Start => "start",
                Remedy::Repair => "repair",
                Remedy::Salvage => "salvage",
            },
            "file": finding.file, "byte_offset": finding.byte_offset, "bytes": finding.bytes,
            "ledger": finding.ledger.map(|ledger| ledger.0), "entry": finding.entry,
            "topic": finding.ledger.and_then(|ledger| topic(ledger.0)), "what": finding.what,
        })
    });
    let unknown_ends = report.unknown_ends.iter();
    let unknown_ends = unknown_ends.map(|id| json!({ "topic": topic(id.0), "ledger": id.0 }));
    let absent = absent.iter();
    let absent = absent.map(|one| json!({ "topic": one.topic, "ledger": one.ledger, "what": one.what }));
    let unnamed = report.ledgers.iter().filter_map(|(id, entries)| {
        let why = owners.unnamed(id.0)?;
        Some(json!({ "ledger": id.0, "entries": entries, "given_up": why == Unnamed::GivenUp }))
    });
    let totals = &report.totals;
    json!({
        "unnamed": unnamed.collect::<Vec<_>>(),
        "verdict": verdict(code),
        "complete": report.complete,
        "lost": lost.collect::<Vec<_>>(),
        "absent": absent.collect::<Vec<_>>(),
        "unknown_ends": unknown_ends.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "findings_left_out": report.findings_left_out,
        "notes": owners.problems,
        "totals": {
            "bytes": totals.bytes, "segments": totals.segments, "groups": totals.groups, "records": totals.records,
            "logs": totals.logs, "runs": totals.runs, "ledgers": totals.ledgers, "sealed": totals.sealed,
            "entries": totals.entries, "entries_lost": totals.entries_lost,
        },
    })
}
