//! Reading values as Pulsar does: numbers and booleans may be written as text.

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

/// Reads a value whose numbers and booleans may be written as text, and whose whole numbers as `3.0`.
///
/// # Errors
/// What the value is as it came; it does not fit as text either.
pub fn lenient<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    T::deserialize(&value).or_else(|error| T::deserialize(scalars(value)).map_err(|_| error))
}

/// The value with every text that is a number or a boolean as that.
fn scalars(value: Value) -> Value {
    match value {
        Value::String(text) => scalar(text),
        Value::Number(number) => Value::Number(whole(number)),
        Value::Array(items) => items.into_iter().map(scalars).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, scalars(value)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

fn scalar(text: String) -> Value {
    let trimmed = text.trim();
    if let Ok(flag) = trimmed.parse::<bool>() {
        return flag.into();
    }
    if let Ok(number) = trimmed.parse::<i64>() {
        return number.into();
    }
    let number = trimmed.parse::<f64>().ok().and_then(Number::from_f64);
    number.map_or(Value::String(text), |number| Value::Number(whole(number)))
}

/// `3.0` as 3; what no double holds exactly stays as it is.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < 9e15 => {
            Number::from(value as i64)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{DispatchRate, TenantInfo};

    #[test]
    fn numbers_and_booleans_may_be_text() {
        assert!(lenient::<bool>(json!("true")).unwrap());
        assert_eq!(lenient::<i64>(json!(" -7 ")).unwrap(), -7);
        assert_eq!(lenient::<i64>(json!(3.0)).unwrap(), 3);
        assert_eq!(lenient::<String>(json!("3")).unwrap(), "3");
        let rate: DispatchRate = lenient(json!({
            "dispatchThrottlingRateInMsg": "5", "relativeToPublishRate": "true", "ratePeriodInSecond": "2"
        }))
        .unwrap();
        assert_eq!(
            (rate.dispatch_throttling_rate_in_msg, rate.rate_period_in_second),
            (5, 2)
        );
        assert!(rate.relative_to_publish_rate);
        for wrong in [json!("x"), json!(""), json!(3.5), json!("1e99")] {
            assert!(lenient::<i64>(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(lenient::<TenantInfo>(json!({"adminRoles": "7"})).is_err());
    }
}
