//! Effect of a crash on a [`FaultFs`]: the unsynced steps that took effect, and how far.
//!
//! The styles differ on purpose. Losing everything unsynced finds missing syncs; keeping everything is the effect of
//! the death of the process alone; keeping a prefix with its last write torn is a plain power cut; keeping any blocks
//! at all is a device that reorders, and one that also tears its sectors keeps any bytes.

use super::FaultFs;
use super::plan::FaultCounts;
use super::world::{NameStep, Node, SECTOR, Step, World, part, sectors};
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    LoseAll,
    KeepAll,
    Prefix,
    AnySectors,
    AnyBytes,
}

impl FaultFs {
    /// Crashes and loses everything that was not synced.
    pub fn crash_losing_all(&self) {
        crash_with(&mut self.lock_world(), Style::LoseAll);
    }

    /// Crashes: unsynced steps are kept, torn or lost as the seed decides, old handles and locks die, and the file
    /// system is ready for the next life. Limits and planned faults are forgotten.
    pub fn crash(&self) {
        let mut world = self.lock_world();
        let world = &mut *world;
        let mut style = match world.random.below(6) {
            0 => Style::LoseAll,
            1 => Style::KeepAll,
            2 | 3 => Style::Prefix,
            _ => Style::AnySectors,
        };
        if world.hard && style == Style::AnySectors && world.faults.below(2) == 0 {
            style = Style::AnyBytes;
        }
        crash_with(world, style);
    }

    /// The process dies and starts again, the machine runs on: nothing is lost, old handles and locks die.
    pub fn restart(&self) {
        let mut world = self.lock_world();
        world.tell(|_| "restart".to_owned());
        world.next_life();
    }
}

fn crash_with(world: &mut World, style: Style) {
    world.tell(|_| format!("crash: {style:?}"));
    let steps = std::mem::take(&mut world.name_steps);
    let in_order = match style {
        Style::LoseAll => 0,
        Style::KeepAll => steps.len(),
        Style::Prefix | Style::AnySectors | Style::AnyBytes => world.random.below(steps.len() + 1),
    };
    let any = world.hard && !matches!(style, Style::LoseAll | Style::KeepAll) && world.faults.below(2) == 0;
    let kept = if any {
        any_names(&steps, &mut world.faults)
    } else {
        (0..steps.len()).map(|n| n < in_order).collect()
    };
    world.counts.names_out_of_order += u64::from(is_out_of_order(&steps, &kept));
    for (step, _) in steps.iter().zip(&kept).filter(|(_, kept)| **kept) {
        step.apply(&mut world.names_durable);
    }
    world.names = world.names_durable.clone();
    let named: Vec<u64> = world.names.values().copied().collect();
    world.nodes.retain(|id, _| named.contains(id));
    for node in world.nodes.values_mut() {
        settle(
            node,
            style,
            &mut world.random,
            &mut world.faults,
            &mut world.counts,
        );
    }
    world.next_life();
}

/// Each name for itself, but what follows a rename of a name does not survive without it: see [`super`].
fn any_names(steps: &[NameStep], random: &mut Random) -> Vec<bool> {
    let mut lost_renames: Vec<&NameStep> = Vec::new();
    let mut kept = Vec::with_capacity(steps.len());
    for step in steps {
        let follows_lost = |lost: &&NameStep| match step {
            NameStep::Link(path, _) | NameStep::Unlink(path) => lost.touches(path),
            NameStep::Rename(from, to, _) => lost.touches(from) || lost.touches(to),
        };
        let keeps = random.below(2) == 0 && !lost_renames.iter().any(follows_lost);
        if !keeps && matches!(step, NameStep::Rename(..)) {
            lost_renames.push(step);
        }
        kept.push(keeps);
    }
    kept
}

fn is_out_of_order(steps: &[NameStep], kept: &[bool]) -> bool {
    let lost = |at: usize| {
        let dir = steps.get(at).and_then(NameStep::dir);
        let mut earlier = steps.iter().zip(kept).take(at);
        earlier.any(|(step, kept)| !kept && step.dir() == dir)
    };
    kept.iter().enumerate().any(|(at, kept)| *kept && lost(at))
}

fn settle(node: &mut Node, style: Style, random: &mut Random, faults: &mut Random, counts: &mut FaultCounts) {
    let steps = std::mem::take(&mut node.steps);
    match style {
        Style::LoseAll => {}
        Style::KeepAll => steps.iter().for_each(|step| step.apply(&mut node.durable)),
        Style::Prefix => keep_prefix(&mut node.durable, &steps, random),
        Style::AnySectors => keep_any(&mut node.durable, &steps, random, sectors),
        Style::AnyBytes => keep_any(&mut node.durable, &steps, random, |at, bytes| {
            let parts = pieces(bytes, faults);
            counts.torn_sectors += u64::from(parts.iter().any(|(_, to)| (at + to) % SECTOR != 0));
            parts
        }),
    }
    node.visible = node.durable.clone();
}

/// Some first steps whole, and the one after them up to any byte.
fn keep_prefix(bytes: &mut Vec<u8>, steps: &[Step], random: &mut Random) {
    let whole = random.below(steps.len() + 1);
    for step in steps.iter().take(whole) {
        step.apply(bytes);
    }
    if let Some(Step::Write { at, data }) = steps.get(whole) {
        let torn = random.below(data.len() + 1);
        part(*at, data, 0, torn).apply(bytes);
    }
}

/// Every part of every write on its own, cut as `cut` says of its place and length.
fn keep_any(
    bytes: &mut Vec<u8>,
    steps: &[Step],
    random: &mut Random,
    mut cut: impl FnMut(usize, usize) -> Vec<(usize, usize)>,
) {
    // Growth is metadata of the file and keeps its order before the data that needs it.
    for step in steps {
        let Step::Write { at, data } = step else {
            if random.below(2) == 0 {
                step.apply(bytes);
            }
            continue;
        };
        for (from, to) in cut(*at, data.len()) {
            if random.below(2) == 0 {
                part(*at, data, from, to).apply(bytes);
            }
        }
    }
}

/// Cuts a write anywhere, into parts of up to two sectors.
fn pieces(bytes: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut from = 0;
    while from < bytes {
        let to = (from + 1 + random.below(2 * SECTOR)).min(bytes);
        parts.push((from, to));
        from = to;
    }
    parts
}
