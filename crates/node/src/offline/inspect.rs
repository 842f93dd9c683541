//! `pharos storage inspect`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use pharos_ledger::Durability;
use pharos_runtime::clock;
use pharos_storage::offline::{
    Access, EntryView, Item, LedgerView, Offline, Overview, RunView, SegmentUse, Value as Field,
};
use pharos_types::{LedgerId, TopicName};
use serde_json::{Value, json};

use super::owners::{Owner, Owners};
use super::{Asked, EXIT_DAMAGED, print, progress, text};

/// The most ledgers that an overview in text lists; the largest.
const LEDGERS_MAX: usize = 20;

/// Shows what was asked for. Says how the process ends.
pub(super) fn run(asked: &Asked<'_>) -> anyhow::Result<u8> {
    let matches = asked.matches;
    if let Some(path) = matches.get_one::<std::path::PathBuf>("file") {
        return file(asked, path);
    }
    let offline = asked.open(Access::Look)?;
    let overview = offline.overview(&mut progress())?;
    let owners = asked.owners();
    if let Some(topic) = matches.get_one::<String>("topic") {
        return of_topic(asked, &overview, &owners, topic);
    }
    if let Some(id) = matches.get_one::<u64>("ledger") {
        return ledger(asked, &overview, &owners, LedgerId(*id));
    }
    if asked.json {
        print(&format!("{:#}\n", overview_json(&overview, &owners)))?;
    } else {
        print(&overview_text(&overview, &owners))?;
    }
    Ok(0)
}

fn file(asked: &Asked<'_>, path: &Path) -> anyhow::Result<u8> {
    let mut whole = true;
    let mut told = Ok(());
    if super::metadata::is_file_of_it(path) {
        super::metadata::decode(path, asked.matches.get_flag("records"), &mut |item| {
            whole &= item.whole;
            if told.is_ok() {
                told = print(&item_line(&item, asked.json));
            }
        })?;
        told?;
        return Ok(if whole { 0 } else { EXIT_DAMAGED });
    }
    Offline::decode_file(path, asked.matches.get_flag("records"), &mut |item| {
        whole &= item.whole;
        if told.is_ok() {
            told = print(&item_line(&item, asked.json));
        }
    })?;
    told?;
    Ok(if whole { 0 } else { EXIT_DAMAGED })
}

/// Formats one part of a file: a line of text, or of JSON.
fn item_line(item: &Item, as_json: bool) -> String {
    if as_json {
        let mut line = json!({
            "kind": item.kind, "byte_offset": item.byte_offset, "bytes": item.bytes, "whole": item.whole,
        });
        for (name, field) in &item.fields {
            line[*name] = match field {
                Field::Number(number) => json!(number),
                Field::Text(text) => json!(text),
            };
        }
        return format!("{line}\n");
    }
    let mut line = format!("{:>12}  {:>9}  {}", item.byte_offset, item.bytes, item.kind);
    for (name, field) in &item.fields {
        let _ = match field {
            Field::Number(number) => write!(line, "  {name} {number}"),
            Field::Text(text) => write!(line, "  {name} {text}"),
        };
    }
    if !item.whole {
        line.push_str("  DAMAGED");
    }
    line.push('\n');
    line
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Async => "async",
        Durability::Bypass => "bypass",
    }
}

fn state(view: &LedgerView) -> &'static str {
    match (view.end_unknown, view.sealed) {
        (true, _) => "end unknown",
        (false, Some(_)) => "sealed",
        (false, None) => "open",
    }
}

fn owner_text(owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) if owner.cursors => format!("{} (cursors)", owner.topic),
        Some(owner) => owner.topic.clone(),
        None => "-".to_owned(),
    }
}

/// Age of the checkpoint, by its file's time.
fn age(path: &Path) -> Option<u64> {
    let written = path.metadata().ok()?.modified().ok()?;
    let written = written.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    Some((clock::wall_ms() / 1000).saturating_sub(written))
}

