//! Owners of ledgers, by the metadata of a stopped broker.

use std::collections::{BTreeMap, BTreeSet};

use pharos_managed_ledger::{
    INFO_PREFIX, LEDGER_GARBAGE_PREFIX, LedgerInfo, ManagedLedgerInfo, noted_ledgers,
};
use pharos_types::TopicName;

use super::metadata::Metadata;

/// Role of a ledger in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) topic: String,
    /// True if it holds cursors, not messages.
    pub(crate) cursors: bool,
    /// The topic's info row of it; `None` for a ledger with cursors.
    pub(crate) row: Option<LedgerInfo>,
    /// The engine's copy was deleted after it was offloaded, or may be at any moment.
    pub(crate) may_be_gone: bool,
}

/// A ledger that no topic names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// Its topic gave it up; the next start deletes it.
    GivenUp,
    /// The reason is not known; it is left alone.
    Stays,
}

impl Unnamed {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::GivenUp => "given up; the next start deletes it",
            Self::Stays => "no topic names it; it is left alone",
        }
    }
}

/// All ledgers that topics name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    pub(crate) by_ledger: BTreeMap<u64, Owner>,
    /// The names under which topics' logs are kept, by topic.
    names: BTreeMap<String, String>,
    /// Ledgers that were given up: the next start deletes those that are still there.
    dead: BTreeSet<u64>,
    /// Parts of the metadata that could not be read.
    pub(crate) problems: Vec<String>,
    /// The metadata could be read.
    pub(crate) known: bool,
}

impl Owners {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let mut owners = Self::default();
        let look = match metadata {
            Metadata::Whole(look) => look,
            Metadata::Missing => {
                let problem = "topics cannot be told: there is no metadata store";
                owners.problems.push(problem.to_owned());
                return owners;
            }
            Metadata::Refused(error) => {
                owners.problems.push(format!("topics cannot be told: {error}"));
                return owners;
            }
        };
        owners.known = true;
        for item in &look.items {
            if item.key.starts_with(LEDGER_GARBAGE_PREFIX) {
                owners.dead.extend(noted_ledgers(&item.value));
            }
            let Some(name) = item.key.strip_prefix(INFO_PREFIX) else {
                continue;
            };
            match ManagedLedgerInfo::parse(name, &item.value) {
                Ok(info) => {
                    let topic = topic_of(name);
                    owners.add(&topic, &info);
                    owners.dead.extend(info.dead_ids());
                    owners.names.insert(topic, name.to_owned());
                }
                Err(error) => owners.problems.push(error.to_string()),
            }
        }
        owners
    }

    fn add(&mut self, topic: &str, info: &ManagedLedgerInfo) {
        for row in &info.ledgers {
            let offloaded =
                |offload: &&pharos_managed_ledger::OffloadInfo| offload.ledger_id == row.ledger_id;
            let may_be_gone = info
                .offloads
                .iter()
                .filter(offloaded)
                .any(|offload| offload.local_deleted);
            let owner = Owner {
                topic: topic.to_owned(),
                cursors: false,
                row: Some(*row),
                may_be_gone,
            };
            self.by_ledger.insert(row.ledger_id, owner);
        }
        if let Some(ledger) = info.cursor_ledger {
            let owner = Owner {
                topic: topic.to_owned(),
                cursors: true,
                row: None,
                may_be_gone: false,
            };
            self.by_ledger.insert(ledger, owner);
        }
    }

    pub(crate) fn get(&self, ledger: u64) -> Option<&Owner> {
        self.by_ledger.get(&ledger)
    }

    /// Classifies a ledger that no topic names; `None` if one does, or if that is unknown.
    pub(crate) fn unnamed(&self, ledger: u64) -> Option<Unnamed> {
        if !self.known || !self.problems.is_empty() || self.by_ledger.contains_key(&ledger) {
            return None;
        }
        Some(match self.dead.contains(&ledger) {
            true => Unnamed::GivenUp,
            false => Unnamed::Stays,
        })
    }

    /// The name under which a topic's log is kept.
    pub(crate) fn name_of(&self, topic: &TopicName) -> Option<String> {
        self.names.get(&topic.to_string()).cloned()
    }

    /// The ledgers of one topic, messages before cursors.
    pub(crate) fn of_topic(&self, topic: &TopicName) -> Vec<(u64, &Owner)> {
        let wanted = topic.to_string();
        let mut found: Vec<(u64, &Owner)> = self
            .by_ledger
            .iter()
            .filter(|(_, owner)| owner.topic == wanted)
            .map(|(ledger, owner)| (*ledger, owner))
            .collect();
        found.sort_by_key(|(ledger, owner)| (owner.cursors, *ledger));
        found
    }
}

/// From the name under which a log is kept, `tenant/namespace/persistent/local` with the local part percent-encoded.
fn topic_of(name: &str) -> String {
    let parts: Vec<&str> = name.splitn(4, '/').collect();
    let [tenant, namespace, domain, local] = parts.as_slice() else {
        return name.to_owned();
    };
    format!("{domain}://{tenant}/{namespace}/{}", decode(local))
}

fn decode(local: &str) -> String {
    let mut bytes = Vec::with_capacity(local.len());
    let mut rest = local.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs_become_names_of_topics() {
        assert_eq!(
            topic_of("public/default/persistent/notices"),
            "persistent://public/default/notices"
        );
        assert_eq!(topic_of("a/b/persistent/x%20%C3%A4%"), "persistent://a/b/x ä%");
        assert_eq!(topic_of("odd"), "odd");
    }
}
