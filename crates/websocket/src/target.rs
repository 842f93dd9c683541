//! Path of a session: `/ws/v2/{producer|reader}/{domain}/{tenant}/{namespace}/{topic}`; that of a consumer continues
//! with the subscription.

use hyper::StatusCode;
use pharos_admin_api::paths::decode_topic;
use pharos_types::{Domain, NameError, NamespaceName, SubscriptionName, TopicName};

use crate::UpgradeRefusal;

/// Kind of session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionKind {
    Producer,
    Consumer(SubscriptionName),
    Reader,
}

/// A path, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionTarget {
    pub(crate) topic: TopicName,
    pub(crate) kind: SessionKind,
}

impl SessionTarget {
    /// # Errors
    /// 404: there is nothing at the path; 400: a name is none; 501: Pulsar has it, and this broker has not.
    pub(crate) fn of(path: &str) -> Result<Self, UpgradeRefusal> {
        let nothing = || UpgradeRefusal::new(StatusCode::NOT_FOUND, format!("there is nothing at {path}"));
        let rest = path.strip_prefix("/ws/").ok_or_else(nothing)?;
        // Pulsar allows a slash at the end.
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (version, rest) = rest.split_once('/').ok_or_else(nothing)?;
        if version == "v3" {
            let reason = "consumers of several topics by WebSocket are not served: open one for each topic";
            return Err(UpgradeRefusal::new(StatusCode::NOT_IMPLEMENTED, reason));
        }
        let parts: Vec<&str> = rest.split('/').collect();
        let bad = |error: NameError| UpgradeRefusal::bad_request(error.to_string());
        let (kind, names) = match (version, parts.as_slice()) {
            ("v2", ["producer", names @ ..]) => (SessionKind::Producer, names),
            ("v2", ["reader", names @ ..]) => (SessionKind::Reader, names),
            ("v2", ["consumer", names @ .., subscription]) => {
                let name = SubscriptionName::new(&decoded(subscription)?).map_err(bad)?;
                (SessionKind::Consumer(name), names)
            }
            _ => return Err(nothing()),
        };
        let [domain, tenant, namespace, topic] = names else {
            return Err(nothing());
        };
        let domain = match *domain {
            "persistent" => Domain::Persistent,
            "non-persistent" => Domain::NonPersistent,
            _ => return Err(nothing()),
        };
        let namespace = NamespaceName::new(&decoded(tenant)?, &decoded(namespace)?).map_err(bad)?;
        let topic = TopicName::new(domain, namespace, &decoded(topic)?).map_err(bad)?;
        Ok(Self { topic, kind })
    }
}

/// A name out of the path: each is encoded once, by the rules of forms.
fn decoded(part: &str) -> Result<String, UpgradeRefusal> {
    decode_topic(part).ok_or_else(|| UpgradeRefusal::bad_request("a name in the path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_topic_and_what_is_to_be_done_there() {
        let target = SessionTarget::of("/ws/v2/consumer/persistent/t/n/a%3Fb/my%20sub").unwrap();
        assert_eq!(target.topic.to_string(), "persistent://t/n/a?b");
        assert_eq!(
            target.kind,
            SessionKind::Consumer(SubscriptionName::new("my sub").unwrap())
        );
        let slashed = SessionTarget::of("/ws/v2/consumer/persistent/t/n/a%3Fb/my%20sub/");
        assert_eq!(slashed.unwrap(), target);
        let target = SessionTarget::of("/ws/v2/reader/non-persistent/t/n/a").unwrap();
        assert_eq!(
            (target.topic.to_string().as_str(), target.kind),
            ("non-persistent://t/n/a", SessionKind::Reader)
        );
    }

    #[test]
    fn what_is_no_such_path_is_refused() {
        let status = |path: &str| SessionTarget::of(path).unwrap_err().status.as_u16();
        for path in [
            "/ws/",
            "/ws/v2/producer/persistent/t/n",
            "/ws/v2/consumer/persistent/t/n/a",
            "/ws/v1/producer/persistent/t/n/a",
            "/ws/v2/producer/other/t/n/a",
            "/ws/v2/admin/persistent/t/n/a",
        ] {
            assert_eq!(status(path), 404, "{path}");
        }
        assert_eq!(status("/ws/v2/producer/persistent/t/n/"), 404);
        assert_eq!(status("/ws/v2/producer/persistent/t/n//"), 400);
        assert_eq!(status("/ws/v3/consumer/s"), 501);
    }
}
