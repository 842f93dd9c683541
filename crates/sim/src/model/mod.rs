//! Model of the answers that clients received, and the guarantees that follow.
//!
//! A request that was sent and never answered may have happened or not, but not half. So a fact is there, is not
//! there, or is either ([`Fact`]), and a message must come to a subscription, must not come, or may ([`Need`]). After
//! each start the test looks at everything; from then on the model is what it sees.
//!
//! The model gives up certainty where requests about one topic overlap (a deletion while a client subscribes), and
//! regains it with the next answer that follows them all, or at the next look.

mod moves;
mod subscription;
mod topic;

use std::collections::BTreeMap;

pub use moves::Move;
pub use subscription::{Need, Subscription};
pub use topic::{Ticket, Topic};

/// Durability of a topic's messages before they are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Synced: nothing is lost.
    Sync,
    /// Written: a power cut may take the end of a topic.
    Async,
    /// In memory: so may the end of the process.
    Bypass,
}

/// Existence of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Must not exist.
    No,
    /// Must exist.
    Yes,
    /// May exist.
    Either,
}

impl Fact {
    /// True if the observation is allowed.
    #[must_use]
    pub fn allows(self, seen: bool) -> bool {
        match self {
            Self::Either => true,
            Self::Yes => seen,
            Self::No => !seen,
        }
    }
}

impl From<bool> for Fact {
    fn from(seen: bool) -> Self {
        if seen { Self::Yes } else { Self::No }
    }
}

/// Reason for the end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process died; what the system had, it still has.
    Process,
    /// The machine lost power: what was not synced may be lost.
    Machine,
    /// A clean stop, then a power cut: nothing is lost whatever the mode.
    AfterStop,
}

/// Everything that clients know.
#[derive(Debug, Default)]
pub struct Model {
    /// By full name; what never was is not here.
    pub topics: BTreeMap<String, Topic>,
    /// Facts of the catalog (tenants, namespaces, policies, schemas) that were answered or are under way, as text.
    pub facts: BTreeMap<String, Vec<Option<String>>>,
    message_last: u64,
}

impl Model {
    /// The number of the next message; numbers rise in the order of sends over all topics.
    pub fn next_message(&mut self) -> u64 {
        self.message_last += 1;
        self.message_last
    }

    /// The last number given out.
    #[must_use]
    pub fn message_last(&self) -> u64 {
        self.message_last
    }

    /// The topic of a name.
    ///
    /// # Panics
    /// When the model never heard of it.
    #[track_caller]
    pub fn topic(&mut self, name: &str) -> &mut Topic {
        match self.topics.get_mut(name) {
            Some(topic) => topic,
            None => panic!("{name} is no topic of the model"),
        }
    }

    /// A client asked for a fact of the catalog to become `value`.
    pub fn fact_begins(&mut self, key: &str, value: Option<&str>) {
        let values = self.facts.entry(key.to_owned()).or_insert_with(|| vec![None]);
        values.push(value.map(str::to_owned));
    }

    /// Records an answered change of a fact. Requests about one fact do not overlap.
    pub fn fact_holds(&mut self, key: &str, value: Option<&str>) {
        self.facts.insert(key.to_owned(), vec![value.map(str::to_owned)]);
    }

    /// A fact was looked at.
    ///
    /// # Panics
    /// When it contradicts an answer.
    pub fn fact_seen(&mut self, key: &str, seen: Option<&str>) {
        let seen = seen.map(str::to_owned);
        let allowed = self.facts.get(key).cloned().unwrap_or_else(|| vec![None]);
        assert!(
            allowed.contains(&seen),
            "{key} is {seen:?}, answered was {allowed:?}"
        );
        self.facts.insert(key.to_owned(), vec![seen]);
    }

    /// Everything had time to become durable.
    pub fn settle(&mut self) {
        for topic in self.topics.values_mut() {
            topic.settle();
        }
    }

    /// A life ended.
    pub fn crashed(&mut self, crash: Crash) {
        for topic in self.topics.values_mut() {
            topic.crashed(crash);
        }
    }
}
