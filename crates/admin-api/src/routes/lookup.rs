//! Who serves a topic.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::LookupData;
use crate::query::LookupQuery;

table! { Resource::Lookup;
    "The addresses of the broker that serves a topic."
    TOPIC = Route::get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", "topic", Action::Lookup).query::<LookupQuery>()
        .json::<LookupData>().fails(&[404]);
    "The bundle that a topic falls into."
    BUNDLE = Route::get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle", "bundle", Action::Lookup).text().fails(&[404]);
}
