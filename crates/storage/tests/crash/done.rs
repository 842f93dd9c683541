//! Coverage of a run.

use std::collections::BTreeMap;

use pharos_storage::Stats;

/// Actions of the engine in all lives together, to check that the test reaches the corner cases it is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Places where the machine lost power or the process died, each followed by a start and a look at everything.
    pub(crate) crashes: u64,
    /// Crashes in the middle of a change to the disk; the others are between two.
    pub(crate) within_a_change: u64,
    pub(crate) within_a_start: u64,
    pub(crate) within_a_stop: u64,
    pub(crate) several_journals: u64,
    pub(crate) bypass_seals: u64,
    pub(crate) refused_for_space: u64,
    /// Starts that failed because a call was refused, and lives that went on until one was.
    pub(crate) starts_refused: u64,
    pub(crate) ended_by_a_refusal: u64,
    /// After lies and unreadable stretches: what a check called damage, what readers were told, and stores that stopped by
    /// themselves.
    pub(crate) lies_called_damage: u64,
    pub(crate) lies_told_to_readers: u64,
    pub(crate) lies_found_at_work: u64,
    /// Number of faults, by name.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) stats: Stats,
}

impl Done {
    pub(crate) fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.within_a_change += other.within_a_change;
        self.within_a_start += other.within_a_start;
        self.within_a_stop += other.within_a_stop;
        self.several_journals += other.several_journals;
        self.bypass_seals += other.bypass_seals;
        self.refused_for_space += other.refused_for_space;
        self.starts_refused += other.starts_refused;
        self.ended_by_a_refusal += other.ended_by_a_refusal;
        self.lies_called_damage += other.lies_called_damage;
        self.lies_told_to_readers += other.lies_told_to_readers;
        self.lies_found_at_work += other.lies_found_at_work;
        for (name, count) in &other.faults {
            *self.faults.entry(name.clone()).or_default() += count;
        }
        self.add_stats(&other.stats);
    }

    pub(crate) fn add_stats(&mut self, other: &Stats) {
        let mine = &mut self.stats;
        mine.groups += other.groups;
        mine.segments_removed += other.segments_removed;
        mine.segments_reused += other.segments_reused;
        mine.reserves_used += other.reserves_used;
        mine.flushes += other.flushes;
        mine.flushed_bytes += other.flushed_bytes;
        mine.trimmed_bytes += other.trimmed_bytes;
        mine.checkpoints += other.checkpoints;
        mine.logs_removed += other.logs_removed;
        mine.bytes_moved += other.bytes_moved;
        mine.reads += other.reads;
        mine.read_cache_hits += other.read_cache_hits;
    }

    /// Returns the number of times that each corner case was reached.
    pub(crate) fn reached(&self) -> Vec<(&str, u64)> {
        let stats = &self.stats;
        let mut reached = vec![
            ("crash points", self.crashes),
            ("within a change", self.within_a_change),
            ("within a start", self.within_a_start),
            ("within a stop", self.within_a_stop),
            ("several journals", self.several_journals),
            ("seals by checkpoint", self.bypass_seals),
            ("refused for space", self.refused_for_space),
            ("segments removed", stats.segments_removed),
            ("segments reused", stats.segments_reused),
            ("reserves used", stats.reserves_used),
            ("flushes", stats.flushes),
            ("trimmed before a flush", stats.trimmed_bytes),
            ("checkpoints", stats.checkpoints),
            ("logs removed", stats.logs_removed),
            ("compaction", stats.bytes_moved),
            ("reads from logs", stats.reads.min(stats.read_cache_hits)),
            ("starts refused", self.starts_refused),
            ("lives that met a refusal", self.ended_by_a_refusal),
            ("lies called damage", self.lies_called_damage),
            ("lies told to readers", self.lies_told_to_readers),
            ("lies found at work", self.lies_found_at_work),
        ];
        reached.extend(self.faults.iter().map(|(name, count)| (name.as_str(), *count)));
        reached
    }
}
