//! Pulsar's names of our settings, as its files and containers write them.
//!
//! `managedLedgerMinLedgerRolloverTimeMinutes = 5` means `ledger.min_rollover_time = "5m"`: a name carries its unit, so a bare
//! number gets it; -1 stands for "without limit" where that is a value. A value that has a unit of its own is taken as
//! it is. Names that stand for several of our settings together (addresses) are no aliases.

use super::table::{SETTINGS, Setting};

/// Environment variables with this prefix carry Pulsar's names, as its container images have them.
pub(super) const ENVIRONMENT_PREFIX: &str = "PULSAR_PREFIX_";

/// Times of Pulsar whose names do not say their unit.
const UNSAID_TIMES: [(&str, &str); 3] = [
    ("flushInterval", "ms"),
    ("minorCompactionInterval", "s"),
    ("majorCompactionInterval", "s"),
];

/// The setting that Pulsar calls by this name.
pub(crate) fn setting_of(name: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.pulsar_key == name && !name.is_empty())
}

/// A value of Pulsar as our setting reads it.
pub(crate) fn translate(setting: &Setting, text: &str) -> String {
    let text = text.trim();
    match (setting.kind, text) {
        ("size or unlimited" | "duration or unlimited", "-1") => "unlimited".to_owned(),
        ("sync, async or bypass", "true") => "sync".to_owned(),
        ("sync, async or bypass", "false") => "async".to_owned(),
        // Pulsar takes connections with a header and without one.
        ("off, optional or required", "true") => "optional".to_owned(),
        ("off, optional or required", "false") => "off".to_owned(),
        // Where Pulsar has no value, it has a time that it works out.
        ("duration", "") => "0".to_owned(),
        _ if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{text}{}", unit_of(setting))
        }
        _ => text.to_owned(),
    }
}

/// The unit that a number has under Pulsar's name; empty for plain numbers.
fn unit_of(setting: &Setting) -> &'static str {
    let ends = |ends: &[&str]| ends.iter().any(|end| setting.pulsar_key.ends_with(end));
    match setting.kind {
        "duration" | "duration or unlimited" => {
            if let Some((_, unit)) = UNSAID_TIMES.iter().find(|(name, _)| *name == setting.pulsar_key) {
                unit
            } else if ends(&["Millis", "Mills", "Ms", "MSec"]) {
                "ms"
            } else if ends(&["Minutes"]) {
                "m"
            } else {
                "s"
            }
        }
        "size" | "size or unlimited" => {
            if ends(&["MB", "Mb", "Mbytes"]) {
                "MiB"
            } else if ends(&["KB"]) {
                "KiB"
            } else {
                "B"
            }
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    /// What a value of Pulsar becomes.
    fn read(name: &str, text: &str) -> String {
        let setting = setting_of(name).unwrap();
        let mut settings = Settings::default();
        (setting.set)(&mut settings, &translate(setting, text)).unwrap();
        (setting.get)(&settings)
    }

    #[test]
    fn numbers_have_the_unit_of_their_name() {
        for (name, text, value) in [
            ("managedLedgerMinLedgerRolloverTimeMinutes", "5", "5m"),
            ("managedLedgerMaxSizePerLedgerMbytes", "2048", "2GiB"),
            ("managedLedgerMaxEntriesPerLedger", "10", "10"),
            ("delayedDeliveryTickTimeMillis", "1500", "1500ms"),
            ("retentionCheckIntervalInSeconds", "120", "2m"),
            ("defaultRetentionSizeInMB", "-1", "unlimited"),
            ("defaultRetentionTimeInMinutes", "10", "10m"),
            ("backlogQuotaDefaultLimitBytes", "-1", "unlimited"),
            ("backlogQuotaDefaultLimitSecond", "90", "90s"),
            (
                "backlogQuotaDefaultRetentionPolicy",
                "producer_exception",
                "producer_exception",
            ),
            ("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "", "0s"),
            ("journalSyncData", "false", "async"),
            ("journalMaxGroupWaitMSec", "1", "1ms"),
            ("flushInterval", "60000", "1m"),
            ("minorCompactionInterval", "3600", "1h"),
            ("minorCompactionThreshold", "0.2", "0.2"),
            ("dbStorage_writeCacheMaxSizeMb", "512", "512MiB"),
            ("logSizeLimit", "1073741824", "1GiB"),
            ("tlsCertRefreshCheckDurationSec", "60", "1m"),
            ("tlsProtocols", "TLSv1.3, TLSv1.2", "TLSv1.3,TLSv1.2"),
            ("tlsTrustCertsFilePath", "", ""),
            ("haProxyProtocolEnabled", "true", "optional"),
            ("webServiceHaProxyProtocolEnabled", "false", "off"),
            ("journalDirectories", "/a,/b", "/a,/b"),
            ("maxMessageSize", "5242880", "5MiB"),
            ("nettyMaxFrameSizeBytes", "6291456", "6MiB"),
            ("bookkeeperExplicitLacIntervalInMills", "500", "500ms"),
            (
                "managedLedgerOffloadAutoTriggerSizeThresholdBytes",
                "-1",
                "unlimited",
            ),
            ("managedLedgerOffloadThresholdInSeconds", "3600", "1h"),
            ("managedLedgerOffloadDeletionLagMs", "60000", "1m"),
            (
                "managedLedgerDataReadPriority",
                "bookkeeper-first",
                "bookkeeper-first",
            ),
            ("s3ManagedLedgerOffloadReadBufferSizeInBytes", "1048576", "1MiB"),
        ] {
            assert_eq!(read(name, text), value, "{name}");
        }
    }

    #[test]
    fn times_say_their_unit_in_their_name() {
        let units = [
            "Millis", "Mills", "Ms", "MSec", "Minutes", "Seconds", "Second", "Sec",
        ];
        for setting in SETTINGS.iter().filter(|s| s.kind.starts_with("duration")) {
            let name = setting.pulsar_key;
            let is_listed = UNSAID_TIMES.iter().any(|(listed, _)| *listed == name);
            let is_said = is_listed || name.is_empty() || units.iter().any(|unit| name.ends_with(unit));
            assert!(is_said, "what unit has {name}?");
        }
    }
}