fn overview_text(overview: &Overview<'_>, owners: &Owners) -> String {
    let mut out = String::new();
    let (generation, clean) = overview.checkpoint();
    let file = overview.checkpoint_file();
    let stop = if clean { "a clean stop" } else { "a running broker" };
    let age = age(&file).map_or(String::new(), |age| {
        format!(", {} ago", text::count(age, "second"))
    });
    let _ = writeln!(
        out,
        "store {:016x}, next ledger {}",
        overview.store_id(),
        overview.ledger_next()
    );
    let _ = writeln!(out, "checkpoint {generation} of {stop}{age}: {}", file.display());
    out.push_str(&journals_text(overview));
    out.push_str(&logs_text(overview));
    out.push_str(&largest(overview, owners));
    let totals = overview.totals();
    let _ = writeln!(
        out,
        "\n{} ({} sealed) with {}, {} to replay; {} known to be lost without reading the logs",
        text::count(totals.ledgers, "ledger"),
        totals.sealed,
        text::count(totals.entries, "entry"),
        text::size(totals.bytes),
        totals.entries_lost,
    );
    let (unnamed, bytes) = unnamed(overview, owners);
    if unnamed > 0 {
        let (unnamed, bytes) = (text::count(unnamed, "ledger"), text::size(bytes));
        let _ = writeln!(
            out,
            "{unnamed} with {bytes} that no topic names; pharos storage check lists them"
        );
    }
    for problem in &owners.problems {
        let _ = writeln!(out, "note: {problem}");
    }
    out
}

/// Number of ledgers that no topic names, and their bytes.
fn unnamed(overview: &Overview<'_>, owners: &Owners) -> (u64, u64) {
    let views = overview.ledgers();
    let unnamed = views.filter(|view| owners.unnamed(view.id.0).is_some());
    unnamed.fold((0, 0), |(count, bytes), view| (count + 1, bytes + view.bytes))
}

fn journals_text(overview: &Overview<'_>) -> String {
    let mut out = String::new();
    for journal in overview.journals() {
        let _ = writeln!(
            out,
            "\njournal {}: {}\n  covered up to segment {:08x} at {}, group {}",
            journal.number,
            journal.dir.display(),
            journal.mark_segment,
            journal.mark_offset,
            journal.mark_sequence,
        );
        let rows: Vec<Vec<String>> = journal
            .segments
            .iter()
            .map(|segment| {
                let name = segment
                    .file
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                vec![
                    format!("  {name}"),
                    text::size(segment.bytes),
                    usage(segment.usage),
                ]
            })
            .collect();
        out.push_str(&text::table(&rows));
    }
    out
}

