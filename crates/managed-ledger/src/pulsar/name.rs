//! Names of cursors and topics in nodes: what Java's `URLEncoder` makes of them.

/// A topic's or a cursor's name as Pulsar has it in a path of the metadata store: as Java's `URLEncoder` writes it.
#[must_use]
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => {
                encoded.push(char::from(byte))
            }
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// The name of a part of a path; `None` of what [`encode`] does not make.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let mut name = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        name.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (char::from(rest.next()?), char::from(rest.next()?));
                u8::try_from(high.to_digit(16)? * 16 + low.to_digit(16)?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(name).ok()
}
