//! Offloading: asking for it, hearing what came of it, and what its policies have beside their own paths.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::{OffloadProcessStatus, ResetCursorData};

const OF_TOPIC: &str = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/offload";

table! { Resource::Topics;
    "Begins to offload the closed ledgers before a message."
    START = Route::put(OF_TOPIC, "offload", Action::Offload).takes::<ResetCursorData>().fails(&[404, 405, 409, 501]);
    "What came of the last offload that was asked for."
    STATUS = Route::get(OF_TOPIC, "offloadStatus", Action::ReadStats).json::<OffloadProcessStatus>().fails(&[404, 405, 501]);
}
