//! Stats that show what was last asked of each subscription.

use pharos_admin_api::{ManagedLedgerInfo, PersistentTopicInternalStats, SubscriptionStats, TopicStats};
use pharos_broker_admin::{AdminResult, LastMessage, StatsAdmin, StatsFlags};
use pharos_types::{Position, TopicName};

use super::{FakeBroker, now};

impl StatsAdmin for FakeBroker {
    fn stats(&self, topic: TopicName, flags: StatsFlags) -> AdminResult<'_, TopicStats> {
        if let Err(error) = self.exists(&topic) {
            return now(Err(error));
        }
        let mut stats = TopicStats {
            msg_in_counter: 3,
            deduplication_status: "Disabled".into(),
            ..Default::default()
        };
        for (name, subscription) in self.topics().entry(topic).or_default() {
            let of = SubscriptionStats {
                kind: "None".into(),
                // Shows in a test which flags arrived and what was last asked.
                active_consumer_name: Some(subscription.last.clone()),
                key_shared_mode: flags.precise_backlog.then(|| "precise".into()),
                subscription_properties: subscription.properties.clone(),
                ..Default::default()
            };
            stats.subscriptions.insert(name.clone(), of);
        }
        now(Ok(stats))
    }

    fn internal_stats(&self, topic: TopicName, _: bool) -> AdminResult<'_, PersistentTopicInternalStats> {
        let stats = || PersistentTopicInternalStats {
            last_confirmed_entry: "1:-1".into(),
            state: "LedgerOpened".into(),
            ..Default::default()
        };
        now(self.exists(&topic).map(|()| stats()))
    }

    fn internal_info(&self, topic: TopicName) -> AdminResult<'_, ManagedLedgerInfo> {
        now(self.exists(&topic).map(|()| ManagedLedgerInfo::default()))
    }

    fn last_message(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        let last = LastMessage {
            position: Some(Position::new(4, 2)),
            batch_index: Some(0),
            batch_size: Some(1),
        };
        now(self.exists(&topic).map(|()| last))
    }
}
