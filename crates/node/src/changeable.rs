//! Settings that can be changed while brokers run: those that say what holds where neither a topic nor its namespace says anything.
//!
//! An administrator may use our name of a setting, with a value as in a file, or Pulsar's name, with a value as Pulsar's files have it.
//! Under Pulsar's name every value of a switch but `true` is false, as in Pulsar; that is said in the log.

use pharos_catalog::policy::BrokerPolicies;
use pharos_catalog::{ChangeSettingError, ChangeableSettings, ChangedSettings};

use crate::settings::table::{Setting, by_key};
use crate::settings::{Settings, Value, setting_of, translate};

/// Their keys. Everything else is read once, when a broker starts.
const CHANGEABLE: [&str; 32] = [
    "allow_auto_topic_creation",
    "allow_auto_topic_creation_type",
    "default_num_partitions",
    "allow_auto_subscription_creation",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "delayed_delivery_tick_time",
    "delayed_delivery_strict",
    "policies.message_ttl",
    "policies.backlog_quota_size",
    "policies.backlog_quota_time",
    "policies.backlog_quota_policy",
    "policies.max_producers_per_topic",
    "policies.max_same_address_producers_per_topic",
    "policies.max_consumers_per_topic",
    "policies.max_same_address_consumers_per_topic",
    "policies.max_consumers_per_subscription",
    "policies.max_subscriptions_per_topic",
    "policies.max_topics_per_namespace",
    "policies.max_publish_rate_messages",
    "policies.max_publish_rate_bytes",
    "policies.max_dispatch_rate_messages",
    "policies.max_dispatch_rate_bytes",
    "policies.max_dispatch_rate_messages_per_subscription",
    "policies.max_dispatch_rate_bytes_per_subscription",
    "policies.delayed_delivery",
    "policies.delete_inactive_topics",
    "policies.delete_inactive_topics_mode",
    "policies.delete_inactive_topics_after",
    "policies.subscription_expiration_time",
    "ledger.default_retention_time",
    "ledger.default_retention_size",
];

fn changeable() -> impl Iterator<Item = &'static Setting> {
    CHANGEABLE.iter().filter_map(|key| by_key(key))
}

/// The setting of a name, and a value under that name as it reads it.
fn of_name(name: &str, value: &str) -> Option<(&'static Setting, String)> {
    if let Some(setting) = changeable().find(|setting| setting.key == name) {
        return Some((setting, value.to_owned()));
    }
    let setting = setting_of(name).filter(|setting| CHANGEABLE.contains(&setting.key))?;
    let text = match is_switch(setting) {
        true => switch_of_pulsar(value).to_string(),
        false => translate(setting, value),
    };
    Some((setting, text))
}

fn is_switch(setting: &Setting) -> bool {
    setting.kind == <bool as Value>::KIND
}

/// True if a switch is on, as Pulsar reads it.
fn switch_of_pulsar(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true")
}

/// Settings that a broker was started with, and changes to them at runtime.
#[derive(Debug)]
pub(crate) struct ChangeableAtRuntime {
    started: Settings,
}

impl ChangeableAtRuntime {
    pub(crate) fn new(started: &Settings) -> Self {
        Self {
            started: started.clone(),
        }
    }

    /// Applies one change; otherwise returns the defect of the value.
    fn change(&self, settings: &mut Settings, name: &str, value: &str) -> Result<(), ChangeSettingError> {
        let (setting, text) =
            of_name(name, value).ok_or_else(|| ChangeSettingError::Unknown(name.to_owned()))?;
        let wrong = |why: String| ChangeSettingError::Value(format!("{name}: {why}"));
        (setting.set)(settings, &text).map_err(wrong)?;
        let before = self.started.faults();
        match settings
            .faults()
            .into_iter()
            .find(|fault| !before.contains(fault))
        {
            Some(fault) => Err(wrong(fault)),
            None => Ok(()),
        }
    }
}

impl ChangeableSettings for ChangeableAtRuntime {
    fn names(&self) -> Vec<String> {
        let of_pulsar = changeable().map(|setting| setting.pulsar_key);
        let ours = changeable().map(|setting| setting.key);
        let all = of_pulsar.chain(ours).filter(|name| !name.is_empty());
        all.map(str::to_owned).collect()
    }

