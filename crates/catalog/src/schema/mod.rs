//! Schemas: what they are, whether they are valid, whether one may follow another, and which ones a topic has.
//!
//! Pure parts first (types, avro, validate, compat, history); the registry keeps what they let through.

mod avro;
mod compat;
mod examine;
mod histories;
mod history;
mod registry;
mod types;
mod validate;

pub use avro::{AvroError, AvroSchema};
pub use compat::{Incompatible, SchemaCompatibilityStrategy, UnknownStrategy, check_compatible};
pub(crate) use histories::Histories;
pub use history::{History, SchemaEntry};
pub use registry::{AddedSchema, SchemaError, Schemas};
pub use types::{KeyValueData, SchemaInfo, SchemaType, SchemaVersion, UnknownSchemaType, key_value_sides};
pub use validate::{InvalidSchema, SCHEMA_BYTES_MAX, validate};
