//! Schemas of topics.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::ForceQuery;
use crate::{
    DeleteSchemaResponse, GetAllVersionsSchemaResponse, GetSchemaResponse, IsCompatibilityResponse,
    LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v2/schemas/{tenant}/{namespace}/{topic}/", $rest)
    };
}

table! { Resource::Schemas;
    "The newest schema of a topic."
    LATEST = Route::get(at!("schema"), "latest", Action::ReadSchema).json::<GetSchemaResponse>().fails(&[404]);
    "One version of a topic's schema."
    BY_VERSION = Route::get(at!("schema/{version}"), "byVersion", Action::ReadSchema).json::<GetSchemaResponse>().fails(&[404]);
    "Adds a schema, or finds it among those that are there."
    ADD = Route::post(at!("schema"), "add", Action::UpdateSchema).takes::<PostSchemaPayload>().json::<PostSchemaResponse>()
        .fails(&[404, 409, 422]);
    "Deletes the schema of a topic; with `force` its history as well."
    DELETE = Route::delete(at!("schema"), "delete", Action::DeleteSchema).query::<ForceQuery>().json::<DeleteSchemaResponse>().fails(&[404]);
    "All versions of a topic's schema."
    ALL = Route::get(at!("schemas"), "all", Action::ReadSchema).json::<GetAllVersionsSchemaResponse>().fails(&[404]);
    "Whether a schema would be accepted."
    COMPATIBILITY = Route::post(at!("compatibility"), "compatibility", Action::ReadSchema).takes::<PostSchemaPayload>()
        .json::<IsCompatibilityResponse>().with_status(202).fails(&[404, 422]);
    "Which version a schema is; -1 when it is none."
    VERSION_OF = Route::post(at!("version"), "versionOf", Action::ReadSchema).takes::<PostSchemaPayload>().json::<LongSchemaVersion>()
        .fails(&[404, 422]);
}