    fn check(&self, name: &str, value: &str) -> Result<(), ChangeSettingError> {
        let mut changed = self.started.clone();
        self.change(&mut changed, name, value)?;
        let is_switch = of_name(name, value).is_some_and(|(setting, _)| is_switch(setting));
        if is_switch && !matches!(value, "true" | "false") {
            let is_on = switch_of_pulsar(value);
            tracing::warn!(
                name,
                value,
                "a switch is set to what is neither true nor false; it is {is_on}"
            );
        }
        Ok(())
    }

    fn policies(&self, changed: &ChangedSettings) -> BrokerPolicies {
        let mut settings = self.started.clone();
        for (name, value) in &changed.0 {
            let mut tried = settings.clone();
            match self.change(&mut tried, name, value) {
                Ok(()) => settings = tried,
                // Another program's, or of a release that knows more.
                Err(error) => {
                    tracing::warn!(name, value, %error, "a setting that was changed at run time is left as it was")
                }
            }
        }
        crate::broker::policies(&settings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::Duration;

    use super::*;

    fn changed(all: &[(&str, &str)]) -> BrokerPolicies {
        let all = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ChangeableAtRuntime::new(&Settings::default()).policies(&ChangedSettings(all.collect()))
    }

    #[test]
    fn every_key_is_a_setting_of_a_policy_and_changes_what_it_says() {
        assert_eq!(changeable().count(), CHANGEABLE.len());
        for setting in changeable() {
            let before = changed(&[]);
            let other = [
                "false",
                "true",
                "7",
                "7s",
                "7B",
                "partitioned",
                "producer_exception",
            ];
            let modes = ["delete_when_subscriptions_caught_up"];
            let mut other = other.into_iter().chain(modes);
            let is_acted_on = other.any(|value| changed(&[(setting.key, value)]) != before);
            assert!(is_acted_on, "{}", setting.key);
        }
    }

    #[test]
    fn a_value_is_read_as_its_name_wants_it() {
        let minute = Duration::from_secs(60);
        assert_eq!(changed(&[("policies.message_ttl", "1m")]).message_ttl.0, minute);
        assert_eq!(
            changed(&[("ttlDurationDefaultInSeconds", "60")]).message_ttl.0,
            minute
        );
        let both = changed(&[
            ("ttlDurationDefaultInSeconds", "60"),
            ("maxProducersPerTopic", "3"),
        ]);
        assert_eq!((both.message_ttl.0, both.max_producers), (minute, 3));
        let rest = changed(&[
            ("nothing", "1"),
            ("maxProducersPerTopic", "many"),
            ("maxConsumersPerTopic", "4"),
        ]);
        assert_eq!((rest.max_producers, rest.max_consumers), (0, 4));
    }

    #[test]
    fn a_switch_under_pulsars_name_is_read_as_pulsar_does() {
        for (value, is_on) in [
            ("true", true),
            (" TRUE ", true),
            ("false", false),
            ("{\"a\": 1}", false),
        ] {
            let settings = ChangeableAtRuntime::new(&Settings::default());
            assert!(settings.check("allowAutoSubscriptionCreation", value).is_ok());
            let said = changed(&[("allowAutoSubscriptionCreation", value)]);
            assert_eq!(said.auto_subscription_creation.allow, is_on, "{value}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_refused() {
        let settings = ChangeableAtRuntime::new(&Settings::default());
        for name in ["data_dir", "bindAddress", "nothing", ""] {
            let refused = settings.check(name, "1");
            assert!(matches!(refused, Err(ChangeSettingError::Unknown(_))), "{name}");
        }
        for (name, value) in [
            ("maxProducersPerTopic", "many"),
            ("default_num_partitions", "0"),
            ("allow_auto_topic_creation", "yes"),
        ] {
            let refused = settings.check(name, value);
            assert!(matches!(refused, Err(ChangeSettingError::Value(_))), "{name}");
        }
        assert!(settings.check("maxProducersPerTopic", "3").is_ok());
        assert!(
            settings
                .names()
                .contains(&"ttlDurationDefaultInSeconds".to_owned())
        );
        assert!(settings.names().contains(&"policies.message_ttl".to_owned()));
    }
}
