//! Schema types: names in the registry and numbers on the wire; a schema's data and its version.
//!
//! The registry and the wire number the types differently: bytes have no number on the wire (they travel as NONE),
//! AUTO_CONSUME is 21 on the wire and -3 in the registry, EXTERNAL is 22 on the wire and 21 in the registry. Only the
//! names of the registry are stored, so the numbers stay here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The kind of a schema, in the registry's words (`AVRO`, `KEY_VALUE`, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are Pulsar's own and say all there is")]
pub enum SchemaType {
    None,
    Bytes,
    String,
    Json,
    Protobuf,
    Avro,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float,
    Double,
    Date,
    Time,
    Timestamp,
    KeyValue,
    Instant,
    LocalDate,
    LocalTime,
    LocalDateTime,
    ProtobufNative,
    External,
    Auto,
    AutoConsume,
    AutoPublish,
}

/// Every type with its registry name; the one table that parsing and printing share.
const NAMES: [(SchemaType, &str); 26] = [
    (SchemaType::None, "NONE"),
    (SchemaType::Bytes, "BYTES"),
    (SchemaType::String, "STRING"),
    (SchemaType::Json, "JSON"),
    (SchemaType::Protobuf, "PROTOBUF"),
    (SchemaType::Avro, "AVRO"),
    (SchemaType::Boolean, "BOOLEAN"),
    (SchemaType::Int8, "INT8"),
    (SchemaType::Int16, "INT16"),
    (SchemaType::Int32, "INT32"),
    (SchemaType::Int64, "INT64"),
    (SchemaType::Float, "FLOAT"),
    (SchemaType::Double, "DOUBLE"),
    (SchemaType::Date, "DATE"),
    (SchemaType::Time, "TIME"),
    (SchemaType::Timestamp, "TIMESTAMP"),
    (SchemaType::KeyValue, "KEY_VALUE"),
    (SchemaType::Instant, "INSTANT"),
    (SchemaType::LocalDate, "LOCAL_DATE"),
    (SchemaType::LocalTime, "LOCAL_TIME"),
    (SchemaType::LocalDateTime, "LOCAL_DATE_TIME"),
    (SchemaType::ProtobufNative, "PROTOBUF_NATIVE"),
    (SchemaType::External, "EXTERNAL"),
    (SchemaType::Auto, "AUTO"),
    (SchemaType::AutoConsume, "AUTO_CONSUME"),
    (SchemaType::AutoPublish, "AUTO_PUBLISH"),
];

impl SchemaType {
    /// The registry name, as REST and the schema properties have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        NAMES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("NONE", |(_, name)| name)
    }

    /// True if the data is the JSON text of an Avro schema.
    #[must_use]
    pub fn is_avro_like(self) -> bool {
        matches!(self, Self::Avro | Self::Json | Self::Protobuf)
    }

    /// True if the type is the complete schema, so that the data must be empty.
    #[must_use]
    pub fn is_primitive(self) -> bool {
        matches!(
            self,
            Self::String
                | Self::Boolean
                | Self::Int8
                | Self::Int16
                | Self::Int32
                | Self::Int64
                | Self::Float
                | Self::Double
                | Self::Date
                | Self::Time
                | Self::Timestamp
                | Self::Instant
                | Self::LocalDate
                | Self::LocalTime
                | Self::LocalDateTime
        )
    }
}

impl fmt::Display for SchemaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no schema type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schema type")]
pub struct UnknownSchemaType;

impl FromStr for SchemaType {
    type Err = UnknownSchemaType;

    fn from_str(text: &str) -> Result<Self, UnknownSchemaType> {
        NAMES
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(kind, _)| *kind)
            .ok_or(UnknownSchemaType)
    }
}

/// A schema as a client hands it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaInfo {
    /// Its kind.
    pub kind: SchemaType,
    /// The definition: JSON text for the Avro-like types, two sides for KEY_VALUE, empty for primitives.
    pub data: Bytes,
    /// Kept and handed back unread, except the `key.schema.*` and `value.schema.*` of KEY_VALUE.
    pub properties: BTreeMap<String, String>,
}

