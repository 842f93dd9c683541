//! Tenants.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::TenantInfo;
use crate::query::ForceQuery;

const ONE: &str = "/admin/v2/tenants/{tenant}";

table! { Resource::Tenants;
    "Lists the tenants."
    LIST = Route::get("/admin/v2/tenants", "list", Action::ListTenants).json::<Vec<String>>();
    "What is stored about a tenant."
    READ = Route::get(ONE, "read", Action::ReadTenant).json::<TenantInfo>().fails(&[404]);
    "Makes a tenant. At least one cluster must be allowed."
    CREATE = Route::put(ONE, "create", Action::CreateTenant).may_take::<TenantInfo>().fails(&[409]);
    "Changes a tenant."
    UPDATE = Route::post(ONE, "update", Action::UpdateTenant).takes::<TenantInfo>().fails(&[404]);
    "Deletes a tenant; with `force` its namespaces as well, where settings allow that."
    DELETE = Route::delete(ONE, "delete", Action::DeleteTenant).query::<ForceQuery>().fails(&[404, 405, 409]);
}
