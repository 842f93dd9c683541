//! Locations of a ledger's flushed entries: runs of consecutive records in entry logs.
//!
//! A run and its points take about 40 bytes and 8 for every 128 KiB of data; nothing is kept per entry. A reader goes
//! to the nearest point and walks from record to record.

use crate::index_batch::{IndexRun, Point};

/// Consecutive entries, one record after the other in one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The id of its first entry.
    pub first: u64,
    /// Number of entries.
    pub count: u32,
    /// The log that they are in.
    pub log: u32,
    /// Offset of its first record in the log.
    pub start: u32,
    /// End of its last record.
    pub end: u32,
    points: Box<[Point]>,
}

impl Run {
    /// A run of this log, as its index has it.
    #[must_use]
    pub fn new(log: u32, found: &IndexRun) -> Self {
        Self {
            first: found.first,
            count: found.count,
            log,
            start: found.start,
            end: found.end,
            points: found.points.clone().into_boxed_slice(),
        }
    }

    /// The id after its last entry.
    #[must_use]
    pub fn end_entry(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Bytes of its records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.end - self.start)
    }

    /// The last known place at or before `entry`: that entry's id and where its record begins.
    #[must_use]
    pub fn nearest(&self, entry: u64) -> (u64, u32) {
        let delta = u32::try_from(entry.saturating_sub(self.first)).unwrap_or(u32::MAX);
        let at = self.points.partition_point(|point| point.entry <= delta);
        match at.checked_sub(1).and_then(|at| self.points.get(at)) {
            Some(point) => (
                self.first + u64::from(point.entry),
                self.start + point.byte_offset,
            ),
            None => (self.first, self.start),
        }
    }

    /// Returns the points with which the run is written to an index.
    #[cfg(test)]
    fn points(&self) -> &[Point] {
        &self.points
    }
}

/// The runs of one ledger, in rising order, without overlaps.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    runs: Vec<Run>,
}

impl Runs {
    /// Adds a run and returns the ones it replaces: of two copies of an entry the newer stays. Runs are copied as they
    /// are, so normally that is one with the same entries; an index made again from a damaged log may cut differently.
    pub fn insert(&mut self, mut run: Run) -> Vec<Run> {
        let from = self.runs.partition_point(|known| known.first < run.first);
        if let Some(before) = from.checked_sub(1).and_then(|at| self.runs.get_mut(at))
            && before.end_entry() > run.first
        {
            before.count = (run.first - before.first) as u32;
        }
        let covered = |known: &&Run| known.end_entry() <= run.end_entry();
        let count = self.runs.iter().skip(from).take_while(covered).count();
        let replaced = self.runs.splice(from..from + count, []).collect();
        if let Some(after) = self.runs.get(from)
            && after.first < run.end_entry()
        {
            run.count = (after.first - run.first) as u32;
        }
        if run.count > 0 {
            self.runs.insert(from, run);
        }
        replaced
    }

    /// The run that holds `entry`.
    #[must_use]
    pub fn find(&self, entry: u64) -> Option<&Run> {
        let at = self.runs.partition_point(|run| run.first <= entry);
        self.runs
            .get(at.checked_sub(1)?)
            .filter(|run| entry < run.end_entry())
    }

    /// All runs, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// Returns the number of entries before `end` that no run holds.
    #[must_use]
    pub fn missing_before(&self, end: u64) -> u64 {
        let held = |run: &Run| run.end_entry().min(end).saturating_sub(run.first);
        end - self.runs.iter().map(held).sum::<u64>().min(end)
    }

    /// Gives back the memory that is not needed.
    pub fn shrink(&mut self) {
        self.runs.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, count: u32, log: u32) -> Run {
        let points = (1..count)
            .map(|entry| Point {
                entry,
                byte_offset: entry * 100,
            })
            .collect();
        let found = IndexRun {
            ledger: 1,
            first,
            payload_bytes: 0,
            count,
            start: 4096,
            end: 4096 + count * 100,
            points,
        };
        Run::new(log, &found)
    }

    #[test]
    fn an_entry_is_found_by_its_nearest_point() {
        let mut runs = Runs::default();
        runs.insert(run(10, 5, 1));
        runs.insert(run(0, 10, 0));
        let found = runs.find(12).unwrap();
        assert_eq!((found.log, found.points().len()), (1, 4));
        assert_eq!(found.nearest(12), (12, 4096 + 200));
        assert_eq!(runs.find(9).unwrap().nearest(9), (9, 4096 + 900));
        assert_eq!(runs.find(15), None);
        assert_eq!(runs.missing_before(15), 0);
    }

    #[test]
    fn a_newer_copy_replaces_and_holes_are_counted() {
        let mut runs = Runs::default();
        assert_eq!(runs.insert(run(0, 4, 0)), []);
        assert_eq!(runs.insert(run(0, 4, 7)), [run(0, 4, 0)]);
        assert_eq!(runs.find(3).unwrap().log, 7);
        runs.insert(run(10, 2, 8));
        assert_eq!(runs.missing_before(12), 6);
        assert_eq!(runs.find(5), None);
    }

    #[test]
    fn runs_cut_differently_never_overlap() {
        let mut runs = Runs::default();
        for known in [run(0, 10, 0), run(10, 10, 0), run(20, 10, 0)] {
            runs.insert(known);
        }
        assert_eq!(runs.insert(run(5, 17, 1)), [run(10, 10, 0)]);
        let found: Vec<_> = runs.iter().map(|run| (run.first, run.count, run.log)).collect();
        assert_eq!(found, [(0, 5, 0), (5, 15, 1), (20, 10, 0)]);
        assert_eq!(runs.missing_before(30), 0);
    }
}
