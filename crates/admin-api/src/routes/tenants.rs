//! Tenants.

use super::{Resource, Route};
use crate::TenantInfo;
use crate::query::ForceQuery;

const ONE: &str = "/admin/v2/tenants/{tenant}";

table! { Resource::Tenants;
    "Lists the tenants."
    LIST = Route::get("/admin/v2/tenants", "list").json::<Vec<String>>();
    "What is stored about a tenant."
    READ = Route::get(ONE, "read").json::<TenantInfo>().fails(&[404]);
    "Makes a tenant. At least one cluster must be allowed."
    CREATE = Route::put(ONE, "create").may_take::<TenantInfo>().fails(&[409]);
    "Changes a tenant."
    UPDATE = Route::post(ONE, "update").takes::<TenantInfo>().fails(&[404]);
    "Deletes a tenant; with `force` its namespaces as well, where settings allow that."
    DELETE = Route::delete(ONE, "delete").query::<ForceQuery>().fails(&[404, 405, 409]);
}
