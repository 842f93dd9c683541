//! Further faults during a machine's life: calls that fail, files that run out, reads that fail, devices that lie.
//!
//! They are drawn from a generator of their own, so that a seed leads through the same history as before they were
//! added.

use std::collections::BTreeMap;

use pharos_runtime::fs::{Fault, FaultCounts, FaultFs, FaultOp, Plan};
use pharos_runtime::random::Random;

/// Calls that are refused now and then. Reads are not among them: see [`Trouble::reads`].
const REFUSED: [FaultOp; 11] = [
    FaultOp::Open,
    FaultOp::Create,
    FaultOp::Write,
    FaultOp::SetLen,
    FaultOp::Allocate,
    FaultOp::SyncFile,
    FaultOp::Rename,
    FaultOp::Remove,
    FaultOp::List,
    FaultOp::SyncDir,
    FaultOp::CreateDir,
];
const ERRORS: [Fault; 3] = [Fault::Io, Fault::NoSpace, Fault::TooManyFiles];

/// The lies that a device tells.
pub(crate) const LIES: [(FaultOp, Fault); 3] = [
    (FaultOp::Write, Fault::Lost),
    (FaultOp::Write, Fault::Misdirected),
    (FaultOp::SyncFile, Fault::Lost),
];

/// Plans what goes wrong.
pub(crate) struct Trouble {
    random: Random,
}

impl Trouble {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ 0x0007_0b1e),
        }
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Before a start: in every third life some calls fail, once or now and then.
    pub(crate) fn start(&mut self, fs: &FaultFs) {
        let random = &mut self.random;
        if !random.one_in(3) {
            return;
        }
        for _ in 0..=random.below(2) {
            let op = REFUSED[random.below(REFUSED.len())];
            let fault = ERRORS[random.below(ERRORS.len())];
            fs.plan(if random.one_in(2) {
                Plan::next(op, fault, random.below(30) as u64)
            } else {
                Plan::one_in(op, fault, 5 + random.below(100) as u64)
            });
        }
        if random.one_in(8) {
            fs.set_handles_max(Some(3 + random.below(40)));
        }
    }

    /// After a start: in every fifth life some reads fail.
    pub(crate) fn reads(&mut self, fs: &FaultFs) {
        if self.random.one_in(5) {
            fs.plan(Plan::one_in(
                FaultOp::Read,
                Fault::Io,
                1 + self.random.below(20) as u64,
            ));
        }
    }

    /// A device that lies, once or more often.
    pub(crate) fn lie(&mut self, fs: &FaultFs) {
        let (op, fault) = LIES[self.random.below(LIES.len())];
        let calls = self.random.below(60) as u64;
        fs.plan(if self.random.one_in(4) {
            Plan::one_in(op, fault, 5 + calls)
        } else {
            Plan::next(op, fault, calls)
        });
    }

    /// Somewhere in some file a stretch cannot be read.
    pub(crate) fn bad_range(&mut self, fs: &FaultFs) -> bool {
        let paths = fs.paths();
        let Some(path) = paths.get(self.random.below(paths.len().max(1))) else {
            return false;
        };
        let bytes = fs.bytes_of(path).unwrap_or_default().len();
        let from = self.random.below(bytes.max(1)) / 512 * 512;
        fs.fail_range(path, from as u64, from as u64 + 512)
    }
}

/// Calls that failed so far, for whatever reason.
pub(crate) fn failed(counts: &FaultCounts) -> u64 {
    let refused = counts
        .hits
        .iter()
        .filter(|((_, fault), _)| ERRORS.contains(fault));
    refused.map(|(_, count)| count).sum::<u64>() + counts.refused_handles + counts.refused_reads
}

/// Adds up what went wrong, by name.
pub(crate) fn add(all: &mut BTreeMap<String, u64>, counts: &FaultCounts) {
    // So that one which never happens is seen.
    for op in REFUSED {
        for fault in ERRORS {
            all.entry(format!("{op:?} {fault:?}")).or_default();
        }
    }
    for (op, fault) in LIES.iter().chain([&(FaultOp::Read, Fault::Io)]) {
        all.entry(format!("{op:?} {fault:?}")).or_default();
    }
    for ((op, fault), count) in &counts.hits {
        *all.entry(format!("{op:?} {fault:?}")).or_default() += count;
    }
    for (name, count) in [
        ("partial writes", counts.partial_writes),
        ("syncs that lost something", counts.lossy_syncs),
        ("refused for open files", counts.refused_handles),
        ("reads of bad ranges", counts.refused_reads),
        ("names out of order", counts.names_out_of_order),
        ("torn sectors", counts.torn_sectors),
    ] {
        *all.entry(name.to_owned()).or_default() += count;
    }
}
