//! Who serves a topic.

use super::{Resource, Route};
use crate::LookupData;
use crate::query::LookupQuery;

table! { Resource::Lookup;
    "The addresses of the broker that serves a topic."
    TOPIC = Route::get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", "topic").query::<LookupQuery>()
        .json::<LookupData>().fails(&[404]);
    "The bundle that a topic falls into."
    BUNDLE = Route::get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle", "bundle").text().fails(&[404]);
}
