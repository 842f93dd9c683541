//! `openapi/admin.json`: the route table of the admin API as an OpenAPI 3.1 document.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use pharos_admin_api::ErrorData;
use pharos_admin_api::routes::{self, Answer, Body, COMMON_FAILURES, DOMAIN, Resource, Route};
use pharos_admin_api::shape::Shape;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Where the document keeps the schemas of named types.
const SCHEMAS: &str = "/components/schemas";

/// The document.
///
/// # Errors
/// A row names a path parameter or a status that nothing is known about, or a query that is no set of members.
pub(crate) fn document() -> Result<String> {
    let mut schemas = generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes::all() {
        let described = operation(route, &mut schemas).with_context(|| route.id())?;
        let method = route.method.as_str().to_lowercase();
        let item = paths.entry(route.path).or_default();
        item.insert(method, described);
        let names: Vec<Value> = route.path_parameters().map(reference_to_parameter).collect();
        item.insert("parameters".to_owned(), names.into());
    }
    let tags =
        Resource::ALL.map(|resource| json!({"name": resource.as_str(), "description": resource.title()}));
    let error = schemas.subschema_for::<ErrorData>();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Pharos admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Paths, methods, members and statuses are those of Apache Pulsar 4.2.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost:8080", "description": "The default of `http_listen`."}],
        "tags": tags,
        "paths": paths,
        "components": {
            "parameters": path_parameters()?,
            "responses": failures(&error)?,
            "schemas": schemas.take_definitions(true),
        },
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

/// Makes schemas of types that clients send and read.
pub(super) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Result<Value> {
    let mut described = json!({
        "operationId": route.id(),
        "tags": [route.resource.as_str()],
        "summary": route.summary,
        "parameters": query_parameters(route.query, schemas)?,
        "responses": responses(route, schemas)?,
    });
    if let Some(Body { shape, is_optional }) = route.body {
        described["requestBody"] = json!({
            "required": !is_optional,
            "content": {"application/json": {"schema": (shape.schema)(schemas)}},
        });
    }
    Ok(described)
}

fn reference_to_parameter(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// All names that stand in braces in any path.
fn path_parameters() -> Result<Map<String, Value>> {
    let mut described = Map::new();
    for name in routes::all().flat_map(Route::path_parameters) {
        let (schema, description) = path_parameter(name)?;
        let parameter = json!({"name": name, "in": "path", "required": true, "schema": schema, "description": description});
        described.insert(name.to_owned(), parameter);
    }
    Ok(described)
}

/// What is known about the names in braces.
fn path_parameter(name: &str) -> Result<(Value, &'static str)> {
    let text = json!({"type": "string", "minLength": 1});
    let number = json!({"type": "integer", "minimum": 0});
    Ok(match name {
        DOMAIN => (
            json!({"enum": ["persistent", "non-persistent"]}),
            "Whether messages are stored.",
        ),
        "tenant" => (text, "Name of the tenant."),
        "namespace" => (text, "Name of the namespace, without its tenant."),
        "topic" => (text, "Name of the topic, without its namespace."),
        "subscription" => (text, "Name of the subscription."),
        "cluster" => (text, "Name of the cluster."),
        "broker" => (text, "`host:port` of the broker's HTTP service."),
        "bookie" => (text, "Name of the bookie, as the list of bookies has it."),
        "bundle" => (text, "The bundle, as `0x40000000_0x80000000`."),
        "policy" => (text, "Name of the isolation policy."),
        "domainName" => (text, "Name of the failure domain."),
        "role" => (text, "The role."),
        "key" => (text, "Name of the property."),
        "setting" => (text, "Name of the setting."),
        "value" => (text, "Value of the property or setting."),
        "timestamp" => (number, "Milliseconds since 1970."),
        "seconds" => (number, "Seconds."),
        "count" => (number, "How many entries."),
        "position" => (number, "Which entry of the backlog, from 1."),
        "ledger" => (number, "Id of the ledger."),
        "entry" => (number, "Id of the entry in its ledger."),
        "version" => (number, "Version of the schema, from 0."),
        "mostSigBits" => (number, "Number of the transaction's coordinator."),
        "leastSigBits" => (number, "Number of the transaction there."),
        "timeout" => (number, "Milliseconds."),
        _ => bail!("nothing is known about the path parameter {name}"),
    })
}

/// The members of a query, each a parameter of its own.
pub(super) fn query_parameters(query: Option<Shape>, schemas: &mut SchemaGenerator) -> Result<Vec<Value>> {
    let Some(shape) = query else {
        return Ok(Vec::new());
    };
    let schema = (shape.schema_in_place)(schemas).to_value();
    let members = schema["properties"].as_object().context("a query has members")?;
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let described = members.iter().map(|(name, schema)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // What may be left out is left out, never `null`.
        if let Some(kind) = schema["type"].as_array().and_then(|kinds| kinds.first().cloned()) {
            schema["type"] = kind;
        }
        if schema["default"].is_null() {
            schema.as_object_mut().map(|schema| schema.remove("default"));
        }
        let is_required = required.iter().any(|required| required == name);
        json!({"name": name, "in": "query", "required": is_required, "schema": schema, "description": description})
    });
    Ok(described.collect())
}

fn responses(route: &Route, schemas: &mut SchemaGenerator) -> Result<Map<String, Value>> {
    let mut responses = Map::new();
    let json_of = |schema: schemars::Schema| json!({"application/json": {"schema": schema}});
    let content = match route.answer {
        Answer::Nothing => None,
        Answer::Json(shape) | Answer::JsonOrNothing(shape) => Some(json_of((shape.schema)(schemas))),
        Answer::Text | Answer::TextOrNothing => Some(json!({"text/plain": {"schema": {"type": "string"}}})),
        Answer::Message => Some(json!({"application/octet-stream": {}})),
    };
    let mut good = json!({"description": if content.is_some() { "The answer." } else { "Done." }});
    if let Some(content) = content {
        good["content"] = content;
    }
    responses.insert(route.status.to_string(), good);
    if matches!(route.answer, Answer::JsonOrNothing(_) | Answer::TextOrNothing) {
        responses.insert("204".to_owned(), json!({"description": "It is not set."}));
    }
    if route.may_be_elsewhere() {
        responses.insert(
            "307".to_owned(),
            json!({"$ref": "#/components/responses/Elsewhere"}),
        );
    }
    for status in failures_of(route) {
        let name = failure(status)?.0;
        let reference = format!("#/components/responses/{name}");
        responses.insert(status.to_string(), json!({"$ref": reference}));
    }
    Ok(responses)
}

/// The statuses with which an operation may fail, its own and those of every operation.
pub(super) fn failures_of(route: &Route) -> Vec<u16> {
    let of_bodies: &[u16] = if route.body.is_some() { &[408, 413] } else { &[] };
    // Where the kind of topic is no kind, nothing is.
    let of_domains: &[u16] = if route.path_parameters().any(|name| name == DOMAIN) {
        &[404]
    } else {
        &[]
    };
    let mut all = [route.fails, COMMON_FAILURES, of_bodies, of_domains].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// All statuses of failures: name, and what they say.
const FAILURES: [(u16, &str, &str); 15] = [
    (400, "BadRequest", "The request is malformed."),
    (401, "Unauthorized", "The caller has to prove who it is."),
    (403, "Forbidden", "The caller may not do this, or it may not be."),
    (404, "NotFound", "Something that the request names is not there."),
    (405, "NotAllowed", "That cannot be done to a thing of this kind."),
    (406, "NotAcceptable", "The number of partitions is out of range."),
    (408, "Timeout", "The body did not arrive in time."),
    (
        409,
        "Conflict",
        "It is there already, is not empty, or is being changed.",
    ),
    (
        412,
        "Precondition",
        "A name or value is wrong, or something stands in the way.",
    ),
    (413, "TooLarge", "The body is too large."),
    (
        422,
        "Unprocessable",
        "A schema or a number of partitions cannot be taken.",
    ),
    (429, "TooMany", "Too much is asked at once."),
    (500, "Internal", "Something is wrong with the broker."),
    (501, "NotImplemented", "The broker does not do that."),
    (503, "Unavailable", "Not now; try again."),
];

fn failure(status: u16) -> Result<(&'static str, &'static str)> {
    let known = FAILURES.iter().find(|(known, ..)| *known == status);
    known
        .map(|(_, name, description)| (*name, *description))
        .with_context(|| format!("nothing is known about the status {status}"))
}

/// Those of them that any row has, and the answer that is none.
fn failures(error: &schemars::Schema) -> Result<Map<String, Value>> {
    let location = json!({"required": true, "schema": {"type": "string", "format": "uri"}});
    let elsewhere = json!({
        "description": "Another broker serves the topic: ask that one, with the same method and body.",
        "headers": {"Location": location},
    });
    let mut responses = Map::from_iter([("Elsewhere".to_owned(), elsewhere)]);
    for status in routes::all().flat_map(failures_of) {
        let (name, description) = failure(status)?;
        let content = json!({"application/json": {"schema": error}});
        responses.insert(
            name.to_owned(),
            json!({"description": description, "content": content}),
        );
    }
    Ok(responses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_asks_who_the_caller_is_and_says_so() {
        let document: Value = serde_json::from_str(&document().unwrap()).unwrap();
        for route in routes::all() {
            let method = route.method.as_str().to_lowercase();
            let responses = &document["paths"][route.path][method]["responses"];
            for status in ["401", "403"] {
                assert!(responses[status].is_object(), "{} {status}", route.id());
            }
            let has_domain = route.path_parameters().any(|name| name == DOMAIN);
            assert!(!has_domain || responses["404"].is_object(), "{}", route.id());
            assert_eq!(
                responses["307"].is_object(),
                route.may_be_elsewhere(),
                "{}",
                route.id()
            );
        }
    }
}