impl SchemaInfo {
    /// A schema without properties.
    #[must_use]
    pub fn new(kind: SchemaType, data: impl Into<Bytes>) -> Self {
        Self {
            kind,
            data: data.into(),
            properties: BTreeMap::new(),
        }
    }

    /// As it is stored: BYTES is NONE there, because it is on the wire.
    #[must_use]
    pub fn as_stored(mut self) -> Self {
        if self.kind == SchemaType::Bytes {
            self.kind = SchemaType::None;
        }
        self
    }

    /// Bytes of the definition and of the properties.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let properties = self.properties.iter();
        let properties: usize = properties.map(|(name, value)| name.len() + value.len()).sum();
        self.data.len().saturating_add(properties)
    }
}

/// The version of a schema within its topic: 0, 1, 2, ... Eight bytes, big-endian, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SchemaVersion(pub u64);

impl SchemaVersion {
    /// The bytes that clients carry about; they do not look inside.
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }

    /// The version in those bytes; `None` when they are not eight.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u64::from_be_bytes(bytes)))
    }

    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The two sides of a KEY_VALUE schema's data: four bytes of length and the bytes, twice; length -1 is an absent side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueData {
    /// The key's schema data.
    pub key: Bytes,
    /// The value's schema data.
    pub value: Bytes,
}

impl KeyValueData {
    /// Takes the two sides apart; `None` when the lengths do not fit the data exactly.
    #[must_use]
    pub fn decode(data: &Bytes) -> Option<Self> {
        let (key, rest) = take_side(data)?;
        let (value, rest) = take_side(&rest)?;
        rest.is_empty().then_some(Self { key, value })
    }

    /// Puts the two sides together.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(8 + self.key.len() + self.value.len());
        for side in [&self.key, &self.value] {
            let bytes = i32::try_from(side.len()).unwrap_or(i32::MAX);
            out.extend_from_slice(&bytes.to_be_bytes());
            out.extend_from_slice(side);
        }
        out.into()
    }
}

fn take_side(data: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = i32::from_be_bytes(data.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length.max(0)).ok()?;
    let end = length.checked_add(4)?;
    (end <= data.len()).then(|| (data.slice(4..end), data.slice(end..)))
}

/// The two sides of a KEY_VALUE schema as schemas of their own; `None` when the data does not come apart. A side whose
/// type is not named in the properties counts as BYTES.
#[must_use]
pub fn key_value_sides(schema: &SchemaInfo) -> Option<(SchemaInfo, SchemaInfo)> {
    let sides = KeyValueData::decode(&schema.data)?;
    let kind = |property: &str| match schema.properties.get(property) {
        Some(name) => name.parse().ok(),
        None => Some(SchemaType::Bytes),
    };
    Some((
        SchemaInfo::new(kind("key.schema.type")?, sides.key),
        SchemaInfo::new(kind("value.schema.type")?, sides.value),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_wire_numbers_come_back() {
        for (kind, name) in NAMES {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
        assert_eq!("avro".parse::<SchemaType>(), Err(UnknownSchemaType));
    }

    #[test]
    fn versions_are_eight_bytes_big_endian() {
        assert_eq!(
            SchemaVersion(258).to_bytes().as_ref(),
            [0, 0, 0, 0, 0, 0, 1, 2].as_slice()
        );
        assert_eq!(
            SchemaVersion::from_bytes(&[0, 0, 0, 0, 0, 0, 1, 2]),
            Some(SchemaVersion(258))
        );
        assert_eq!(SchemaVersion::from_bytes(&[]), None);
    }

    #[test]
    fn key_value_data_comes_apart() {
        let sides = KeyValueData {
            key: Bytes::from_static(b"ab"),
            value: Bytes::new(),
        };
        assert_eq!(KeyValueData::decode(&sides.encode()), Some(sides));
        let absent = Bytes::from_static(&[255, 255, 255, 255, 0, 0, 0, 1, 7]);
        assert_eq!(KeyValueData::decode(&absent).unwrap().value.as_ref(), &[7]);
        for wrong in [&[0_u8, 0, 0][..], &[0, 0, 0, 9, 1], &[0, 0, 0, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(KeyValueData::decode(&Bytes::copy_from_slice(wrong)), None);
        }
    }
}
