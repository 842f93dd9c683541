//! Reading a copy as it lies there: which of its groups are right, and where it is not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::format::{
    BLOCK, COPIES, DATA_AT, GROUP_HEADER_BYTES, GroupHeader, HEADER_BYTES, Header, Kind, NoHeader, Record,
    decode_records,
};
use super::state::Contents;

/// A place in a file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file.
    pub byte_offset: u64,
    /// Description of the defect.
    pub what: String,
    /// A crash may leave it like this, and nothing that was answered is touched.
    pub by_crash: bool,
}

/// A group of changes that is right.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) revision: u64,
    pub(super) records: Vec<Record>,
}

/// Content of a copy.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) file: PathBuf,
    pub(super) number: u32,
    pub(super) header: Option<Header>,
    /// A header of another release, where no other is right.
    pub(super) version: Option<u32>,
    /// The snapshot, where it is whole.
    pub(super) base: Option<Contents>,
    /// The groups that are right, by number.
    pub(super) groups: BTreeMap<u64, Group>,
    /// Offset at which the consecutive groups after the snapshot end.
    pub(super) end: u64,
    /// The last of those that do.
    pub(super) last: u64,
    pub(super) flaws: Vec<Flaw>,
}

impl Survey {
    /// Reads the bytes of copy `number`.
    pub(super) fn read(file: &Path, number: u32, bytes: &[u8]) -> Self {
        debug_assert!((1..=COPIES).contains(&number));
        let mut survey = Self {
            file: file.to_owned(),
            number,
            header: None,
            version: None,
            base: None,
            groups: BTreeMap::new(),
            end: DATA_AT,
            last: 0,
            flaws: Vec::new(),
        };
        survey.read_headers(bytes);
        if let Some(header) = survey.header.filter(|header| header.whole) {
            survey.read_snapshot(&header, bytes);
            survey.read_log(&header, bytes);
        }
        survey
    }

    /// True if it needs nothing from the other copy, as far as it goes.
    pub(super) fn is_whole(&self) -> bool {
        self.base.is_some() && self.flaws.iter().all(|flaw| flaw.by_crash)
    }

    fn flaw(&mut self, byte_offset: u64, by_crash: bool, what: impl Into<String>) {
        self.flaws.push(Flaw {
            file: self.file.clone(),
            byte_offset,
            what: what.into(),
            by_crash,
        });
    }

    fn read_headers(&mut self, bytes: &[u8]) {
        let mut best: Option<Header> = None;
        let mut bad = None;
        for at in [0, BLOCK] {
            let slot = bytes.get(at as usize..).unwrap_or_default();
            match Header::decode(slot.get(..HEADER_BYTES).unwrap_or_default()) {
                Ok(header) if header.at() != at => bad = Some(at),
                Ok(header) => best = best.filter(|best| best.writes > header.writes).or(Some(header)),
                Err(NoHeader::Version(version)) => self.version = Some(version),
                Err(NoHeader::Damaged) => bad = Some(at),
                Err(NoHeader::Empty) => {}
            }
        }
        match best {
            Some(header) if header.copy != self.number => {
                self.flaw(0, false, format!("is copy {} of its store", header.copy));
            }
            Some(header) => {
                self.header = Some(header);
                self.version = None;
                if let Some(at) = bad {
                    self.flaw(at, true, "a header is damaged or torn; there is another one");
                }
                if !header.whole {
                    self.flaw(DATA_AT, true, "the copy was being written again");
                }
            }
            None if bytes.is_empty() => self.flaw(0, false, "is empty"),
            None => self.flaw(0, false, "both headers are damaged"),
        }
    }

    /// The group at `at`, if it is one of this copy's generation.
    fn group<'a>(header: &Header, bytes: &'a [u8], at: u64) -> Option<(GroupHeader, &'a [u8])> {
        let (group, records) = GroupHeader::decode(bytes, at)?;
        let ours = (group.store_id, group.copy, group.generation)
            == (header.store_id, header.copy, header.generation);
        ours.then_some((group, records))
    }

    fn read_snapshot(&mut self, header: &Header, bytes: &[u8]) {
        let mut state = Contents::default();
        state.number = header.base;
        let mut at = DATA_AT;
        while at < header.log_at {
            let part = Self::group(header, bytes, at)
                .filter(|(group, _)| group.kind == Kind::Part && group.number == header.base);
            let records =
                part.and_then(|(group, bytes)| decode_records(header.store_id, group.records, bytes));
            let (Some((group, raw)), Some(records)) = (part, records) else {
                self.flaw(at, false, "a part of the snapshot is damaged");
                return;
            };
            state.revision = group.revision;
            records.into_iter().for_each(|record| state.apply(record));
            at += super::format::round_up((GROUP_HEADER_BYTES + raw.len()) as u64);
        }
        if at == header.log_at {
            self.base = Some(state);
        } else {
            self.flaw(at, false, "the snapshot does not end where it should");
        }
    }

    fn read_log(&mut self, header: &Header, bytes: &[u8]) {
        let mut at = header.log_at;
        let mut next = header.base + 1;
        let mut broken = false;
        self.end = at;
        self.last = header.base;
        while at < bytes.len() as u64 {
            let found = Self::group(header, bytes, at)
                .filter(|(group, _)| group.kind == Kind::Changes && group.number >= next);
            let records = found.and_then(|(group, raw)| {
                Some((
                    group,
                    raw.len(),
                    decode_records(header.store_id, group.records, raw)?,
                ))
            });
            let Some((group, raw_bytes, records)) = records else {
                at += BLOCK;
                continue;
            };
            if group.number > next || self.end != at && !broken {
                self.flaw(
                    self.end,
                    false,
                    format!("group {next} is damaged or was never written"),
                );
                broken = true;
            }
            next = group.number + 1;
            at += super::format::round_up((GROUP_HEADER_BYTES + raw_bytes) as u64);
            if !broken {
                (self.end, self.last) = (at, group.number);
            }
            let revision = group.revision;
            self.groups.insert(group.number, Group { revision, records });
        }
    }
}
