//! Paths of the API, and how names go into them.

/// Prefix of everything about clusters.
pub const CLUSTERS: &str = "/admin/v2/clusters";
/// Prefix of everything about tenants.
pub const TENANTS: &str = "/admin/v2/tenants";
/// Prefix of everything about namespaces.
pub const NAMESPACES: &str = "/admin/v2/namespaces";
/// Prefix of everything about schemas.
pub const SCHEMAS: &str = "/admin/v2/schemas";
/// Prefix of everything about brokers.
pub const BROKERS: &str = "/admin/v2/brokers";
/// Prefix of lookups.
pub const LOOKUP: &str = "/lookup/v2/topic";
/// The metrics page.
pub const METRICS: &str = "/metrics";
/// The page that says whether the node is ready.
pub const STATUS: &str = "/status.html";

/// The path of a topic: `/admin/v2/persistent/tenant/namespace/topic`.
///
/// `domain`: `persistent` or `non-persistent`. The local name is percent-encoded, so it may hold anything.
#[must_use]
pub fn topic(domain: &str, namespace: &str, local: &str) -> String {
    format!("/admin/v2/{domain}/{namespace}/{}", encode_part(local))
}

/// Percent-encodes one path part: everything but letters, digits and `-._~`.
#[must_use]
pub fn encode_part(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The path of a topic's subscription: `/admin/v2/persistent/tenant/namespace/topic/subscription/name`.
#[must_use]
pub fn subscription(topic_path: &str, name: &str) -> String {
    // A path takes the name of a subscription encoded twice, see `decode_subscription`.
    format!("{topic_path}/subscription/{}", encode_part(&encode_part(name)))
}

/// Decodes the local name of a topic, once and by the rules of forms, in which `+` is a space, as Pulsar does. `a%2520b` is the
/// topic `a%20b`. `None` when the bytes are not UTF-8.
#[must_use]
pub fn decode_topic(raw: &str) -> Option<String> {
    percent_decode(&raw.replace('+', " "))
}

/// Decodes the name of a subscription as Pulsar does, twice: as a part of a path, and then by the rules of forms, in which `+` is a
/// space. Its tools encode so: `a b` comes as `a%2Bb`, and `a%20b` as `a%252520b`. A name that came encoded once is read
/// well if it has no `+`, and nothing that looks like an escape. `None` when the bytes are not UTF-8.
#[must_use]
pub fn decode_subscription(raw: &str) -> Option<String> {
    percent_decode(&percent_decode(raw)?.replace('+', " "))
}

/// Decodes another part of a path, such as the name of a role, as clients write it: encoded once or twice, with or without the rules of
/// forms, in which `+` is a space. So: percent-decode with `+` as space, and if escapes remain, percent-decode once more, without
/// `+`. A name that itself holds something like `%41` cannot be told from one encoded twice. `None` when the bytes are not UTF-8.
#[must_use]
pub fn decode_part(raw: &str) -> Option<String> {
    let once = percent_decode(&raw.replace('+', " "))?;
    if has_escape(&once) {
        percent_decode(&once).or(Some(once))
    } else {
        Some(once)
    }
}

/// Decodes a name or a value of a query, once: `+` is a space. `None` when the bytes are not UTF-8.
#[must_use]
pub fn decode_query(raw: &str) -> Option<String> {
    percent_decode(&raw.replace('+', " "))
}

fn has_escape(text: &str) -> bool {
    text.as_bytes()
        .windows(3)
        .any(|w| w.first() == Some(&b'%') && w.iter().skip(1).all(u8::is_ascii_hexdigit))
}

/// Undoes percent-encoding; a `%` that starts no escape stays as it is.
fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = match (first, tail) {
            (b'%', [high, low, after @ ..]) => hex(*high).zip(hex(*low)).map(|(h, l)| (h * 16 + l, after)),
            _ => None,
        };
        let (byte, after) = escape.unwrap_or((first, tail));
        out.push(byte);
        rest = after;
    }
    String::from_utf8(out).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_encoded_once_or_twice_decode_to_the_same() {
        for name in ["plain", "a b", "a+b", "ü", "a:b@c", "50%", "100% sure", "a&b?c#d"] {
            let once = encode_part(name);
            assert_eq!(decode_part(&once).as_deref(), Some(name), "{once}");
            let twice = encode_part(&once);
            assert_eq!(decode_part(&twice).as_deref(), Some(name), "{twice}");
        }
    }

    #[test]
    fn a_topic_is_decoded_once() {
        for name in ["plain", "a b", "a+b", "ü", "50%", "a%20b", "a%2Fb", "%252F"] {
            assert_eq!(decode_topic(&encode_part(name)).as_deref(), Some(name));
        }
        assert_eq!(decode_topic("a+b").as_deref(), Some("a b"));
    }

    /// On the right what pulsar-admin sends.
    #[test]
    fn a_subscription_is_decoded_twice() {
        for (name, sent) in [
            ("a b", "a%2Bb"),
            ("a+b", "a%252Bb"),
            ("a%20b", "a%252520b"),
            ("a/b", "a%252Fb"),
        ] {
            assert_eq!(decode_subscription(sent).as_deref(), Some(name));
            let path = subscription("t", name);
            let ours = path.strip_prefix("t/subscription/").and_then(decode_subscription);
            assert_eq!(ours.as_deref(), Some(name));
        }
        for (name, once) in [
            ("a b", "a%20b"),
            ("a b", "a+b"),
            ("a/b", "a%2Fb"),
            ("50%", "50%25"),
        ] {
            assert_eq!(decode_subscription(once).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_raw_plus_is_a_space() {
        assert_eq!(decode_part("a+b").as_deref(), Some("a b"));
        assert_eq!(decode_part("a+%252Bb").as_deref(), Some("a +b"));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(decode_part("%FF"), None);
        assert_eq!(decode_part("%"), Some("%".into()));
        assert_eq!(decode_part("%zz"), Some("%zz".into()));
    }
}
