//! Checking a whole store.

use pharos_types::LedgerId;

use super::findings::{Effect, Finding, LostEntries, Report};
use super::journals::Journal;
use super::survey::{Meter, Survey};
use super::{Offline, OfflineError, OnProgress};

impl Offline {
    /// Reads everything in the store once and says what of it is not as it was written: superblocks, the checkpoint,
    /// journals with every group and record, indexes, and in the logs every record that a ledger needs.
    ///
    /// What it lists as lost is what an open store answers with an error; nothing else is. Blocks for as long as reading
    /// takes; memory grows with ledgers and runs, not with entries.
    ///
    /// # Errors
    /// [`OfflineError`] when a file cannot be opened at all. What is wrong inside files is in the report.
    pub fn check(&self, progress: OnProgress<'_>) -> Result<Report, OfflineError> {
        let mut meter = Meter::new(progress);
        if let Some(checkpoint) = self.checkpoint() {
            meter.expect(checkpoint.logs.iter().map(|log| log.end).sum());
        }
        let Some(mut survey) = Survey::make(self, &mut meter)? else {
            return Ok(Report {
                findings: self.base.findings.clone(),
                ..Report::default()
            });
        };
        survey.read_logs(self, &mut meter);
        let findings = &mut survey.findings;
        for journal in survey.journals.iter().flatten() {
            Journal::sweep_old(journal, &mut |finding| findings.push(finding));
        }
        Ok(report(self, survey))
    }
}

fn report(offline: &Offline, mut survey: Survey) -> Report {
    let unknown_ends: Vec<LedgerId> = survey
        .ledgers
        .values()
        .filter(|ledger| ledger.end_unknown)
        .map(|ledger| LedgerId(ledger.id))
        .collect();
    let known_before = offline.checkpoint().map(|checkpoint| &checkpoint.ledgers);
    for id in &unknown_ends {
        let before =
            known_before.is_some_and(|rows| rows.iter().any(|row| row.id == id.0 && row.end_unknown));
        if before {
            let what = "damage found at an earlier start may have hidden the last entries of this ledger";
            let finding = Finding::new(Effect::MayHide, &offline.base.path, 0, what);
            survey.findings.push(finding.of_ledger(id.0));
        }
    }
    let lost = merge(survey.lost);
    survey.totals.entries_lost = lost
        .iter()
        .fold(0, |sum: u64, lost| sum.saturating_add(lost.count));
    let mut findings = survey.findings.all;
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| {
            (
                std::cmp::Reverse(finding.effect),
                finding.file.clone(),
                finding.byte_offset,
            )
        };
        key(one).cmp(&key(other))
    });
    let ledgers = survey
        .ledgers
        .values()
        .map(|ledger| (LedgerId(ledger.id), ledger.end));
    Report {
        lost,
        unknown_ends,
        ledgers: ledgers.collect(),
        findings,
        findings_left_out: survey.findings.left_out,
        totals: survey.totals,
        complete: true,
    }
}

/// Neighbours in one file become one.
fn merge(mut lost: Vec<LostEntries>) -> Vec<LostEntries> {
    lost.sort_unstable_by_key(|lost| (lost.ledger, lost.first));
    let mut merged: Vec<LostEntries> = Vec::with_capacity(lost.len());
    for one in lost {
        match merged.last_mut() {
            Some(last)
                if last.ledger == one.ledger
                    && last.first + last.count == one.first
                    && (&last.file, last.what) == (&one.file, one.what) =>
            {
                last.count += one.count;
            }
            _ => merged.push(one),
        }
    }
    merged
}
