//! Names: topics, namespaces, subscriptions, and how the short forms grow into the full ones.
//!
//! Rules are those of Pulsar: a topic is `persistent://tenant/namespace/local`; `local` alone means
//! `public/default`, and `tenant/namespace/local` means persistent. Tenant and namespace take `[-=:.\w]*`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest subscription name accepted, in bytes, and the longest text looked at as a topic name. Names are stored and
/// travel in stats, so a peer must not be able to make them arbitrarily long.
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// The longest `tenant/namespace`, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 512;

/// The longest topic name, in bytes as it is stored: `tenant/namespace`, then the local name with its partition, of which
/// each byte other than ASCII letters, digits and `-_.` counts three times. The keys of all that is stored about a topic
/// have room beside it in the 1,024 bytes that a key of the metadata store may have.
pub const TOPIC_BYTES_MAX: usize = 980;

const PARTITION_MARK: &str = "-partition-";

/// Reason why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has the wrong number of parts, or an empty one.
    #[error(
        "invalid topic name '{0}': expected topic, tenant/namespace/topic or persistent://tenant/namespace/topic"
    )]
    Shape(String),
    /// The part before `://` is no known domain.
    #[error("invalid topic domain '{0}': expected persistent or non-persistent")]
    Domain(String),
    /// A tenant or namespace has a character outside `[-=:.\w]`.
    #[error("invalid {what} name '{name}': letters, digits and -=:._ only")]
    Charset {
        /// Kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
    },
    /// Too long to be stored.
    #[error("{what} name of {bytes} bytes is longer than {bytes_max}")]
    TooLong {
        /// Kind of name.
        what: &'static str,
        /// Its length; of a topic as it is stored.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Nothing, or only white space.
    #[error("empty {0} name")]
    Blank(&'static str),
}

/// Domain of a topic: persistent or non-persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Stored before they are acknowledged.
    Persistent,
    /// Delivered to the consumers that are there at that instant.
    NonPersistent,
}

impl Domain {
    /// The word before `://`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::NonPersistent => "non-persistent",
        }
    }
}

/// `tenant/namespace`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName {
    full: Arc<str>,
    tenant_bytes: usize,
}

impl NamespaceName {
    /// Makes a namespace name of its two parts.
    ///
    /// # Errors
    /// [`NameError`] when a part is blank, too long or has a foreign character.
    pub fn new(tenant: &str, namespace: &str) -> Result<Self, NameError> {
        check_part("tenant", tenant)?;
        check_part("namespace", namespace)?;
        check_length(
            "namespace",
            tenant.len() + 1 + namespace.len(),
            NAMESPACE_BYTES_MAX,
        )?;
        Ok(Self {
            full: format!("{tenant}/{namespace}").into(),
            tenant_bytes: tenant.len(),
        })
    }

    /// The tenant part.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.full.get(..self.tenant_bytes).unwrap_or_default()
    }

    /// The part after the tenant.
    #[must_use]
    pub fn local(&self) -> &str {
        self.full.get(self.tenant_bytes + 1..).unwrap_or_default()
    }

    /// `tenant/namespace`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

impl FromStr for NamespaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((tenant, namespace)) => Self::new(tenant, namespace),
            None => Err(NameError::Charset {
                what: "namespace",
                name: clip(text),
            }),
        }
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// The full name of a topic. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    domain: Domain,
    namespace: NamespaceName,
    local: Arc<str>,
}

impl TopicName {
    /// Makes a topic name of its parts.
    ///
    /// # Errors
    /// [`NameError`] when the local name is blank, has a `/`, or is too long.
    pub fn new(domain: Domain, namespace: NamespaceName, local: &str) -> Result<Self, NameError> {
        if local.trim().is_empty() {
            return Err(NameError::Blank("topic"));
        }
        if local.contains('/') {
            return Err(NameError::Shape(clip(local)));
        }
        let name = Self {
            domain,
            namespace,
            local: local.into(),
        };
        name.check_stored()?;
        Ok(name)
    }

    /// Refuses a name that is too long to be stored. To be asked of partitions before their topic is made.
    ///
    /// # Errors
    /// [`NameError::TooLong`], beyond [`TOPIC_BYTES_MAX`].
    pub fn check_stored(&self) -> Result<(), NameError> {
        let stored = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => 1,
            _ => 3,
        };
        let local: usize = self.local.bytes().map(stored).sum();
        check_length("topic", self.namespace.full.len() + 1 + local, TOPIC_BYTES_MAX)
    }

    /// Stored or not.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    /// The part after the namespace, partition suffix included.
    #[must_use]
    pub fn local(&self) -> &str {
        &self.local
    }

    /// The partition index when the name ends in `-partition-N` with N plain, else `None`.
    #[must_use]
    pub fn partition(&self) -> Option<u32> {
        self.split_partition().map(|(_, index)| index)
    }

    /// The partitioned topic that this is a partition of; itself when it is none.
    #[must_use]
    pub fn base(&self) -> Self {
        match self.split_partition() {
            Some((base, _)) => Self {
                local: base.into(),
                ..self.clone()
            },
            None => self.clone(),
        }
    }

    /// Partition `index` of this topic.
    #[must_use]
    pub fn with_partition(&self, index: u32) -> Self {
        Self {
            local: format!("{}{PARTITION_MARK}{index}", self.local).into(),
            ..self.clone()
        }
    }

    /// True if the local name starts with `__`, the mark of system topics.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.local.starts_with("__")
    }

    fn split_partition(&self) -> Option<(&str, u32)> {
        let (base, index) = self.local.rsplit_once(PARTITION_MARK)?;
        let plain = !index.is_empty()
            && index.bytes().all(|b| b.is_ascii_digit())
            && (index == "0" || !index.starts_with('0'));
        if base.is_empty() || !plain {
            return None;
        }
        index.parse().ok().map(|index| (base, index))
    }
}

