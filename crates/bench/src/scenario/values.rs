//! Values of a workload file as people write them: `"10KB"`, `"30s"`, `"closed-loop"`, or plain numbers.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::units::{parse_bytes, parse_duration};

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

/// A length of time; a bare number is seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

/// Something a second; 0 is a closed loop: the next is sent when there is room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate(pub(super) f64);

struct Text<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.parse)(&number.to_string()).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.parse)(&number.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        (self.parse)(&number.to_string()).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text {
            expected: "a size such as 300 or \"10KB\"",
            parse: |text| parse_bytes(text).map(Size),
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text {
            expected: "a duration such as 30 or \"500ms\"",
            parse: |text| parse_duration(text).map(Span),
        })
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text {
            expected: "messages a second or \"closed-loop\"",
            parse: |text| match text {
                "closed-loop" => Ok(Rate(0.0)),
                number => match number.parse() {
                    Ok(rate) if rate >= 0.0 => Ok(Rate(rate)),
                    _ => Err(format!("`{number}` is neither a rate nor \"closed-loop\"")),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct All {
        size: Size,
        span: Span,
        rate: Rate,
    }

    fn read(text: &str) -> Result<All, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn numbers_and_texts_mean_the_same() {
        let all = read("size = '1KB'\nspan = 2\nrate = 'closed-loop'").expect("reads");
        assert_eq!((all.size.0, all.span.0.as_secs(), all.rate.0), (1024, 2, 0.0));
        let all = read("size = 300\nspan = '20ms'\nrate = 1.5").expect("reads");
        assert_eq!((all.size.0, all.span.0.as_millis(), all.rate.0), (300, 20, 1.5));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(read("size = 'big'\nspan = 1\nrate = 1").is_err());
        assert!(read("size = 1\nspan = 1\nrate = -1").is_err());
        assert!(read("size = 1\nspan = true\nrate = 1").is_err());
    }
}
