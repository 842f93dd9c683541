//! Activity between a topic and a consumer, or all consumers of a subscription: counters and times for stats.
//!
//! A stream consumer counts for itself, entries where messages would have to be looked up; everything else is counted
//! at the topic's home. Both are merged into an [`Activity`].

use pharos_runtime::{Nanos, clock};

use super::Sent;

/// A moment, to the second. 4 bytes, because stream consumers keep some and there are a hundred thousand of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u32);

impl Moment {
    /// Converts a time of the monotonic clock.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        // 0 is "never".
        Self(u32::try_from(now.0 / 1_000_000_000 + 1).unwrap_or(u32::MAX))
    }

    /// In milliseconds since 1970; 0 for never.
    #[must_use]
    pub fn wall_ms(self) -> u64 {
        let Some(seconds) = self.0.checked_sub(1) else {
            return 0;
        };
        let now_ms = clock::now().0 / 1_000_000;
        let ago_ms = now_ms.saturating_sub(u64::from(seconds) * 1000);
        clock::wall_ms().saturating_sub(ago_ms)
    }
}

/// Counters and times. All of it since the consumer came, or since the topic was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Sent, redeliveries included.
    pub sent: Sent,
    /// Entries sent, redeliveries included.
    pub entries: u64,
    /// Messages acknowledged. Of a consumer that gets everything: entries, times the mean number of messages in those it
    /// got.
    pub acked: u64,
    /// Messages that were asked for again; likewise.
    pub redelivered: u64,
    /// Time of the last acknowledgement of a message.
    pub acked_at: Moment,
    /// Time at which a message was last sent.
    pub sent_at: Moment,
}

impl Activity {
    /// Adds what went on elsewhere.
    pub fn add(&mut self, more: &Self) {
        self.sent.add(more.sent);
        self.entries += more.entries;
        self.acked += more.acked;
        self.redelivered += more.redelivered;
        self.acked_at = self.acked_at.max(more.acked_at);
        self.sent_at = self.sent_at.max(more.sent_at);
    }

    /// Counts one sent entry.
    pub fn note_sent(&mut self, sent: Sent, at: Moment) {
        self.sent.add(sent);
        self.entries += 1;
        self.sent_at = at;
    }

    /// Messages were acknowledged.
    pub fn note_acked(&mut self, messages: u64, at: Moment) {
        self.acked += messages;
        self.acked_at = at;
    }

    /// The mean number of messages in an entry, rounded; 0 before the first.
    #[must_use]
    pub fn messages_per_entry(&self) -> u64 {
        (self.sent.messages + self.entries / 2)
            .checked_div(self.entries)
            .unwrap_or(0)
    }
}

/// Counters of a stream consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamConsumerActivity {
    /// Messages and bytes sent to it since it joined.
    pub sent: Sent,
    /// Entries sent to it.
    pub entries: u64,
    /// Entries that it acknowledged.
    pub acked: u64,
    /// Entries that it asked for again.
    pub redelivered: u64,
    /// Time of its last acknowledgement.
    pub acked_at: Moment,
    /// Time at which the newest entry sent to it was ready to be sent.
    pub sent_at: Moment,
}

impl StreamConsumerActivity {
    /// In messages.
    #[must_use]
    pub fn in_messages(&self) -> Activity {
        Activity {
            sent: self.sent,
            entries: self.entries,
            acked: self.messages_of(self.acked),
            redelivered: self.messages_of(self.redelivered),
            acked_at: self.acked_at,
            sent_at: self.sent_at,
        }
    }

    fn messages_of(&self, entries: u64) -> u64 {
        let messages = u128::from(entries) * u128::from(self.sent.messages);
        match messages.checked_div(u128::from(self.entries)) {
            Some(messages) => u64::try_from(messages).unwrap_or(u64::MAX),
            // Acknowledged without having been sent: one apiece.
            None => entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_become_messages_by_their_mean() {
        let sent = Sent {
            messages: 30,
            bytes: 300,
        };
        let consumer = StreamConsumerActivity {
            sent,
            entries: 3,
            acked: 2,
            redelivered: 1,
            ..StreamConsumerActivity::default()
        };
        let activity = consumer.in_messages();
        assert_eq!((activity.acked, activity.redelivered), (20, 10));
        assert_eq!(activity.messages_per_entry(), 10);
        assert_eq!(Activity::default().messages_per_entry(), 0);
    }

    #[test]
    fn a_moment_is_a_time_of_day() {
        assert_eq!(Moment::default().wall_ms(), 0);
        let now = clock::wall_ms();
        let told = Moment::at(clock::now()).wall_ms();
        assert!(now.abs_diff(told) <= 1100, "{now} {told}");
    }
}
