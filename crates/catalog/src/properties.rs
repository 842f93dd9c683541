//! Properties whose names begin with `pharos.`: what clients and administrators ask of this broker beyond the protocol.
//!
//! All other names are their owner's business. One that begins so and means nothing where it stands is refused, and so is
//! a value that is not understood: a misspelt wish must not silently be no wish.

pub use crate::policies::{
    BROADCAST_CARRIERS, BROADCAST_SUBSCRIPTIONS, DURABILITY, broadcast_carriers_of, durability_of,
};
pub use pharos_auth::CONSUMER_NAMES;

/// Every name that begins with this is the broker's.
const PREFIX: &str = "pharos.";

/// The property of a subscription or consumer that asks for a kind which the protocol has no word for.
pub const SUBSCRIPTION_KIND: &str = "pharos.subscription";

/// The only kind that [`SUBSCRIPTION_KIND`] names.
pub const BROADCAST: &str = "broadcast";

/// Resource that has properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A namespace.
    Namespace,
    /// A topic, partitioned or not.
    Topic,
    /// A subscription.
    Subscription,
    /// A consumer.
    Consumer,
    /// A producer.
    Producer,
}

impl Holder {
    fn with_article(self) -> &'static str {
        match self {
            Self::Namespace => "a namespace",
            Self::Topic => "a topic",
            Self::Subscription => "a subscription",
            Self::Consumer => "a consumer",
            Self::Producer => "a producer",
        }
    }
}

/// Property that the broker acts on.
struct Known {
    name: &'static str,
    holders: &'static [Holder],
    /// Accepted values; empty accepts any text.
    values: &'static [&'static str],
}

const ALL: [Known; 5] = [
    Known {
        name: SUBSCRIPTION_KIND,
        holders: &[Holder::Subscription, Holder::Consumer],
        values: &[BROADCAST],
    },
    Known {
        name: DURABILITY,
        holders: &[Holder::Namespace, Holder::Topic],
        values: &["sync", "async", "bypass"],
    },
    Known {
        name: BROADCAST_SUBSCRIPTIONS,
        holders: &[Holder::Namespace],
        values: &[],
    },
    Known {
        name: BROADCAST_CARRIERS,
        holders: &[Holder::Namespace],
        values: &[],
    },
    Known {
        name: CONSUMER_NAMES,
        holders: &[Holder::Namespace],
        values: &["role", "any"],
    },
];

/// True if a property pair of a consumer or subscription requests broadcast.
#[must_use]
pub fn asks_for_broadcast(name: &str, value: &str) -> bool {
    name == SUBSCRIPTION_KIND && value == BROADCAST
}

/// The property in which a managed ledger of Pulsar's layout keeps the epoch of a topic's exclusive producers.
const TOPIC_EPOCH: &str = "pulsar.topicEpoch";

/// True if a property that is stored with those of a topic is the broker's: it says where the topic's data is. No caller may see, set or
/// remove it.
#[must_use]
pub(crate) fn is_reserved_of_topic(name: &str) -> bool {
    name.starts_with(PREFIX) && !is_known(Holder::Topic, name)
}

/// True if a property that is stored with those of a subscription is the broker's. No caller may see, set or remove it.
#[must_use]
pub fn is_reserved_of_subscription(name: &str) -> bool {
    name.starts_with(PREFIX) && !is_known(Holder::Subscription, name)
}

/// True if only the topic itself changes a property that is stored with those of its callers.
pub(crate) fn is_kept_of_topic(name: &str) -> bool {
    name == TOPIC_EPOCH || is_reserved_of_topic(name)
}

