//! What a crash does to a [`FaultFs`]: which unsynced steps took effect, and how far.
//!
//! The styles differ on purpose. Losing everything unsynced finds missing syncs; keeping everything is what the death
//! of the process alone does; keeping a prefix with its last write torn is a plain power cut; keeping any blocks at
//! all is a device that reorders.

use super::fault::{FaultFs, Node, Random, Step, apply, apply_name};

/// What a device writes as one, in bytes.
const SECTOR: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Style {
    LoseAll,
    KeepAll,
    Prefix,
    AnySectors,
}

impl FaultFs {
    /// Crashes: unsynced steps are kept, torn or lost as the seed decides, old handles and locks die, and the file
    /// system is ready for the next life. Limits and planned faults are forgotten.
    pub fn crash(&self) {
        let mut world = self.lock_world();
        let world = &mut *world;
        let style = match world.random.below(6) {
            0 => Style::LoseAll,
            1 => Style::KeepAll,
            2 | 3 => Style::Prefix,
            _ => Style::AnySectors,
        };
        world.tell(|_| format!("crash: {style:?}"));
        let steps = std::mem::take(&mut world.name_steps);
        // A journalled file system keeps the order of name changes, so what survives is a prefix.
        let kept = match style {
            Style::LoseAll => 0,
            Style::KeepAll => steps.len(),
            Style::Prefix | Style::AnySectors => world.random.below(steps.len() + 1),
        };
        for step in steps.iter().take(kept) {
            apply_name(&mut world.names_durable, step);
        }
        world.names = world.names_durable.clone();
        let named: Vec<u64> = world.names.values().copied().collect();
        world.nodes.retain(|id, _| named.contains(id));
        for node in world.nodes.values_mut() {
            settle(node, style, &mut world.random);
        }
        world.locks.clear();
        world.life += 1;
        self.revive(world);
    }

    /// The process dies and starts again, the machine runs on: nothing is lost, old handles and locks die.
    pub fn restart(&self) {
        let mut world = self.lock_world();
        world.tell(|_| "restart".to_owned());
        world.locks.clear();
        world.life += 1;
        self.revive(&mut world);
    }
}

fn settle(node: &mut Node, style: Style, random: &mut Random) {
    let steps = std::mem::take(&mut node.steps);
    match style {
        Style::LoseAll => {}
        Style::KeepAll => steps.iter().for_each(|step| apply(&mut node.durable, step)),
        Style::Prefix => keep_prefix(&mut node.durable, &steps, random),
        Style::AnySectors => keep_any(&mut node.durable, &steps, random),
    }
    node.visible = node.durable.clone();
}

/// Some first steps whole, and the one after them up to any byte.
fn keep_prefix(bytes: &mut Vec<u8>, steps: &[Step], random: &mut Random) {
    let whole = random.below(steps.len() + 1);
    for step in steps.iter().take(whole) {
        apply(bytes, step);
    }
    if let Some(Step::Write { at, data }) = steps.get(whole) {
        let torn = random.below(data.len() + 1);
        let data = data.iter().take(torn).copied().collect();
        apply(bytes, &Step::Write { at: *at, data });
    }
}

/// Every sector of every write on its own; of one sector at most the last one written is torn.
fn keep_any(bytes: &mut Vec<u8>, steps: &[Step], random: &mut Random) {
    // Growth is metadata of the file and keeps its order before the data that needs it.
    for step in steps {
        let Step::Write { at, data } = step else {
            if random.below(2) == 0 {
                apply(bytes, step);
            }
            continue;
        };
        let mut from = 0;
        while from < data.len() {
            let to = (((at + from) / SECTOR + 1) * SECTOR - at).min(data.len());
            if random.below(2) == 0 {
                let piece = data.get(from..to).unwrap_or_default().to_vec();
                apply(
                    bytes,
                    &Step::Write {
                        at: at + from,
                        data: piece,
                    },
                );
            }
            from = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fs::OpenHow;

    const DIR: &str = "/d";

    fn after_crash(seed: u64, sync: bool, sync_dir: bool) -> Option<Vec<u8>> {
        let fs = FaultFs::new(seed);
        let path = Path::new(DIR).join("f");
        let file = fs.mount().open(&path, OpenHow::CREATE).unwrap();
        file.write_all_at(&[7; 2000], 0).unwrap();
        if sync {
            file.sync_data().unwrap();
        }
        if sync_dir {
            fs.mount().sync_dir(Path::new(DIR)).unwrap();
        }
        fs.crash();
        assert!(file.read_at(&mut [0], 0).is_err(), "old handles are dead");
        fs.bytes_of(&path)
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_may_not() {
        let (mut lost_name, mut lost_bytes, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            assert_eq!(after_crash(seed, true, true), Some(vec![7; 2000]), "seed {seed}");
            lost_name += u32::from(after_crash(seed, true, false).is_none());
            let bytes = after_crash(seed, false, true).unwrap();
            lost_bytes += u32::from(bytes.is_empty());
            torn += u32::from(!bytes.is_empty() && bytes != [7; 2000]);
        }
        assert!(
            lost_name > 20 && lost_bytes > 20 && torn > 20,
            "{lost_name} {lost_bytes} {torn}"
        );
    }

    #[test]
    fn the_same_seed_crashes_the_same_way() {
        for seed in 0..50 {
            assert_eq!(after_crash(seed, false, false), after_crash(seed, false, false));
        }
    }

    #[test]
    fn it_dies_when_told_and_fills_up_and_fails_a_sync() {
        let fs = FaultFs::new(1);
        let path = Path::new(DIR).join("f");
        let file = fs.mount().open(&path, OpenHow::CREATE).unwrap();
        fs.set_bytes_max(Some(100));
        let full = file.write_all_at(&[1; 101], 0).unwrap_err();
        assert!(crate::fs::is_no_space(&full));
        file.write_all_at(&[1; 100], 0).unwrap();
        fs.fail_sync_in(1);
        file.sync_data().unwrap();
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        fs.die_in(1);
        file.write_all_at(&[2], 0).unwrap();
        assert!(file.write_all_at(&[3], 0).is_err());
        assert!(fs.is_dead() && file.sync_data().is_err());
    }
}