impl FromStr for TopicName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length("topic", text.len(), NAME_BYTES_MAX)?;
        let (domain, rest) = match text.split_once("://") {
            Some(("persistent", rest)) => (Domain::Persistent, Some(rest)),
            Some(("non-persistent", rest)) => (Domain::NonPersistent, Some(rest)),
            Some((other, _)) => return Err(NameError::Domain(clip(other))),
            None => (Domain::Persistent, None),
        };
        let path = rest.unwrap_or(text);
        let parts: Vec<&str> = path.split('/').collect();
        match (parts.as_slice(), rest) {
            ([local], None) => Self::new(domain, NamespaceName::new("public", "default")?, local),
            ([tenant, namespace, local], _) => {
                Self::new(domain, NamespaceName::new(tenant, namespace)?, local)
            }
            _ => Err(NameError::Shape(clip(text))),
        }
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.domain.as_str(), self.namespace, self.local)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A subscription's name: any text that is not blank. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionName(Arc<str>);

impl SubscriptionName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`NameError`] when it is blank or too long.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_length("subscription", text.len(), NAME_BYTES_MAX)?;
        if text.trim().is_empty() {
            return Err(NameError::Blank("subscription"));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the name is reserved for the broker: prefix `pulsar.repl`, or `pulsar.dedup`, or `__compaction`.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with("pulsar.repl") || matches!(&*self.0, "pulsar.dedup" | "__compaction")
    }
}

impl fmt::Display for SubscriptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SubscriptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_length(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), NameError> {
    if bytes > bytes_max {
        Err(NameError::TooLong {
            what,
            bytes,
            bytes_max,
        })
    } else {
        Ok(())
    }
}

fn check_part(what: &'static str, name: &str) -> Result<(), NameError> {
    check_length(what, name.len(), NAMESPACE_BYTES_MAX)?;
    if name.is_empty() {
        return Err(NameError::Blank(what));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '=' | ':' | '.' | '_');
    if name.chars().all(fits) {
        Ok(())
    } else {
        Err(NameError::Charset {
            what,
            name: clip(name),
        })
    }
}

/// The start of a text, for an error message: a peer chooses the name, so it must not choose the log line's length.
fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    #[test]
    fn short_names_grow_into_full_ones() {
        assert_eq!(topic("a").to_string(), "persistent://public/default/a");
        assert_eq!(topic("t/n/a").to_string(), "persistent://t/n/a");
        assert_eq!(
            topic("non-persistent://t/n/a").to_string(),
            "non-persistent://t/n/a"
        );
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for text in [
            "",
            " ",
            "a/b",
            "persistent://a",
            "persistent://a/b",
            "a/b/c/d",
            "t//a",
            "/n/a",
            "t/n/",
            "x://a/b/c",
            "t t/n/a",
        ] {
            assert!(text.parse::<TopicName>().is_err(), "{text}");
        }
        assert_eq!(
            "x".repeat(5000).parse::<TopicName>(),
            Err(NameError::TooLong {
                what: "topic",
                bytes: 5000,
                bytes_max: NAME_BYTES_MAX
            })
        );
    }

    #[test]
    fn names_that_cannot_be_stored_are_refused() {
        // `public/default/` is 15 bytes.
        let room = TOPIC_BYTES_MAX - 15;
        assert!("x".repeat(room).parse::<TopicName>().is_ok());
        let longer = "x".repeat(room + 1).parse::<TopicName>();
        assert!(matches!(
            longer,
            Err(NameError::TooLong {
                bytes_max: TOPIC_BYTES_MAX,
                ..
            })
        ));
        assert!("ü".repeat(room / 6).parse::<TopicName>().is_ok());
        assert!("ü".repeat(room / 6 + 1).parse::<TopicName>().is_err());
        let whole = topic(&"x".repeat(room - 13));
        assert!(whole.with_partition(9).check_stored().is_ok());
        assert!(whole.with_partition(10).check_stored().is_ok());
        assert!(whole.with_partition(100).check_stored().is_err());
        let namespace = |bytes: usize| NamespaceName::new("t", &"n".repeat(bytes - 2));
        assert!(namespace(NAMESPACE_BYTES_MAX).is_ok());
        assert!(namespace(NAMESPACE_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn partitions_have_plain_numbers() {
        assert_eq!(topic("a-partition-3").partition(), Some(3));
        assert_eq!(topic("a-partition-3").base(), topic("a"));
        assert_eq!(topic("a").with_partition(3), topic("a-partition-3"));
        for text in [
            "a",
            "x-partition-01",
            "x-partition--1",
            "x-partition-",
            "-partition-1",
        ] {
            assert_eq!(topic(text).partition(), None, "{text}");
        }
    }

    #[test]
    fn namespaces_come_apart() {
        let name: NamespaceName = "acme/cars".parse().unwrap();
        assert_eq!(
            (name.tenant(), name.local(), name.as_str()),
            ("acme", "cars", "acme/cars")
        );
        assert!("acme".parse::<NamespaceName>().is_err());
        assert!("a/b/c".parse::<NamespaceName>().is_err());
    }

    #[test]
    fn subscription_names_may_be_anything_but_blank() {
        assert!(SubscriptionName::new("  ").is_err());
        assert!(SubscriptionName::new("ü/ x").is_ok());
        for name in ["pulsar.repl.east", "pulsar.dedup", "__compaction"] {
            assert!(SubscriptionName::new(name).unwrap().is_reserved());
        }
    }
}
