//! The JSON form of what goes in and out, as a JSON Schema where one is asked for.
//!
//! Only the writer of the OpenAPI document does, so schemas cost a feature, and the broker is built without it.

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// What has a JSON form that can be described. With the feature `schema` that is what has a JSON Schema.
#[cfg(feature = "schema")]
pub trait Described: JsonSchema {}
#[cfg(feature = "schema")]
impl<T: JsonSchema> Described for T {}

/// What has a JSON form that can be described. With the feature `schema` that is what has a JSON Schema.
#[cfg(not(feature = "schema"))]
pub trait Described {}
#[cfg(not(feature = "schema"))]
impl<T> Described for T {}

/// The JSON form of one type.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Writes its schema; a named type becomes a reference to the generator's definitions.
    #[cfg(feature = "schema")]
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Writes its schema in place, whatever the type.
    #[cfg(feature = "schema")]
    pub schema_in_place: fn(&mut SchemaGenerator) -> Schema,
}

impl Shape {
    /// That of `T`.
    #[must_use]
    pub const fn of<T: Described>() -> Self {
        Self {
            #[cfg(feature = "schema")]
            schema: SchemaGenerator::subschema_for::<T>,
            #[cfg(feature = "schema")]
            schema_in_place: T::json_schema,
        }
    }
}
