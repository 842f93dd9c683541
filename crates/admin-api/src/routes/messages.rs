//! Single stored messages. The body is the payload as it is stored, still compressed and batched.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::ExamineQuery;

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v2/{domain}/{tenant}/{namespace}/{topic}", $rest)
    };
}

table! { Resource::Messages;
    "The nth message of a topic, from one of its ends."
    EXAMINE = Route::get(at!("/examinemessage"), "examine", Action::ReadMessages).query::<ExamineQuery>().message().fails(&[404, 405, 501]);
    "The message of an id."
    BY_ID = Route::get(at!("/ledger/{ledger}/entry/{entry}"), "byId", Action::ReadMessages).message().fails(&[404, 405, 501]);
    "The nth entry of a subscription's backlog, from 1."
    PEEK = Route::get(at!("/subscription/{subscription}/position/{position}"), "peek", Action::ReadMessages).message().fails(&[404, 405, 501]);
}
