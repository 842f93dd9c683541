//! Invariants at the end of every run, when every fault is repaired and the ledger was recovered once more.

use pharos_bookkeeper::metadata::State;
use pharos_types::EntryId;

use crate::world::{World, payload};

/// The first thing that is wrong.
pub(crate) fn check(world: &World) -> Result<(), String> {
    if let Some(wrong) = &world.wrong {
        return Err(wrong.clone());
    }
    if world.still_waits() {
        return Err("a recovery or a reader waits for answers that do not come".to_owned());
    }
    let State::Closed { last, length } = world.stored.state else {
        return Err(format!("the ledger is {:?} at the end", world.stored.state));
    };
    let end = last.map_or(0, |last| last.0 + 1);
    if world.settled > end {
        return Err(format!(
            "{} entries were confirmed and synced, the ledger ends at {end}",
            world.settled
        ));
    }
    if world.seen > end {
        return Err(format!(
            "a reader was told of {} entries, the ledger ends at {end}",
            world.seen
        ));
    }
    for told in &world.ends_told {
        if *told != world.stored.state {
            return Err(format!(
                "one was told {told:?}, the ledger is {:?}",
                world.stored.state
            ));
        }
    }
    let bytes: u64 = (0..end).map(|entry| payload(entry).len() as u64).sum();
    if bytes != length {
        return Err(format!(
            "{end} entries have {bytes} bytes, the metadata says {length}"
        ));
    }
    let firsts: Vec<_> = world
        .stored
        .segments
        .iter()
        .map(|segment| segment.first)
        .collect();
    if !firsts.is_sorted_by(|a, b| a < b) || firsts.first() != Some(&EntryId(0)) {
        return Err(format!("segments begin at {firsts:?}"));
    }
    (0..end).try_for_each(|entry| is_kept(world, EntryId(entry)))
}

/// An ack quorum of the bookies that the metadata names has the entry, as it was appended.
fn is_kept(world: &World, entry: EntryId) -> Result<(), String> {
    let segment = world.stored.segment_of(entry).ok_or("no segment")?;
    let mut copies = 0;
    for position in world.stored.quorum.write_set(entry) {
        let bookie = &segment.ensemble[position];
        let bookie_of = world.bookie(bookie);
        let Some(body) = bookie_of
            .entries
            .get(&entry.0)
            .filter(|_| !bookie_of.unsynced.contains(&entry.0))
        else {
            continue;
        };
        let stored = world.digester.open(Some(entry), body);
        let stored = stored.map_err(|error| format!("{entry:?} on {bookie}: {error}"))?;
        if stored.payload != payload(entry.0) {
            return Err(format!("{entry:?} on {bookie} is another one"));
        }
        copies += 1;
    }
    if copies < world.stored.quorum.ack() {
        return Err(format!(
            "{entry:?} has {copies} copies on {:?}, ack quorum {}",
            segment.ensemble,
            world.stored.quorum.ack()
        ));
    }
    Ok(())
}
