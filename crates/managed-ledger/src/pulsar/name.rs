//! Names of cursors and topics in nodes: what Java's `URLEncoder` makes of them.

use pharos_metadata::MetadataLayout;
use pharos_types::TopicName;

/// The name under which a topic's log is kept: `tenant/namespace/persistent/local`, the local part percent-encoded, as the layout has
/// it.
#[must_use]
pub fn storage_name(name: &TopicName, layout: MetadataLayout) -> String {
    let local = match layout {
        MetadataLayout::Pharos => percent_encoded(name.local()),
        MetadataLayout::Pulsar => encode(name.local()),
    };
    format!("{}/{}/{local}", name.namespace(), name.domain().as_str())
}

fn percent_encoded(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// A topic's or a cursor's name as Pulsar has it in a path of the metadata store: as Java's `URLEncoder` writes it.
#[must_use]
pub(crate) fn encode(name: &str) -> String {
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
