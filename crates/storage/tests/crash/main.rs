//! Random work, a crash at a random point, and the question what is left.
//!
//! Each seed runs a few lives of one store on a file system that loses, tears and reorders what was not synced. The
//! process dies at a random change to the disk: while it works, while it starts, while it stops. After each start the
//! model ([`model`]) says what must be there and what may be.
//!
//! A failure prints its seed; `PHAROS_CRASH_SEED=<seed>` replays just that one. `PHAROS_CRASH_SEEDS=<count>` runs more.

#![expect(clippy::unwrap_used, reason = "a test")]

mod life;
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};

use life::{Done, Machine};

/// Seeds in a plain test run; each has several crashes.
const SEEDS: u64 = 500;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64) -> Done {
    let mut machine = Machine::new(seed);
    for _ in 0..4 {
        machine.live();
    }
    machine.final_check();
    machine.done
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    if let Some(seed) = from_env("PHAROS_CRASH_SEED") {
        run(seed);
        return;
    }
    let mut all = Done::default();
    for seed in 0..from_env("PHAROS_CRASH_SEEDS").unwrap_or(SEEDS) {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(done) => all.add(&done),
            Err(panic) => {
                eprintln!("replay with PHAROS_CRASH_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{:?}", all.reached());
    let missed: Vec<_> = all
        .reached()
        .into_iter()
        .filter(|(_, count)| *count == 0)
        .collect();
    assert!(missed.is_empty(), "the test misses what it is for: {missed:?}");
}
