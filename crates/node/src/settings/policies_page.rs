//! The reference page of policies, written from their registry.

use std::fmt::Write as _;
use std::sync::Arc;

use pharos_catalog::CatalogOptions;
use pharos_catalog::policy::{self, Level, Levels, Method, Row};

use super::table::by_key;

const INTRODUCTION: &str = "\
# Policies

<!-- Made from the registry of policies; a test compares. Do not edit. -->

What may be said about a namespace or a topic. Paths are those of Apache Pulsar 4.2: `GET` reads, `DELETE` removes, and `POST` sets
where the table does not say `PUT`. What the values do together, [keeping-data.md](../keeping-data.md) says.

- What a topic says goes over what its namespace says, and that over the broker's setting. `applied=true` on a topic's policy
  answers what holds. Policies of a partition are its partitioned topic's.
- The path of a namespace is below `/admin/v2/namespaces/{tenant}/{namespace}/`, that of a topic below
  `/admin/v2/persistent/{tenant}/{namespace}/{topic}/`. The member is its name in the whole of a namespace's policies.
- `backlogQuota` is read at `backlogQuotaMap`, and set and removed for one `backlogQuotaType`.
- Not for system topics: limits, quotas and expiry, marked †.
";

/// The page.
#[must_use]
pub fn markdown_policies() -> String {
    let mut out = String::from(INTRODUCTION);
    out.push_str("\n## What is acted on\n\n");
    out.push_str("| what it does | value | broker | namespace | topic |\n|---|---|---|---|---|\n");
    for row in policy::all().filter(|row| !row.acts.is_empty()) {
        let spared = if row.spares_system_topics { " †" } else { "" };
        let _ = writeln!(
            out,
            "| {}{spared} | {} | {} | {} | {} |",
            row.about.trim(),
            row.value,
            of_broker(row),
            of_namespace(row),
            of_topic(row),
        );
    }
    out.push_str(
        "\n## What nothing acts on yet\n\nIt can be set to a value that means \"off\", because tools do; anything else answers 501.\n\n",
    );
    out.push_str("| what it would do | value | namespace | topic |\n|---|---|---|---|\n");
    for row in policy::all().filter(|row| row.acts.is_empty()) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            row.about.trim(),
            row.value,
            of_namespace(row),
            of_topic(row),
        );
    }
    out
}

/// The settings that are the broker's level, with their defaults.
fn of_broker(row: &Row) -> String {
    let settings = row.settings.iter().filter_map(|key| by_key(key));
    let settings: Vec<String> = settings
        .map(|setting| match setting.default() {
            default if default.is_empty() => format!("`{}`, empty", setting.key),
            default => format!("`{}` = `{default}`", setting.key),
        })
        .collect();
    if !settings.is_empty() {
        return settings.join(", ");
    }
    let options = CatalogOptions::default();
    let value = (row.applied)(&Levels::of_broker(
        Arc::new(options.policies.clone()),
        &options.cluster_name,
    ));
    value.map_or_else(String::new, |value| format!("always `{value}`"))
}

fn of_namespace(row: &Row) -> String {
    let mut said = Vec::new();
    if let Some(at) = row.namespace {
        if !at.path.is_empty() {
            said.push(format!("`{}`{}", at.path, put(at.set)));
        }
        let per = if at.by_cluster { " by cluster" } else { "" };
        said.push(format!("member `{}`{per}", at.member));
    }
    if !row.property.is_empty() {
        said.push(format!("property `{}`", row.property));
    }
    said.join(", ")
}

fn of_topic(row: &Row) -> String {
    match row.topic {
        Some(at) => {
            let idle = row.acts_on(Level::Namespace) && !at.acts;
            let idle = if idle { ", not acted on" } else { "" };
            format!("`{}`{}{idle}", at.path, put(at.set))
        }
        None if row.name == "durability" => format!("property `{}`", row.property),
        None => String::new(),
    }
}

fn put(method: Method) -> &'static str {
    match method {
        Method::Post => "",
        Method::Put => " (PUT)",
    }
}
