//! Carriers: which brokers besides a topic's owner have consumers of its broadcast subscriptions.
//!
//! A broadcast subscription with carriers has a fixed number of slots. A consumer's name says its slot, for good, so its place never
//! moves. Slot 0 is the topic itself; each other one is a *carrier*: a shadow of the topic that no catalog lists, with cursors of its own
//! and a bundle of its own, so that it is owned, handed over and lost like a topic.
//!
//! ```text
//! persistent://t/n/news   slot 1   persistent://t/n/__carrier__news__1   bundle carrier_1_news
//! ```
//! The owner of the topic is the only one that makes and ends subscriptions. It stores in each that it has carriers ([`CarrierSlots`], the
//! property [`CARRIERS`]); the policies of the topic repeat that for other brokers, which follow them.
//!
//! Always true: a subscription of a carrier whose [`CarrierSlots`] is not the one in the policies is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use pharos_types::{Domain, NamespaceName, Position, SubscriptionName, TopicName, hash};
use serde_json::Value;

use super::known::Namespace;
use super::policies::CARRIERS_MAX;
use super::topic_policies::change_topic_policies;
use super::topics::TopicError;
use super::{Catalog, TopicPolicies};

/// The property of a subscription that says how many slots it has, and which subscription of its name it is.
pub const CARRIERS: &str = "pharos.carriers";

/// The property of a carrier's subscription that says which [`CarrierMove`] was done last.
pub const CARRIER_MOVED: &str = "pharos.carriers.moved";

/// The policy of a topic that repeats what its subscriptions say.
const CARRIED: &str = "pharosCarried";

const PREFIX: &str = "__carrier__";
const MARK: &str = "__";

/// Carriers of a broadcast subscription. Written `2/5f3a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierSlots {
    /// Number of slots, the topic's own included: 2 to [`CARRIERS_MAX`].
    pub slots: u32,
    /// Tells it from an earlier subscription of its name.
    pub id: u64,
}

impl CarrierSlots {
    /// The slot of a consumer of this name.
    #[must_use]
    pub fn slot_of(self, consumer: &str) -> u32 {
        hash::bundle_hash(consumer) % self.slots.max(1)
    }

    /// Reads the carriers from the properties of a subscription.
    #[must_use]
    pub fn of_properties(properties: &[(String, String)]) -> Option<Self> {
        let mut said = properties.iter().filter(|(name, _)| name == CARRIERS);
        said.next()?.1.parse().ok()
    }

    /// The property that says it.
    #[must_use]
    pub fn to_property(self) -> (String, String) {
        (CARRIERS.to_owned(), self.to_string())
    }
}

impl fmt::Display for CarrierSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}", self.slots, self.id)
    }
}

impl FromStr for CarrierSlots {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (slots, id) = text.split_once('/').ok_or(())?;
        let slots = slots.parse().map_err(|_| ())?;
        let id = u64::from_str_radix(id, 16).map_err(|_| ())?;
        match (2..=CARRIERS_MAX).contains(&slots) {
            true => Ok(Self { slots, id }),
            false => Err(()),
        }
    }
}

/// In which way all consumers of a subscription are moved together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierMoveKind {
    /// The consumers are at the position, wherever they were.
    Reset,
    /// The consumers have acknowledged everything before the position.
    Past,
}

/// Last common move of all consumers of a subscription with carriers. Written `7r12:45` or `8p12:45`; `9r` is before
/// all entries.
///
/// The owner of the topic stores it; a carrier executes it, and stores the number in its subscription
/// ([`CARRIER_MOVED`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierMove {
    /// Rises from move to move, from 1.
    pub number: u64,
    /// In which way.
    pub kind: CarrierMoveKind,
    /// The last entry before the place; `None`: the place is before all entries.
    pub after: Option<Position>,
}

impl CarrierMove {
    /// The number of the last one that was done to a subscription with these properties; 0 for none.
    #[must_use]
    pub fn done(properties: &[(String, String)]) -> u64 {
        let mut said = properties.iter().filter(|(name, _)| name == CARRIER_MOVED);
        said.next()
            .and_then(|(_, number)| number.parse().ok())
            .unwrap_or(0)
    }

    /// The property that says that it was done.
    #[must_use]
    pub fn to_property(self) -> (String, String) {
        (CARRIER_MOVED.to_owned(), self.number.to_string())
    }
}

impl fmt::Display for CarrierMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CarrierMoveKind::Reset => 'r',
            CarrierMoveKind::Past => 'p',
        };
        write!(f, "{}{kind}", self.number)?;
        match self.after {
            Some(after) => write!(f, "{}:{}", after.ledger, after.entry),
            None => Ok(()),
        }
    }
}

