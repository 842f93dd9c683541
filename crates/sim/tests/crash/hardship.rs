//! Resources that a machine lacks for a while without losing anything.

use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_runtime::random::Random;
use pharos_sim::tell;

/// Share of seeds with hardship: one in this many; the others run as before it was added.
const SEEDS: u64 = 3;
/// Share of those whose device refuses calls: one in this many.
const REFUSING: u64 = 3;

/// Calls that such a device refuses. A read that fails is a matter of its entry alone.
const REFUSED: [FaultOp; 9] = [
    FaultOp::Open,
    FaultOp::Create,
    FaultOp::Write,
    FaultOp::SetLen,
    FaultOp::Allocate,
    FaultOp::SyncFile,
    FaultOp::Rename,
    FaultOp::Remove,
    FaultOp::SyncDir,
];

/// Hard times of one machine. They have a chance of their own, so that the rest of a history does not hang on them.
pub(crate) struct Hardship {
    random: Random,
    is_known: bool,
    refuses: bool,
    /// In this life calls were refused.
    refused: bool,
    /// Turns that the present one still lasts; `None`: there is none.
    lasts: Option<usize>,
}

impl Hardship {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ 0x4a7d),
            is_known: seed % SEEDS == SEEDS - 1,
            refuses: seed / SEEDS % REFUSING == REFUSING - 1,
            refused: false,
            lasts: None,
        }
    }

    /// A life begins that has what it needs, until it is told otherwise.
    pub(crate) fn begin_life(&mut self, fs: &FaultFs) {
        self.end(fs);
        self.refused = false;
    }

    /// A turn of the history: one begins, goes on or ends. Returns what begins.
    pub(crate) fn turn(&mut self, fs: &FaultFs) -> Option<&'static str> {
        match &mut self.lasts {
            Some(0) => self.end(fs),
            Some(turns) => *turns -= 1,
            None if self.is_known && self.random.one_in(80) => {
                self.lasts = Some(5 + self.random.below(40));
                let what = self.begin(fs);
                tell(|| format!("hardship: {what}"));
                return Some(what);
            }
            None => {}
        }
        None
    }

    fn begin(&mut self, fs: &FaultFs) -> &'static str {
        match self.random.below(if self.refuses { 6 } else { 3 }) {
            0 => {
                fs.set_bytes_max(Some(fs.bytes() + self.random.below(8192) as u64));
                "full disks"
            }
            1 => {
                fs.set_handles_max(Some(0));
                "times without files"
            }
            2 => {
                fs.plan(Plan::one_in(FaultOp::Open, Fault::TooManyFiles, 3));
                fs.plan(Plan::one_in(FaultOp::Create, Fault::TooManyFiles, 3));
                "files that open later"
            }
            _ => {
                let op = REFUSED[self.random.below(REFUSED.len())];
                fs.plan(Plan::one_in(op, Fault::Io, 1 + self.random.below(20) as u64));
                self.refused = true;
                "calls that are refused"
            }
        }
    }

    /// There is enough of everything.
    pub(crate) fn end(&mut self, fs: &FaultFs) {
        fs.set_bytes_max(None);
        fs.set_handles_max(None);
        fs.forget_plans();
        if self.lasts.take().is_some() {
            tell(|| "hardship ends".to_owned());
        }
    }

    /// True if there is any hardship now.
    pub(crate) fn is_there(&self) -> bool {
        self.lasts.is_some()
    }

    /// True if the device refused calls in this life.
    pub(crate) fn refused_something(&self) -> bool {
        self.refused
    }

    /// From now on no call is refused for good.
    pub(crate) fn spare(&mut self) {
        self.refuses = false;
    }
}
