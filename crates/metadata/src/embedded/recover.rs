//! Recovery at start from the two copies. The cases are drawn in `docs/formats/metadata.md`.

use std::path::{Path, PathBuf};

use pharos_runtime::fs::{Fs, OpenHow};

use super::copy::FoundCopy;
use super::format::{COPIES, FORMAT_VERSION, Header};
use super::state::Contents;
use super::survey::{Flaw, Survey};
use crate::{Fault, OpenError};

/// The name of a copy.
pub(super) fn copy_name(number: u32) -> String {
    format!("copy-{number}")
}

/// Combined state of the two copies.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) state: Contents,
    pub(super) store_id: u64,
    /// The highest of both.
    pub(super) generation: u64,
    pub(super) epoch: u64,
    pub(super) ledgers_from: u64,
    /// Copies that exist.
    pub(super) copies: Vec<FoundCopy>,
    /// Defects that the other copy repairs.
    pub(super) flaws: Vec<Flaw>,
}

/// Reads both copies. `None`: neither is there. Changes nothing.
pub(super) fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Recovered>, OpenError> {
    let names = match fs.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("list", dir, &error)),
    };
    let mut surveys = Vec::new();
    let mut missing = Vec::new();
    for number in 1..=COPIES {
        let path = dir.join(copy_name(number));
        if names.contains(&copy_name(number)) {
            let bytes = read_file(fs, &path)?;
            surveys.push(Survey::read(&path, number, &bytes));
        } else {
            missing.push(path);
        }
    }
    if surveys.is_empty() {
        return Ok(None);
    }
    merge(surveys, missing).map(Some)
}

fn read_file(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, OpenError> {
    let io = |error| OpenError::io("read", path, &error);
    let file = fs.open(path, OpenHow::READ).map_err(io)?;
    let bytes = usize::try_from(file.len().map_err(io)?)
        .map_err(|_| OpenError::Fault(Fault::new("read metadata store", "larger than memory")))?;
    let mut content = vec![0; bytes];
    let count = file.read_at(&mut content, 0).map_err(io)?;
    content.truncate(count);
    Ok(content)
}

fn merge(mut surveys: Vec<Survey>, missing: Vec<PathBuf>) -> Result<Recovered, OpenError> {
    let headers: Vec<Header> = surveys.iter().filter_map(|survey| survey.header).collect();
    refuse_other_stores(&surveys, &headers)?;
    let Some(first) = headers.first() else {
        return Err(first_flaw(&surveys));
    };
    let most = |field: fn(&Header) -> u64| headers.iter().map(field).max().unwrap_or(0);
    let known = most(|header| header.known);
    let state = replay(&surveys, known)?;
    let mut flaws = Vec::new();
    for path in missing {
        flaws.push(Flaw {
            file: path,
            byte_offset: 0,
            what: "is missing".to_owned(),
            by_crash: state.number == 0,
        });
    }
    let mut copies = Vec::new();
    for survey in &mut surveys {
        note_short(survey, state.number);
        copies.push(FoundCopy {
            number: survey.number,
            header: survey.header,
            end: (survey.is_whole() && survey.last == state.number).then_some(survey.end),
        });
        flaws.append(&mut survey.flaws);
    }
    Ok(Recovered {
        state,
        store_id: first.store_id,
        generation: most(|header| header.generation),
        epoch: most(|header| header.epoch),
        ledgers_from: most(|header| header.ledgers_from),
        copies,
        flaws,
    })
}

fn refuse_other_stores(surveys: &[Survey], headers: &[Header]) -> Result<(), OpenError> {
    for survey in surveys {
        if let Some(version) = survey.version {
            return Err(OpenError::UnknownFormat {
                path: survey.file.display().to_string(),
                found: u64::from(version),
                known: u64::from(FORMAT_VERSION),
            });
        }
    }
    if let [one, two] = headers
        && one.store_id != two.store_id
        && let Some(survey) = surveys.last()
    {
        return Err(OpenError::Damaged {
            file: survey.file.clone(),
            byte_offset: 16,
            what: format!(
                "belongs to store {:016x}, the other copy to {:016x}",
                two.store_id, one.store_id
            ),
        });
    }
    Ok(())
}

/// The error for a store of which nothing can be used.
fn first_flaw(surveys: &[Survey]) -> OpenError {
    let flaw = surveys.iter().flat_map(|survey| &survey.flaws);
    match flaw.min_by_key(|flaw| flaw.by_crash) {
        Some(flaw) => damaged(flaw, "and the other copy does not help"),
        None => OpenError::Fault(Fault::new("read metadata store", "no copy of it can be read")),
    }
}

fn damaged(flaw: &Flaw, more: &str) -> OpenError {
    OpenError::Damaged {
        file: flaw.file.clone(),
        byte_offset: flaw.byte_offset,
        what: format!("{}, {more}", flaw.what),
    }
}

/// The newest snapshot and the groups after it, from whichever copy has them.
fn replay(surveys: &[Survey], known: u64) -> Result<Contents, OpenError> {
    let bases = surveys.iter().filter_map(|survey| survey.base.as_ref());
    let Some(base) = bases.max_by_key(|base| base.number) else {
        return Err(first_flaw(surveys));
    };
    let mut state = base.clone();
    loop {
        let next = state.number + 1;
        let Some(group) = surveys.iter().find_map(|survey| survey.groups.get(&next)) else {
            break;
        };
        for record in &group.records {
            state.apply(record.clone());
        }
        (state.number, state.revision) = (next, group.revision);
    }
    let seen = surveys
        .iter()
        .filter_map(|survey| survey.groups.keys().next_back());
    let beyond = seen.copied().max().unwrap_or(0).max(known);
    if beyond <= state.number {
        return Ok(state);
    }
    let next = state.number + 1;
    // The copy that came furthest says where the missing one should be.
    let place = surveys.iter().filter(|survey| survey.header.is_some());
    let place = place.max_by_key(|survey| (survey.last, survey.end));
    Err(OpenError::Damaged {
        file: place.map(|survey| survey.file.clone()).unwrap_or_default(),
        byte_offset: place.map_or(0, |survey| survey.end),
        what: format!("group {next} is in neither copy, and there was a group {beyond}"),
    })
}

/// A copy that ends early. The second may be one group behind the first, which is written and synced before it.
fn note_short(survey: &mut Survey, last: u64) {
    let Some(header) = survey.header.filter(|header| header.whole) else {
        return;
    };
    if survey.last == last || !survey.is_whole() {
        return;
    }
    let by_crash = header.copy == COPIES && survey.last + 1 == last;
    let what = format!(
        "ends with group {}, the other copy with {last}: a write that was lost, or a file that was put back",
        survey.last
    );
    survey.flaws.push(Flaw {
        file: survey.file.clone(),
        byte_offset: survey.end,
        what: if by_crash {
            "the last group is not in this copy yet".to_owned()
        } else {
            what
        },
        by_crash,
    });
}