impl FromStr for CarrierMove {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, kind, after) = match (text.split_once('r'), text.split_once('p')) {
            (Some((number, after)), None) => (number, CarrierMoveKind::Reset, after),
            (None, Some((number, after))) => (number, CarrierMoveKind::Past, after),
            _ => return Err(()),
        };
        let after = match after.split_once(':') {
            Some((ledger, entry)) => {
                let (ledger, entry) = (ledger.parse().map_err(|_| ())?, entry.parse().map_err(|_| ())?);
                Some(Position::new(ledger, entry))
            }
            None if after.is_empty() => None,
            None => return Err(()),
        };
        let number = number.parse().map_err(|_| ())?;
        Ok(Self { number, kind, after })
    }
}

/// Parses the record of a subscription: [`CarrierSlots`], followed by a space and the last [`CarrierMove`].
fn on_record_of(text: &str) -> Option<(CarrierSlots, Option<CarrierMove>)> {
    let (slots, moved) = text.split_once(' ').unwrap_or((text, ""));
    Some((slots.parse().ok()?, moved.parse().ok()))
}

/// The carrier of a topic with this number, from 1; `None` where the topic can have none: it stores nothing, is a carrier itself, or its
/// name is too long.
#[must_use]
pub fn carrier_name(topic: &TopicName, number: u32) -> Option<TopicName> {
    if topic.domain() != Domain::Persistent || carrier_of(topic).is_some() {
        return None;
    }
    let name = format!(
        "persistent://{}/{PREFIX}{}{MARK}{number}",
        topic.namespace(),
        topic.local()
    );
    name.parse().ok().filter(|name| carrier_of(name).is_some())
}

/// All carriers that a topic may have.
pub fn carriers_of(topic: &TopicName) -> impl Iterator<Item = TopicName> + '_ {
    (1..CARRIERS_MAX).filter_map(|number| carrier_name(topic, number))
}

/// Returns the topic of a carrier, and its slot.
#[must_use]
pub fn carrier_of(name: &TopicName) -> Option<(TopicName, u32)> {
    let (source, number) = name.local().strip_prefix(PREFIX)?.rsplit_once(MARK)?;
    let number: u32 = number.parse().ok()?;
    if !(1..CARRIERS_MAX).contains(&number) || name.domain() != Domain::Persistent {
        return None;
    }
    let source = format!("persistent://{}/{source}", name.namespace());
    Some((source.parse().ok()?, number))
}

/// The bundle of a carrier, which is in no other's.
pub(super) fn carrier_bundle(name: &TopicName) -> Option<String> {
    let (source, number) = carrier_of(name)?;
    let mut local = String::new();
    for byte in source.local().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => local.push(char::from(byte)),
            other => local.push_str(&format!("%{other:02X}")),
        }
    }
    Some(format!("carrier_{number}_{local}"))
}

/// The carrier whose bundle is `<tenant>/<namespace>/<bundle>`; `None` for the bundle of other topics.
#[must_use]
pub fn carrier_in(bundle: &str) -> Option<TopicName> {
    let (namespace, bundle) = bundle.rsplit_once('/')?;
    let (number, local) = bundle.strip_prefix("carrier_")?.split_once('_')?;
    let (mut bytes, mut rest) = (Vec::new(), local);
    while let Some((plain, encoded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(encoded.get(..2)?, 16).ok()?);
        rest = encoded.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    let topic = format!("persistent://{namespace}/{}", String::from_utf8(bytes).ok()?);
    carrier_name(&topic.parse().ok()?, number.parse().ok()?)
}

/// Records of carriers.
#[derive(Clone, Copy)]
pub struct Carriers<'a> {
    catalog: &'a Catalog,
}

impl<'a> Carriers<'a> {
    /// Returns the records in a catalog.
    #[must_use]
    pub fn of(catalog: &'a Catalog) -> Self {
        Self { catalog }
    }

    /// The subscriptions of a topic that have carriers.
    #[must_use]
    pub fn of_topic(self, topic: &TopicName) -> BTreeMap<String, CarrierSlots> {
        on_record(&self.catalog.topic_policies(topic), topic)
    }

    /// Returns the carriers of a subscription; `None` if it has none.
    #[must_use]
    pub fn of_subscription(self, topic: &TopicName, subscription: &SubscriptionName) -> Option<CarrierSlots> {
        Some(self.record(topic, subscription)?.0)
    }

    /// Returns the last common move of all consumers of a subscription.
    #[must_use]
    pub fn moved(self, topic: &TopicName, subscription: &SubscriptionName) -> Option<CarrierMove> {
        self.record(topic, subscription)?.1
    }

    fn record(
        self,
        topic: &TopicName,
        subscription: &SubscriptionName,
    ) -> Option<(CarrierSlots, Option<CarrierMove>)> {
        let policies = self.catalog.topic_policies(topic);
        let said = policies.0.get(CARRIED)?.get(topic.local())?;
        on_record_of(said.get(subscription.as_str())?.as_str()?)
    }

