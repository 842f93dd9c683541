//! What a machine lacks for a while, and may lack without anything being lost.

use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_sim::{Random, tell};

/// One seed in so many knows hardship; the others are what they were before there was any.
const SEEDS: u64 = 3;

/// Hard times of one machine. They have a chance of their own, so that the rest of a history does not hang on them.
pub(crate) struct Hardship {
    random: Random,
    is_known: bool,
    /// Turns that the present one still lasts; `None`: there is none.
    lasts: Option<usize>,
}

impl Hardship {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ 0x4a7d),
            is_known: seed % SEEDS == SEEDS - 1,
            lasts: None,
        }
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
        match self.random.below(3) {
            0 => {
                fs.set_bytes_max(Some(fs.bytes() + self.random.below(8192) as u64));
                "full disks"
            }
            1 => {
                fs.set_out_of_files(true);
                "times without files"
            }
            _ => {
                fs.plan(Plan::one_in(FaultOp::Open, Fault::TooManyFiles, 3));
                fs.plan(Plan::one_in(FaultOp::Create, Fault::TooManyFiles, 3));
                "files that open later"
            }
        }
    }

    /// There is enough of everything.
    pub(crate) fn end(&mut self, fs: &FaultFs) {
        fs.set_bytes_max(None);
        fs.set_out_of_files(false);
        fs.forget_plans();
        if self.lasts.take().is_some() {
            tell(|| "hardship ends".to_owned());
        }
    }

    /// Whether there is any now.
    pub(crate) fn is_there(&self) -> bool {
        self.lasts.is_some()
    }
}
