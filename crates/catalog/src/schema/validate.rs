//! Is the data of a schema what its type promises.
//!
//! AVRO, JSON and PROTOBUF data is the text of an Avro schema that is no union; PROTOBUF_NATIVE is JSON with three
//! members; primitives carry nothing, but STRING may carry `null`; NONE, BYTES and EXTERNAL are not looked at; the AUTO
//! types are questions, not schemas, and are refused. So is what is too large to be stored, before it is parsed.

use pharos_metadata::VALUE_BYTES_MAX;
use serde_json::Value;

use super::avro::AvroSchema;
use super::types::{SchemaInfo, SchemaType, key_value_sides};

/// The data does not fit the type. Goes to the client as IncompatibleSchema, or 422 in REST.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} schema: {reason}")]
pub struct InvalidSchema {
    /// The type.
    pub kind: SchemaType,
    /// Fault in the data.
    pub reason: String,
}

/// Most bytes of a schema's definition and properties together: what one value of the metadata store holds, less some
/// room for who brought it and when. Pulsar's bound is that of one entry of its store as well.
pub const SCHEMA_BYTES_MAX: usize = VALUE_BYTES_MAX - 4096;

/// Refuses `bytes` above `bytes_max`.
pub(super) fn check_size(kind: SchemaType, bytes: usize, bytes_max: usize) -> Result<(), InvalidSchema> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(InvalidSchema {
        kind,
        reason: format!("definition and properties have {bytes} bytes, at most {bytes_max} are stored"),
    })
}

/// Checks the data of `schema` against its type.
///
/// # Errors
/// [`InvalidSchema`] with the reason.
pub fn validate(schema: &SchemaInfo) -> Result<(), InvalidSchema> {
    let wrong = |reason: &str| {
        Err(InvalidSchema {
            kind: schema.kind,
            reason: reason.to_owned(),
        })
    };
    check_size(schema.kind, schema.bytes(), SCHEMA_BYTES_MAX)?;
    match schema.kind {
        SchemaType::None | SchemaType::Bytes | SchemaType::External => Ok(()),
        SchemaType::Auto | SchemaType::AutoConsume | SchemaType::AutoPublish => {
            wrong("an automatic schema cannot be stored")
        }
        SchemaType::Avro | SchemaType::Json | SchemaType::Protobuf => match AvroSchema::parse(&schema.data) {
            Ok(parsed) if parsed.is_union() => wrong("a union at the top is not supported"),
            Ok(_) => Ok(()),
            Err(error) => wrong(&error.to_string()),
        },
        SchemaType::ProtobufNative => match native_root(&schema.data) {
            Some(_) => Ok(()),
            None => wrong("expected fileDescriptorSet, rootMessageTypeName and rootFileDescriptorName"),
        },
        SchemaType::KeyValue => match key_value_sides(schema) {
            Some((key, value)) => validate(&key).and_then(|()| validate(&value)),
            None => wrong("the key and the value do not come apart"),
        },
        // The Python client says "no definition" of a string as JSON.
        SchemaType::String if &schema.data[..] == b"null" => Ok(()),
        _ if schema.data.is_empty() => Ok(()),
        _ => wrong("a primitive carries no definition"),
    }
}

/// The root message's full name in PROTOBUF_NATIVE data; `None` when the data is not of that form.
pub(super) fn native_root(data: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(data).ok()?;
    for member in ["fileDescriptorSet", "rootFileDescriptorName"] {
        value.get(member).and_then(Value::as_str)?;
    }
    let root = value.get("rootMessageTypeName").and_then(Value::as_str)?;
    Some(root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::types::KeyValueData;

    fn is_valid(kind: SchemaType, data: &str) -> bool {
        validate(&SchemaInfo::new(kind, data.to_owned())).is_ok()
    }

    #[test]
    fn data_must_fit_the_type() {
        for (kind, data, fits) in [
            (SchemaType::None, "anything", true),
            (SchemaType::Bytes, "anything", true),
            (SchemaType::External, "anything", true),
            (SchemaType::String, "", true),
            (SchemaType::String, "null", true),
            (SchemaType::String, "x", false),
            (SchemaType::Int32, "null", false),
            (SchemaType::Avro, r#""string""#, true),
            (SchemaType::Avro, r#"["null","string"]"#, false),
            (SchemaType::Json, "", false),
            (SchemaType::Json, "{}", false),
            (
                SchemaType::Protobuf,
                r#"{"type":"record","name":"R","fields":[]}"#,
                true,
            ),
            (SchemaType::AutoConsume, "", false),
            (SchemaType::ProtobufNative, "{}", false),
            (
                SchemaType::ProtobufNative,
                r#"{"fileDescriptorSet":"","rootMessageTypeName":"a.M","rootFileDescriptorName":"m.proto"}"#,
                true,
            ),
            (SchemaType::KeyValue, "", false),
        ] {
            assert_eq!(is_valid(kind, data), fits, "{kind} {data}");
        }
    }

    #[test]
    fn both_sides_of_key_value_are_checked() {
        let data = KeyValueData {
            key: "x".into(),
            value: "".into(),
        };
        let mut schema = SchemaInfo::new(SchemaType::KeyValue, data.encode());
        assert!(validate(&schema).is_ok());
        schema
            .properties
            .insert("key.schema.type".into(), "STRING".into());
        assert!(validate(&schema).is_err());
    }
}