    /// Number of brokers that the consumers of a new broadcast subscription are distributed over.
    #[must_use]
    pub fn wanted(self, topic: &TopicName) -> u32 {
        let policies = self.catalog.policies(topic.namespace());
        policies.map_or(1, |policies| policies.broadcast_carriers())
    }

    /// True if a topic has, or had, subscriptions with carriers, which may have left data.
    #[must_use]
    pub fn were_there(self, topic: &TopicName) -> bool {
        let policies = self.catalog.topic_policies(topic);
        let all = policies.0.get(CARRIED).and_then(Value::as_object);
        all.is_some_and(|all| all.contains_key(topic.local()))
    }

    /// The bundles that are to be at other brokers than `bundle`, all as `<tenant>/<namespace>/<bundle>`: two slots of a topic at one
    /// broker serve its consumers no better than one.
    #[must_use]
    pub fn apart_from(self, bundle: &str) -> Vec<String> {
        let Some((namespace, name)) = bundle.rsplit_once('/') else {
            return Vec::new();
        };
        let Ok(of): Result<NamespaceName, _> = namespace.parse() else {
            return Vec::new();
        };
        let carried = {
            let state = self.catalog.inner.known.read();
            let known = state.namespaces.get(&of);
            known.map(|known| carried_in(&of, known)).unwrap_or_default()
        };
        let carrier = carrier_in(bundle);
        let source = carrier.as_ref().and_then(carrier_of).map(|(source, _)| source);
        let mut found = BTreeSet::new();
        for (topic, slots) in carried {
            let of_topic = self.catalog.bundle_of(&topic);
            let is_meant = match &source {
                Some(source) => *source == topic,
                None => of_topic.as_deref() == Some(name),
            };
            if is_meant {
                let carriers = (1..slots).filter_map(|number| carrier_name(&topic, number));
                found.extend(carriers.filter_map(|carrier| carrier_bundle(&carrier)));
                found.extend(of_topic);
            }
        }
        found.remove(name);
        found.iter().map(|other| format!("{namespace}/{other}")).collect()
    }

    /// All topics that have subscriptions with carriers, and how many slots the largest has.
    #[must_use]
    pub fn topics(self) -> Vec<(TopicName, u32)> {
        let state = self.catalog.inner.known.read();
        let all = state.namespaces.iter();
        all.flat_map(|(name, known)| carried_in(name, known)).collect()
    }

    /// Takes what is on record of a topic's subscriptions away, once nothing is left of its carriers.
    ///
    /// # Errors
    /// As for [`note`](Self::note).
    pub async fn forget(self, topic: &TopicName) -> Result<(), TopicError> {
        if !self.were_there(topic) {
            return Ok(());
        }
        let change = |policies: &mut TopicPolicies| {
            let Some(all) = policies.0.get_mut(CARRIED).and_then(Value::as_object_mut) else {
                return;
            };
            all.remove(topic.local());
            if all.is_empty() {
                policies.0.remove(CARRIED);
            }
        };
        change_topic_policies(self.catalog, topic, change).await
    }

    /// Notes what a subscription is now; `None`: it has no carriers, or is gone. That the topic had some stays on record until
    /// [`forget`](Self::forget).
    ///
    /// # Errors
    /// `TenantNotFound`, `NamespaceNotFound`, `Store`.
    pub async fn note(
        self,
        topic: &TopicName,
        subscription: &SubscriptionName,
        carried: Option<CarrierSlots>,
    ) -> Result<(), TopicError> {
        if self.of_subscription(topic, subscription) == carried {
            return Ok(());
        }
        let change = |policies: &mut TopicPolicies| {
            let all = policies.0.entry(CARRIED.to_owned());
            let all = all.or_insert_with(|| Value::Object(serde_json::Map::new()));
            let Some(all) = all.as_object_mut() else { return };
            let of_topic = all.entry(topic.local().to_owned());
            let of_topic = of_topic.or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Some(of_topic) = of_topic.as_object_mut() {
                match carried {
                    Some(carried) => of_topic.insert(subscription.to_string(), carried.to_string().into()),
                    None => of_topic.remove(subscription.as_str()),
                };
            }
        };
        change_topic_policies(self.catalog, topic, change).await
    }

