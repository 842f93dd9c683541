use pharos_types::{SubscriptionName, TopicName};
use serde_json::json;

use super::*;
use crate::Access;

/// Tenant `t` has the administrator `boss` and the namespace `t/n`.
struct Stored(Value);

struct Policies(Map<String, Value>);

impl AsRef<Map<String, Value>> for Policies {
    fn as_ref(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl Facts for Stored {
    fn has_tenant(&self, tenant: &str) -> bool {
        tenant == "t"
    }

    fn is_tenant_admin(&self, tenant: &str, role: &str) -> bool {
        (tenant, role) == ("t", "boss")
    }

    fn policies(&self, namespace: &NamespaceName) -> Option<StoredPolicies> {
        (namespace.as_str() == "t/n").then(|| Arc::new(Policies(self.0.as_object().unwrap().clone())) as _)
    }
}

fn options() -> RuleOptions {
    RuleOptions {
        authorization: true,
        super_users: BTreeSet::from(["root".to_owned()]),
        proxies: BTreeSet::from(["proxy".to_owned(), "proxy2".to_owned()]),
        wildcards: false,
        metrics_need_role: false,
    }
}

fn access(options: RuleOptions, policies: Value) -> Access {
    Access::by(Arc::new(Rules::new(options, Arc::new(Stored(policies)))))
}

fn topic(name: &str) -> TopicName {
    format!("persistent://t/n/{name}").parse().unwrap()
}

fn role(name: &str) -> Principal {
    Principal::anonymous("/10.0.0.1:1").with_role(name.into())
}

fn may(access: &Access, who: &Principal, action: Action, resource: Resource<'_>) -> bool {
    access.check(who, action, resource).is_ok()
}

#[test]
fn every_action_is_denied_to_a_role_that_was_granted_nothing() {
    let access = access(options(), json!({}));
    let (topic, name) = (topic("x"), SubscriptionName::new("s").unwrap());
    for action in Action::ALL.iter().copied() {
        let free = matches!(action.need(), Need::Nothing | Need::Metrics | Need::AnyRole);
        for resource in [
            Resource::Cluster,
            Resource::Tenant("t"),
            Resource::Namespace(topic.namespace()),
            Resource::Topic(&topic),
            Resource::Subscription(&topic, &name),
            Resource::Consumer(&topic, &name, "stranger"),
        ] {
            assert_eq!(
                may(&access, &role("stranger"), action, resource),
                free,
                "{action} on {resource}"
            );
            assert!(
                may(&access, &role("root"), action, resource),
                "{action} on {resource}"
            );
            let unknown = Principal::anonymous("/10.0.0.1:1");
            let open = matches!(action.need(), Need::Nothing | Need::Metrics);
            assert_eq!(
                may(&access, &unknown, action, resource),
                open,
                "{action} on {resource}"
            );
            let of_tenant = resource.tenant().is_some() && action.need() != Need::SuperUser;
            assert_eq!(
                may(&access, &role("boss"), action, resource),
                free || of_tenant,
                "{action} on {resource}"
            );
        }
    }
}

#[test]
fn permissions_hold_for_their_namespace_topic_and_its_partitions() {
    let access = access(
        options(),
        json!({"auth_policies": {
            "namespace_auth": {"writer": ["produce"], "odd": "produce"},
            "destination_auth": {"persistent://t/n/one": {"reader": ["consume"]}},
        }}),
    );
    let (one, other) = (topic("one"), topic("other"));
    let elsewhere: TopicName = "persistent://t/m/one".parse().unwrap();
    let produce = |who: &str, on: &TopicName| may(&access, &role(who), Action::Produce, Resource::Topic(on));
    let look_up = |who: &str, on: &TopicName| may(&access, &role(who), Action::Lookup, Resource::Topic(on));
    assert!(produce("writer", &one) && produce("writer", &other) && look_up("writer", &other));
    assert!(!produce("writer", &elsewhere) && !produce("odd", &one));
    assert!(look_up("reader", &one) && look_up("reader", &one.with_partition(3)));
    assert!(!look_up("reader", &other) && !produce("reader", &one));
    // The list of topics is the namespace's, and so is the permission for it.
    let list = |who: &str| {
        may(
            &access,
            &role(who),
            Action::ListTopics,
            Resource::Namespace(one.namespace()),
        )
    };
    assert!(list("writer") && !list("reader"));
}

#[test]
fn subscriptions_have_roles_and_prefixes() {
    let mut policies = json!({"auth_policies": {
        "namespace_auth": {"a": ["consume"], "b": ["consume"], "c": ["produce"]},
        "subscription_auth_roles": {"s": ["a", "c"], "empty": [], "odd": "a"},
    }});
    let consume = |policies: &Value, who: &str, name: &str| {
        let (topic, name) = (topic("x"), SubscriptionName::new(name).unwrap());
        let access = access(options(), policies.clone());
        may(
            &access,
            &role(who),
            Action::Consume,
            Resource::Subscription(&topic, &name),
        )
    };
    assert!(consume(&policies, "a", "s") && !consume(&policies, "b", "s"));
    // To be listed is not to be granted.
    assert!(!consume(&policies, "c", "s"));
    assert!(consume(&policies, "b", "empty") && consume(&policies, "b", "free"));
    assert!(!consume(&policies, "a", "odd") && consume(&policies, "boss", "s"));
    policies["subscription_auth_mode"] = json!("Prefix");
    assert!(consume(&policies, "b", "b-1") && !consume(&policies, "b", "a-1"));
    assert!(consume(&policies, "boss", "a-1"));
    policies["subscription_auth_mode"] = json!("Sideways");
    assert!(!consume(&policies, "b", "b-1"));
    policies["subscription_auth_mode"] = json!("None");
    assert!(consume(&policies, "b", "a-1"));
}

#[test]
fn patterns_are_patterns_only_where_settings_say_so() {
    let granted = json!({"auth_policies": {"namespace_auth": {"car-*": ["produce"], "*.dev": ["produce"]}}});
    let topic = topic("x");
    for wildcards in [false, true] {
        let access = access(
            RuleOptions {
                wildcards,
                ..options()
            },
            granted.clone(),
        );
        let produce = |who: &str| may(&access, &role(who), Action::Produce, Resource::Topic(&topic));
        assert_eq!(produce("car-7"), wildcards);
        assert_eq!(produce("x.dev"), wildcards);
        assert!(!produce("truck-7") && !produce("dev"));
        assert!(produce("car-*"));
    }
}

#[test]
fn a_proxy_and_the_one_it_asks_for_must_both_be_allowed() {
    let access = access(
        options(),
        json!({"auth_policies": {"namespace_auth": {"proxy": ["produce"], "a": ["produce"], "proxy2": ["produce"]}}}),
    );
    let topic = topic("x");
    let produce = |who: &str, original: Option<&str>| {
        let who = role(who).on_behalf_of(original.map(Into::into));
        may(&access, &who, Action::Produce, Resource::Topic(&topic))
    };
    assert!(produce("proxy", Some("a")));
    assert!(!produce("proxy", Some("b")) && !produce("proxy", None));
    assert!(!produce("proxy", Some("proxy2")) && !produce("proxy", Some("proxy")));
    assert!(produce("proxy", Some("root")));
    // Only a proxy asks for others.
    assert!(!produce("b", Some("a")) && !produce("a", Some("root")));
    assert!(produce("a", Some("a")));
}

#[test]
fn a_consumer_has_the_name_of_its_role_where_that_is_the_policy() {
    let mut policies = json!({
        "auth_policies": {"namespace_auth": {"car-1": ["consume"], "proxy": ["consume"]}},
        "properties": {"pharos.consumerNames": "role"},
    });
    let (topic, all) = (topic("x"), SubscriptionName::new("all").unwrap());
    let consume = |policies: &Value, who: &Principal, name: &str| {
        let access = access(options(), policies.clone());
        may(
            &access,
            who,
            Action::Consume,
            Resource::Consumer(&topic, &all, name),
        )
    };
    let for_all = |policies: &Value, who: &str, action: Action| {
        let access = access(options(), policies.clone());
        may(&access, &role(who), action, Resource::Subscription(&topic, &all))
    };
    assert!(consume(&policies, &role("car-1"), "car-1"));
    for taken in ["car-2", "car-1-2", "car-", "CAR-1", ""] {
        assert!(!consume(&policies, &role("car-1"), taken), "{taken}");
    }
    assert!(consume(&policies, &role("boss"), "car-2"));
    let proxied = role("proxy").on_behalf_of(Some("car-1".into()));
    assert!(consume(&policies, &proxied, "car-1") && !consume(&policies, &proxied, "car-2"));
    // Neither may it move or remove the places of all.
    for action in [
        Action::ResetCursor,
        Action::SkipMessages,
        Action::DeleteSubscription,
        Action::UpdateSubscription,
        Action::CreateSubscription,
    ] {
        assert!(!for_all(&policies, "car-1", action) && for_all(&policies, "boss", action));
    }
    assert!(for_all(&policies, "car-1", Action::Seek));
    policies["properties"] = json!({"pharos.consumerNames": "any"});
    assert!(consume(&policies, &role("car-1"), "car-2"));
    assert!(for_all(&policies, "car-1", Action::ResetCursor));
    // A word that is none binds.
    policies["properties"] = json!({"pharos.consumerNames": "rôle"});
    assert!(!consume(&policies, &role("car-1"), "car-2"));
}

#[test]
fn without_authorization_any_role_may_do_everything() {
    let access = access(RuleOptions::default(), json!({}));
    let unknown = Principal::anonymous("/10.0.0.1:1");
    assert!(may(
        &access,
        &role("any"),
        Action::DeleteTenant,
        Resource::Tenant("t")
    ));
    assert!(!may(&access, &unknown, Action::ReadTenant, Resource::Tenant("t")));
    assert!(may(&access, &unknown, Action::ReadStatus, Resource::Cluster));
    assert!(may(&access, &unknown, Action::ReadMetrics, Resource::Cluster));
    let closed = RuleOptions {
        metrics_need_role: true,
        ..RuleOptions::default()
    };
    let access = self::access(closed, json!({}));
    assert!(!may(&access, &unknown, Action::ReadMetrics, Resource::Cluster));
    assert!(may(&access, &role("any"), Action::ReadMetrics, Resource::Cluster));
}

#[test]
fn who_has_a_role_hears_that_a_tenant_is_not_there_and_a_stranger_does_not() {
    let access = access(options(), json!({}));
    let (absent, present) = (
        "persistent://absent/n/x".parse().unwrap(),
        "persistent://t/absent/x".parse().unwrap(),
    );
    let asked =
        |who: &Principal, action, topic| access.check(who, action, Resource::Topic(topic)).unwrap_err();
    for action in [Action::Lookup, Action::Produce, Action::UpdatePolicy] {
        assert_eq!(asked(&role("car"), action, &absent), Denied::NoTenant);
        assert!(matches!(
            asked(&role("car"), action, &present),
            Denied::NotAuthorized(_)
        ));
        let stranger = Principal::anonymous("/10.0.0.1:1");
        assert!(matches!(
            asked(&stranger, action, &absent),
            Denied::NotAuthenticated(_)
        ));
    }
    let create = access.check(&role("car"), Action::CreateTenant, Resource::Tenant("absent"));
    assert!(matches!(create, Err(Denied::NotAuthorized(_))));
}
