//! Dispatch rate of a topic or of one of its subscriptions.

use std::time::Duration;

use serde_json::{Value, json};

use pharos_admin_api::{DispatchRate, lenient};
use pharos_runtime::Rate;

use super::check::{self, Refusal};
use super::value::{PolicyValue, ToJson};

/// Maximum dispatch in a period; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchRateLimit {
    /// Messages, those of a batch counted one by one.
    pub messages: u32,
    /// Bytes as stored.
    pub bytes: u64,
    /// The period in seconds, at least 1.
    pub period_s: u32,
    /// True if the publish rate is added to the limit.
    pub is_relative: bool,
}

impl Default for DispatchRateLimit {
    /// No limit.
    fn default() -> Self {
        Self {
            messages: 0,
            bytes: 0,
            period_s: 1,
            is_relative: false,
        }
    }
}

impl DispatchRateLimit {
    /// The rate, where `messages` and `bytes` are published a second.
    #[must_use]
    pub fn rate(self, messages: f64, bytes: f64) -> Rate {
        let period = self.period_s.max(1);
        let besides = |published: f64| match self.is_relative {
            true => (published.max(0.0) * f64::from(period)) as u64,
            false => 0,
        };
        let sum = |own: u64, published: f64| match own {
            0 => 0,
            own => own.saturating_add(besides(published)),
        };
        Rate {
            messages: sum(self.messages.into(), messages),
            bytes: sum(self.bytes, bytes),
            period: Duration::from_secs(period.into()),
        }
    }
}

impl PolicyValue for DispatchRateLimit {
    type Json = DispatchRate;

    fn from_json(said: DispatchRate, _: &Self) -> Self {
        Self {
            messages: u32::try_from(said.dispatch_throttling_rate_in_msg).unwrap_or(0),
            bytes: u64::try_from(said.dispatch_throttling_rate_in_byte).unwrap_or(0),
            period_s: u32::try_from(said.rate_period_in_second).unwrap_or(1).max(1),
            is_relative: said.relative_to_publish_rate,
        }
    }
}

impl ToJson for DispatchRateLimit {
    fn to_json(&self) -> Option<Value> {
        Some(json!({
            "dispatchThrottlingRateInMsg": self.messages,
            "dispatchThrottlingRateInByte": self.bytes,
            "relativeToPublishRate": self.is_relative,
            "ratePeriodInSecond": self.period_s,
        }))
    }
}

/// A rate whose period is at least a second.
pub(super) fn check(path: &str, value: Value) -> Result<Value, Refusal> {
    let value = check::shape::<DispatchRate>(path, value)?;
    let period = lenient::<DispatchRate>(value.clone()).map_or(1, |rate| rate.rate_period_in_second);
    if period < 1 {
        let reason = format!("ratePeriodInSecond is {period}, and must be at least 1");
        return Err(Refusal::Value(reason));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_comes_on_top_only_where_it_is_said() {
        let limit = DispatchRateLimit {
            messages: 10,
            bytes: 0,
            period_s: 2,
            is_relative: false,
        };
        let rate = limit.rate(100.0, 1e6);
        assert_eq!((rate.messages, rate.bytes), (10, 0));
        assert_eq!(rate.period, Duration::from_secs(2));
        let relative = DispatchRateLimit {
            is_relative: true,
            ..limit
        };
        let rate = relative.rate(100.0, 1e6);
        assert_eq!(
            (rate.messages, rate.bytes),
            (210, 0),
            "what is not limited stays so"
        );
        assert!(DispatchRateLimit::default().rate(5.0, 5.0).is_off());
    }

    #[test]
    fn a_period_is_at_least_a_second() {
        let rate = |period: i32| json!({"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": period});
        assert!(check("dispatchRate", rate(1)).is_ok());
        for period in [0, -1] {
            let refused = check("dispatchRate", rate(period)).unwrap_err();
            assert!(refused.to_string().contains("at least 1"), "{refused}");
        }
        let said = DispatchRate {
            dispatch_throttling_rate_in_msg: -1,
            dispatch_throttling_rate_in_byte: 7,
            relative_to_publish_rate: true,
            rate_period_in_second: 3,
        };
        let limit = DispatchRateLimit::from_json(said, &DispatchRateLimit::default());
        assert_eq!((limit.messages, limit.bytes, limit.period_s), (0, 7, 3));
    }
}