fn logs_text(overview: &Overview<'_>) -> String {
    let logs = overview.logs();
    if logs.is_empty() {
        return String::new();
    }
    let mut rows = vec![
        ["entry log", "bytes", "live", "runs", "index"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(logs.iter().map(|log| {
        vec![
            log.file.display().to_string(),
            log.bytes.map_or_else(|| "missing".to_owned(), text::size),
            text::size(log.live_bytes),
            log.runs.to_string(),
            if log.index_whole {
                "whole"
            } else {
                "to be made again"
            }
            .to_owned(),
        ]
    }));
    format!("\n{}", text::table(&rows))
}

fn usage(usage: SegmentUse) -> String {
    match usage {
        SegmentUse::Covered => "covered by the checkpoint".to_owned(),
        SegmentUse::Replayed { from, end } => format!("replayed from {from} to {end}"),
        SegmentUse::Prepared => "never used".to_owned(),
    }
}

fn largest(overview: &Overview<'_>, owners: &Owners) -> String {
    let mut views: Vec<LedgerView> = overview.ledgers().collect();
    if views.is_empty() {
        return String::new();
    }
    views.sort_by_key(|view| (std::cmp::Reverse(view.bytes), view.id));
    let left = views.len().saturating_sub(LEDGERS_MAX);
    let mut rows = vec![ledger_head()];
    rows.extend(
        views
            .iter()
            .take(LEDGERS_MAX)
            .map(|view| ledger_row(view, owners.get(view.id.0))),
    );
    let mut out = format!("\n{}", text::table(&rows));
    if left > 0 {
        let _ = writeln!(
            out,
            "and {} that are smaller; --output json lists all",
            text::count(left as u64, "ledger")
        );
    }
    out
}

fn ledger_head() -> Vec<String> {
    let names = [
        "ledger",
        "entries",
        "bytes",
        "in journal",
        "runs",
        "durability",
        "state",
        "topic",
    ];
    names.map(str::to_owned).to_vec()
}

fn ledger_row(view: &LedgerView, owner: Option<&Owner>) -> Vec<String> {
    vec![
        view.id.to_string(),
        view.entries.to_string(),
        text::size(view.bytes),
        view.in_journal.to_string(),
        view.runs.to_string(),
        durability(view.durability).to_owned(),
        state(view).to_owned(),
        owner_text(owner),
    ]
}

fn ledger_json(view: &LedgerView, owner: Option<&Owner>) -> Value {
    json!({
        "ledger": view.id.0, "entries": view.entries, "bytes": view.bytes, "in_journal": view.in_journal,
        "runs": view.runs, "durability": durability(view.durability), "state": state(view),
        "journal": view.journal, "directory": view.dir,
        "topic": owner.map(|owner| owner.topic.clone()), "cursors": owner.is_some_and(|owner| owner.cursors),
    })
}

fn overview_json(overview: &Overview<'_>, owners: &Owners) -> Value {
    let (generation, clean) = overview.checkpoint();
    let file = overview.checkpoint_file();
    let journals = overview.journals().into_iter().map(|journal| {
        let segments = journal.segments.iter().map(|segment| {
            let (from, end) = match segment.usage {
                SegmentUse::Replayed { from, end } => (Some(from), Some(end)),
                SegmentUse::Covered | SegmentUse::Prepared => (None, None),
            };
            json!({
                "file": segment.file, "bytes": segment.bytes, "replayed_from": from, "replayed_to": end,
                "used": segment.usage != SegmentUse::Prepared,
            })
        });
        json!({
            "directory": journal.dir, "number": journal.number,
            "mark": {
                "segment": journal.mark_segment, "byte_offset": journal.mark_offset,
                "sequence": journal.mark_sequence,
            },
            "segments": segments.collect::<Vec<_>>(),
        })
    });
    let logs = overview.logs().into_iter().map(|log| {
        json!({
            "file": log.file, "directory": log.dir, "log": log.log, "bytes": log.bytes,
            "live_bytes": log.live_bytes, "runs": log.runs, "index_whole": log.index_whole,
        })
    });
    let ledgers = overview
        .ledgers()
        .map(|view| ledger_json(&view, owners.get(view.id.0)));
    json!({
        "store_id": overview.store_id(),
        "ledger_next": overview.ledger_next(),
        "checkpoint": {
            "file": file, "generation": generation, "clean": clean, "age_seconds": age(&file),
        },
        "journals": journals.collect::<Vec<_>>(),
        "logs": logs.collect::<Vec<_>>(),
        "ledgers": ledgers.collect::<Vec<_>>(),
        "entries_lost": overview.totals().entries_lost,
        "notes": owners.problems,
    })
}

fn run_json(run: &RunView) -> Value {
    json!({
        "file": run.file, "first": run.first, "count": run.count,
        "byte_offset": run.byte_offset, "byte_end": run.byte_end,
    })
}

fn run_row(run: &RunView) -> Vec<String> {
    vec![
        format!("  {} to {}", run.first, run.first + run.count - 1),
        run.file.display().to_string(),
        format!("at {} to {}", run.byte_offset, run.byte_end),
    ]
}

/// A ledger with its runs, in text.
fn ledger_text(overview: &Overview<'_>, view: &LedgerView, owner: Option<&Owner>) -> String {
    let mut out = text::table(&[ledger_head(), ledger_row(view, owner)]);
    let rows: Vec<Vec<String>> = overview.runs(view.id).iter().map(run_row).collect();
    out.push_str(&text::table(&rows));
    if view.in_journal > 0 {
        let _ = writeln!(
            out,
            "  {} in journal {}",
            text::count(view.in_journal, "entry"),
            view.journal
        );
    }
    out
}

fn of_topic(asked: &Asked<'_>, overview: &Overview<'_>, owners: &Owners, topic: &str) -> anyhow::Result<u8> {
    let topic: TopicName = topic
        .parse()
        .with_context(|| format!("{topic} is no name of a topic"))?;
    let found = owners.of_topic(&topic);
    if found.is_empty() {
        match owners.problems.first() {
            Some(problem) => bail!("{topic} has no ledgers that are known; {problem}"),
            None => bail!("{topic} has no ledgers"),
        }
    }
    let mut out = String::new();
    let mut all = Vec::new();
    for (id, owner) in found {
        match overview.ledger(LedgerId(id)) {
            Some(view) => {
                let mut one = ledger_json(&view, Some(owner));
                one["where"] = overview.runs(view.id).iter().map(run_json).collect();
                all.push(one);
                out.push_str(&ledger_text(overview, &view, Some(owner)));
            }
            None => {
                let gone = if owner.may_be_gone { "offloaded" } else { "missing" };
                all.push(json!({ "ledger": id, "state": gone, "cursors": owner.cursors }));
                let _ = writeln!(out, "ledger {id}: {gone}");
            }
        }
    }
    if asked.json {
        print(&format!(
            "{:#}\n",
            json!({ "topic": topic.to_string(), "ledgers": all })
        ))?;
    } else {
        print(&out)?;
    }
    Ok(0)
}

/// `A..B`, also `A..`, `..B` and `A`.
fn range(text: &str) -> anyhow::Result<(u64, u64)> {
    let number = |text: &str, otherwise: u64| match text {
        "" => Ok(otherwise),
        digits => digits
            .parse()
            .with_context(|| format!("--entries: {digits} is no number")),
    };
    match text.split_once("..") {
        Some((first, end)) => Ok((number(first, 0)?, number(end, u64::MAX)?)),
        None => {
            let one = number(text, 0)?;
            Ok((one, one.saturating_add(1)))
        }
    }
}

fn ledger(asked: &Asked<'_>, overview: &Overview<'_>, owners: &Owners, id: LedgerId) -> anyhow::Result<u8> {
    let Some(view) = overview.ledger(id) else {
        bail!("there is no ledger {id}");
    };
    let owner = owners.get(id.0);
    let wanted = asked
        .matches
        .get_one::<String>("entries")
        .map(|text| range(text))
        .transpose()?;
    let hex = asked.matches.get_flag("hex");
    let mut all_whole = true;
    if asked.json {
        let mut one = ledger_json(&view, owner);
        one["where"] = overview.runs(id).iter().map(run_json).collect();
        // One object per line, so that a large range needs no memory.
        print(&format!("{one}\n"))?;
    } else {
        print(&ledger_text(overview, &view, owner))?;
    }
    if let Some((first, end)) = wanted {
        let mut told = Ok(());
        overview.entries(id, first, end, &mut |entry| {
            all_whole &= entry.payload.is_some();
            if told.is_ok() {
                told = print(&entry_line(&entry, asked.json, hex));
            }
        });
        told?;
    }
    Ok(if all_whole { 0 } else { EXIT_DAMAGED })
}

fn entry_line(entry: &EntryView<'_>, as_json: bool, hex: bool) -> String {
    let digits = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    if as_json {
        let mut line = json!({
            "entry": entry.entry, "count": entry.count, "file": entry.file, "byte_offset": entry.byte_offset,
            "bytes": entry.payload.map(<[u8]>::len),
        });
        if let (true, Some(payload)) = (hex, entry.payload) {
            line["hex"] = json!(digits(payload));
        }
        return format!("{line}\n");
    }
    let (file, at) = (entry.file.display(), entry.byte_offset);
    match entry.payload {
        Some(payload) => {
            let bytes = text::count(payload.len() as u64, "byte");
            let dump = if hex { text::hex(payload) } else { String::new() };
            format!("{:>10}  {file} at {at}, {bytes}\n{dump}", entry.entry)
        }
        None => {
            let count = text::count(entry.count, "entry");
            format!("{:>10}  {file} at {at}: {count} LOST\n", entry.entry)
        }
    }
}