    /// Notes that all consumers of a subscription are moved together. One that is not on record is not moved.
    ///
    /// # Errors
    /// As for [`note`](Self::note).
    pub async fn note_move(
        self,
        topic: &TopicName,
        subscription: &SubscriptionName,
        kind: CarrierMoveKind,
        after: Option<Position>,
    ) -> Result<(), TopicError> {
        let change = |policies: &mut TopicPolicies| {
            let of_topic = policies
                .0
                .get_mut(CARRIED)
                .and_then(|all| all.get_mut(topic.local()));
            let Some(Value::String(text)) = of_topic.and_then(|of| of.get_mut(subscription.as_str())) else {
                return;
            };
            if let Some((slots, moved)) = on_record_of(text) {
                let number = moved.map_or(0, |moved| moved.number) + 1;
                *text = format!("{slots} {}", CarrierMove { number, kind, after });
            }
        };
        change_topic_policies(self.catalog, topic, change).await
    }
}

/// The topics of a namespace that have subscriptions with carriers, and how many slots the largest has.
fn carried_in(namespace: &NamespaceName, known: &Namespace) -> Vec<(TopicName, u32)> {
    let mut found = Vec::new();
    for record in known.topic_policies.values() {
        let Some(topics) = record.value.0.get(CARRIED).and_then(Value::as_object) else {
            continue;
        };
        for local in topics.keys() {
            let Ok(topic) = format!("persistent://{namespace}/{local}").parse() else {
                continue;
            };
            let slots = on_record(&record.value, &topic).values().map(|it| it.slots).max();
            found.extend(slots.map(|slots| (topic, slots)));
        }
    }
    found
}

fn on_record(policies: &TopicPolicies, topic: &TopicName) -> BTreeMap<String, CarrierSlots> {
    let said = policies.0.get(CARRIED).and_then(|all| all.get(topic.local()));
    let said = said.and_then(Value::as_object).into_iter().flatten();
    said.filter_map(|(name, value)| Some((name.clone(), on_record_of(value.as_str()?)?.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn the_name_of_a_carrier_says_whose_it_is() {
        for local in ["news", "news-partition-3", "a__b", "__x__1", "50%_é"] {
            let topic: TopicName = format!("persistent://t/n/{local}").parse().unwrap();
            for number in [1, CARRIERS_MAX - 1] {
                let carrier = carrier_name(&topic, number).unwrap();
                assert_eq!(carrier_of(&carrier), Some((topic.clone(), number)));
                assert_eq!(carrier.base(), carrier, "it is no partition");
                let bundle = format!("t/n/{}", carrier_bundle(&carrier).unwrap());
                assert_eq!(carrier_in(&bundle), Some(carrier.clone()), "{bundle}");
                assert_eq!(carrier_name(&carrier, 1), None);
            }
            assert_eq!(carrier_name(&topic, 0), None);
            assert_eq!(carrier_name(&topic, CARRIERS_MAX), None);
        }
        for other in [
            "t/n/0x00000000_0xffffffff",
            "t/n/carrier_0_a",
            "t/n/carrier_1_%4",
            "carrier_1_a",
            "",
        ] {
            assert_eq!(carrier_in(other), None, "{other}");
        }
        let passing: TopicName = "non-persistent://t/n/news".parse().unwrap();
        assert_eq!(carrier_name(&passing, 1), None);
    }

    #[test]
    fn a_subscription_says_what_it_is_and_nothing_else_is_taken() {
        let carried = CarrierSlots { slots: 3, id: 0xabc };
        assert_eq!(
            CarrierSlots::of_properties(&[carried.to_property()]),
            Some(carried)
        );
        for wrong in ["", "2", "1/0", "17/0", "2/x", "2/", "/1"] {
            assert_eq!(wrong.parse::<CarrierSlots>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_move_is_written_and_read_again() {
        for (text, number, kind, after) in [
            ("7r12:45", 7, CarrierMoveKind::Reset, Some(Position::new(12, 45))),
            ("8p0:0", 8, CarrierMoveKind::Past, Some(Position::new(0, 0))),
            ("9r", 9, CarrierMoveKind::Reset, None),
        ] {
            let moved = CarrierMove { number, kind, after };
            assert_eq!((moved.to_string().as_str(), text.parse()), (text, Ok(moved)));
            assert_eq!(CarrierMove::done(&[moved.to_property()]), number);
            let slots = CarrierSlots { slots: 3, id: 0xabc };
            assert_eq!(on_record_of(&format!("3/abc {text}")), Some((slots, Some(moved))));
            assert_eq!(on_record_of("3/abc"), Some((slots, None)));
        }
        for wrong in ["", "r", "7", "7x1:2", "7r1", "7r1:", "r1:2", "7r1:2p"] {
            assert_eq!(wrong.parse::<CarrierMove>(), Err(()), "{wrong}");
        }
        assert_eq!(CarrierMove::done(&[]), 0);
    }

    #[test]
    fn consumers_are_dealt_among_all_slots() {
        let carried = CarrierSlots { slots: 2, id: 1 };
        let there = (0..10_000).filter(|number| carried.slot_of(&format!("car-{number}")) == 1);
        let there = there.count();
        assert!((4_500..5_500).contains(&there), "{there}");
    }
}
