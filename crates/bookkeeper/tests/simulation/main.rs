//! The client's algorithms under a simulated network, bookies and metadata store, from one seed: messages are lost, late, doubled
//! and out of order, bookies crash and are cut off, a writer is recovered by several at once while it writes.
//!
//! What must hold, whatever happens: see [`check`]. A failure names its seed: `SIMULATION_SEED=4711 cargo test -p pharos-bookkeeper
//! --test simulation one_seed -- --nocapture` plays it again with a trace. `SIMULATION_SEEDS=1000000` plays more of them.

mod check;
mod world;

use pharos_runtime::random::Random;

use world::{Mutation, World};

/// Seeds of an ordinary run.
const SEEDS: u64 = 4_000;
/// Seeds within which a broken client must be found out.
const SEEDS_OF_A_MUTATION: u64 = 60_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the simulation. Returns the error, if there was one.
fn play(seed: u64, mutation: Option<Mutation>) -> (Result<(), String>, World) {
    let mut world = World::new(Random::new(seed), mutation);
    world.run();
    (check::check(&world), world)
}

#[test]
fn no_seed_loses_a_confirmed_entry_or_tells_two_ends() {
    let (mut confirmed, mut changes, mut recovered, mut seen) = (0, 0, 0, 0);
    for seed in 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS) {
        let (outcome, world) = play(seed, None);
        if let Err(wrong) = outcome {
            panic!("seed {seed}: {wrong}");
        }
        confirmed += world.confirmed;
        changes += world.ensemble_changes();
        recovered += u64::from(!world.was_closed_by_writer());
        seen += world.seen;
    }
    // The runs are of use only when things happen in them.
    assert!(confirmed > SEEDS * 4, "{confirmed} entries were confirmed");
    assert!(changes > SEEDS / 10, "{changes} ensembles were changed");
    assert!(recovered > SEEDS / 2, "{recovered} ledgers were recovered");
    assert!(seen > SEEDS, "readers saw {seen} entries");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let (one, two) = (play(seed, None).1, play(seed, None).1);
        assert_eq!(one.trace, two.trace, "seed {seed}");
        assert!(one.trace.len() > 50);
    }
}

#[test]
fn one_seed() {
    let Some(seed) = number("SIMULATION_SEED") else {
        return;
    };
    let (outcome, world) = play(seed, None);
    for line in &world.trace {
        eprintln!("{line}");
    }
    outcome.unwrap();
}

/// Each way of being wrong is found out; the first of them is apache/bookkeeper#2614, the second #2615, both found there with TLA+.
#[test]
fn broken_clients_are_found_out() {
    for mutation in Mutation::ALL {
        let caught = (0..SEEDS_OF_A_MUTATION).find_map(|seed| {
            let outcome = play(seed, Some(mutation)).0;
            outcome.err().map(|wrong| (seed, wrong))
        });
        match caught {
            Some((seed, wrong)) => eprintln!("{mutation:?}: seed {seed}: {wrong}"),
            None => panic!("{mutation:?} was not found out by {SEEDS_OF_A_MUTATION} seeds"),
        }
    }
}