fn is_ours(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

fn is_known(holder: Holder, name: &str) -> bool {
    ALL.iter()
        .any(|known| known.name == name && known.holders.contains(&holder))
}

/// Checks the name of a property of `holder` that is to be removed: those that [`check`] refuses to set are refused.
///
/// # Errors
/// As of [`check`].
pub fn check_removal(holder: Holder, name: &str) -> Result<(), String> {
    match is_known(holder, name) {
        true => Ok(()),
        false => check(holder, name, ""),
    }
}

/// Number of properties that a client may leave with one subscription, producer or consumer. Logs refuse to read far more.
const COUNT_MAX: usize = 1_000;

/// Bytes of their names and values together.
const BYTES_MAX: usize = 64 << 10;

/// Checks the number of properties and the bytes of their names and values. `what` names them in the error.
///
/// # Errors
/// A sentence for the client that set them.
pub fn check_size(what: &str, count: usize, bytes: usize) -> Result<(), String> {
    if count > COUNT_MAX {
        return Err(format!("{what}: {count} entries are more than {COUNT_MAX}"));
    }
    if bytes > BYTES_MAX {
        return Err(format!("{what} of {bytes} bytes are larger than {BYTES_MAX}"));
    }
    Ok(())
}

/// Checks one property of `holder`.
///
/// # Errors
/// A sentence for the client that set it, with what was probably meant.
pub fn check(holder: Holder, name: &str, value: &str) -> Result<(), String> {
    if holder == Holder::Topic && name == TOPIC_EPOCH {
        return Err(format!(
            "{TOPIC_EPOCH} is set by the topic's exclusive producers only"
        ));
    }
    if !is_ours(name) {
        return Ok(());
    }
    let Some(known) = ALL.iter().find(|known| known.name == name) else {
        return Err(unknown(holder, name));
    };
    if !known.holders.contains(&holder) {
        let holders: Vec<_> = known.holders.iter().map(|it| it.with_article()).collect();
        return Err(format!(
            "{name} is a property of {}, not of {}",
            holders.join(" or "),
            holder.with_article()
        ));
    }
    if name == BROADCAST_CARRIERS {
        return broadcast_carriers_of(value).map(drop);
    }
    if known.values.is_empty() || known.values.contains(&value) {
        return Ok(());
    }
    if name == DURABILITY {
        return durability_of(value).map(drop);
    }
    let hint = hint(value, known.values.iter().copied());
    Err(format!(
        "{name} is {}, not '{value}'{hint}",
        known.values.join(" or ")
    ))
}

fn unknown(holder: Holder, name: &str) -> String {
    let ours = || ALL.iter().filter(|known| known.holders.contains(&holder));
    let here: Vec<_> = ours().map(|known| known.name).collect();
    let hint = hint(name, here.iter().copied());
    let rest = if here.is_empty() {
        format!("{} has none that begins with {PREFIX}", holder.with_article())
    } else {
        format!("{} can have {}", holder.with_article(), here.join(", "))
    };
    format!("{name} is no property that the broker knows{hint}; {rest}")
}

/// `; did you mean x?` for the nearest of `names`, if any is near.
fn hint<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> String {
    let rated = names.map(|name| (strsim::jaro_winkler(text, name), name));
    let best = rated.max_by(|one, two| one.0.total_cmp(&two.0));
    best.filter(|(similarity, _)| *similarity > 0.85)
        .map(|(_, name)| format!("; did you mean {name}?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(holder: Holder, name: &str, value: &str, words: &[&str]) {
        let reason = check(holder, name, value).unwrap_err();
        for word in words {
            assert!(reason.contains(word), "{reason:?} does not say {word:?}");
        }
    }

    #[test]
    fn names_of_others_may_say_what_they_like() {
        for name in [
            "",
            "ph",
            "colour",
            "pharos",
            "pharosx.y",
            "x.pharos.durability",
            "ψharos.",
        ] {
            check(Holder::Consumer, name, "brodcast").unwrap();
        }
    }

    #[test]
    fn known_properties_are_taken_where_they_mean_something() {
        check(Holder::Consumer, SUBSCRIPTION_KIND, "broadcast").unwrap();
        check(Holder::Subscription, SUBSCRIPTION_KIND, "broadcast").unwrap();
        check(Holder::Topic, DURABILITY, "bypass").unwrap();
        check(Holder::Namespace, DURABILITY, "async").unwrap();
        check(Holder::Namespace, BROADCAST_SUBSCRIPTIONS, "cars, fleet-*").unwrap();
    }

    #[test]
    fn a_refusal_names_what_was_probably_meant() {
        refused(
            Holder::Consumer,
            SUBSCRIPTION_KIND,
            "brodcast",
            &["did you mean broadcast?"],
        );
        refused(Holder::Consumer, SUBSCRIPTION_KIND, "", &["is broadcast, not ''"]);
        refused(
            Holder::Consumer,
            "pharos.subscripton",
            "broadcast",
            &["pharos.subscripton", "did you mean pharos.subscription?"],
        );
        refused(
            Holder::Consumer,
            "Pharos.Subscription",
            "broadcast",
            &["no property"],
        );
        refused(
            Holder::Topic,
            DURABILITY,
            "fsync",
            &["sync, async or bypass", "fsync"],
        );
        refused(
            Holder::Subscription,
            DURABILITY,
            "sync",
            &["a namespace or a topic", "not of a subscription"],
        );
        refused(Holder::Producer, "pharos.", "", &["a producer has none"]);
        refused(Holder::Topic, TOPIC_EPOCH, "7", &["exclusive producers"]);
    }

    #[test]
    fn what_cannot_be_set_cannot_be_removed() {
        for name in ["pharos.cursors", "pharos.first", "Pharos.x", TOPIC_EPOCH] {
            let refused = check_removal(Holder::Topic, name);
            assert_eq!(refused, check(Holder::Topic, name, ""));
            assert!(refused.is_err(), "{name}");
        }
        for name in [DURABILITY, "colour", "pharos"] {
            check_removal(Holder::Topic, name).unwrap();
        }
        check_removal(Holder::Subscription, DURABILITY).unwrap_err();
    }
}
