//! Avro schemas, as far as a broker reads them: do they parse, and are two of them the same.
//!
//! A schema is parsed into a flat list of nodes, so that a recursive record is a number and not a reference, and into
//! a canonical JSON value with full names, without docs and aliases. Two schemas are the same when the canonical
//! values are. Defaults are kept but not checked against their type, and names may start with `$`: Pulsar
//! is as lenient.
//!
//! Nesting is bounded by the JSON parser (128 levels), so recursion here cannot exhaust the stack.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Reason why a text is not a valid Avro schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AvroError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// A type that Avro does not have, or that was not defined before.
    #[error("undefined type '{0}'")]
    UndefinedType(String),
    /// A member that must be there is missing, or has the wrong JSON type.
    #[error("{of} needs a valid member '{member}'")]
    Member {
        /// The Avro type that lacks it.
        of: &'static str,
        /// The member's name.
        member: &'static str,
    },
    /// A name with a character that names must not have.
    #[error("illegal name '{0}'")]
    Name(String),
    /// A name is used twice in one schema, record, enum or union.
    #[error("'{0}' is defined twice")]
    Twice(String),
    /// A union directly in a union.
    #[error("a union may not directly hold a union")]
    NestedUnion,
}

/// Index of a node in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(usize);

/// The types without a definition of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
}

const PRIMITIVES: [(&str, Primitive); 8] = [
    ("null", Primitive::Null),
    ("boolean", Primitive::Boolean),
    ("int", Primitive::Int),
    ("long", Primitive::Long),
    ("float", Primitive::Float),
    ("double", Primitive::Double),
    ("bytes", Primitive::Bytes),
    ("string", Primitive::String),
];

/// Type in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Primitive(Primitive),
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record { name: Naming, fields: Vec<Field> },
    Enum { name: Naming },
    Fixed { name: Naming, bytes: u64 },
}

/// Name of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    /// Namespace and name, with a dot between when there is a namespace.
    pub(super) full: String,
    /// Full names by which it may be known to writers.
    pub(super) aliases: Vec<String>,
}

impl Naming {
    /// The part after the last dot.
    pub(super) fn local(&self) -> &str {
        self.full.rsplit_once('.').map_or(&self.full, |(_, local)| local)
    }
}

/// Field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) schema: NodeId,
    pub(super) has_default: bool,
}

/// A parsed Avro schema.
#[derive(Clone, Debug)]
pub struct AvroSchema {
    nodes: Vec<Node>,
    root: NodeId,
    canonical: Value,
}

impl PartialEq for AvroSchema {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl AvroSchema {
    /// Reads the JSON text of a schema.
    ///
    /// # Errors
    /// [`AvroError`] with the first thing that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, AvroError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| AvroError::Json(error.to_string()))?;
        let mut parser = Parser::default();
        let (root, canonical) = parser.schema(&value, "")?;
        Ok(Self {
            nodes: parser.nodes,
            root,
            canonical,
        })
    }

    /// True if the whole schema is a union.
    #[must_use]
    pub fn is_union(&self) -> bool {
        matches!(self.node(self.root), Node::Union(_))
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        // Ids come only from the parser that filled `nodes`; null stands in so that no index can panic.
        self.nodes.get(id.0).unwrap_or(&Node::Primitive(Primitive::Null))
    }
}

#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    /// Full name to node, filled before the fields are read so that a record may name itself.
    named: HashMap<String, NodeId>,
}

type Parsed = Result<(NodeId, Value), AvroError>;

impl Parser {
    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    fn schema(&mut self, value: &Value, namespace: &str) -> Parsed {
        match value {
            Value::String(name) => self.reference(name, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(object) => self.object(object, namespace),
            other => Err(AvroError::UndefinedType(clip(&other.to_string()))),
        }
    }

    fn reference(&mut self, name: &str, namespace: &str) -> Parsed {
        if let Some((_, primitive)) = PRIMITIVES.iter().find(|(word, _)| *word == name) {
            let id = self.add(Node::Primitive(*primitive));
            return Ok((id, Value::from(name)));
        }
        let full = qualify(name, namespace);
        // A name without a dot may also mean a type of no namespace.
        let known = [full.as_str(), name]
            .into_iter()
            .find_map(|name| self.named.get_key_value(name));
        match known {
            Some((full, id)) => Ok((*id, Value::from(full.as_str()))),
            None => Err(AvroError::UndefinedType(clip(name))),
        }
    }

    fn union(&mut self, branches: &[Value], namespace: &str) -> Parsed {
        let mut ids = Vec::with_capacity(branches.len());
        let mut canonical = Vec::with_capacity(branches.len());
        let mut kinds = HashSet::new();
        for branch in branches {
            let (id, value) = self.schema(branch, namespace)?;
            let kind = match self.nodes.get(id.0) {
                Some(Node::Union(_)) => return Err(AvroError::NestedUnion),
                Some(Node::Array(_)) => "array".to_owned(),
                Some(Node::Map(_)) => "map".to_owned(),
                Some(Node::Record { name, .. } | Node::Enum { name } | Node::Fixed { name, .. }) => {
                    name.full.clone()
                }
                Some(Node::Primitive(primitive)) => format!("{primitive:?}"),
                None => String::new(),
            };
            if !kinds.insert(kind.clone()) {
                return Err(AvroError::Twice(clip(&kind)));
            }
            ids.push(id);
            canonical.push(value);
        }
        Ok((self.add(Node::Union(ids)), Value::Array(canonical)))
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str) -> Parsed {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            // `{"type": {…}}` is the inner schema in brackets.
            Some(inner @ (Value::Object(_) | Value::Array(_))) => return self.schema(inner, namespace),
            _ => {
                return Err(AvroError::Member {
                    of: "schema",
                    member: "type",
                });
            }
        };
        match kind {
            "record" | "error" => self.record(object, namespace),
            "enum" => self.enumeration(object, namespace),
            "fixed" => self.fixed(object, namespace),
            "array" => self.container(object, namespace, "array", "items"),
            "map" => self.container(object, namespace, "map", "values"),
            name => {
                let (id, value) = self.reference(name, namespace)?;
                let mut canonical = other_members(object, &["type"]);
                if canonical.is_empty() {
                    return Ok((id, value));
                }
                canonical.insert("type".into(), value);
                Ok((id, Value::Object(canonical)))
            }
        }
    }

    fn container(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        of: &'static str,
        member: &'static str,
    ) -> Parsed {
        let element = object.get(member).ok_or(AvroError::Member { of, member })?;
        let (element, value) = self.schema(element, namespace)?;
        let mut canonical = other_members(object, &[member]);
        canonical.insert(member.into(), value);
        let node = match of {
            "array" => Node::Array(element),
            _ => Node::Map(element),
        };
        Ok((self.add(node), Value::Object(canonical)))
    }

    fn record(&mut self, object: &Map<String, Value>, namespace: &str) -> Parsed {
        let (name, namespace) = naming(object, namespace, "record")?;
        let missing = AvroError::Member {
            of: "record",
            member: "fields",
        };
        let fields = object.get("fields").and_then(Value::as_array).ok_or(missing)?;
        let mut canonical = named_members(object, &name);
        let id = self.define(Node::Record {
            name: name.clone(),
            fields: Vec::new(),
        })?;
        let mut parsed = Vec::with_capacity(fields.len());
        let mut values = Vec::with_capacity(fields.len());
        let mut seen = HashSet::new();
        for field in fields {
            let (field, value) = self.field(field, &namespace)?;
            if !seen.insert(field.name.clone()) {
                return Err(AvroError::Twice(clip(&field.name)));
            }
            parsed.push(field);
            values.push(value);
        }
        if let Some(node) = self.nodes.get_mut(id.0) {
            *node = Node::Record { name, fields: parsed };
        }
        canonical.insert("fields".into(), Value::Array(values));
        Ok((id, Value::Object(canonical)))
    }

    fn field(&mut self, field: &Value, namespace: &str) -> Result<(Field, Value), AvroError> {
        let wrong = |member| AvroError::Member {
            of: "record field",
            member,
        };
        let object = field.as_object().ok_or(wrong("name"))?;
        let name = text(object, "name").ok_or(wrong("name"))?;
        check_name(name)?;
        let (schema, value) = self.schema(object.get("type").ok_or(wrong("type"))?, namespace)?;
        let mut canonical = other_members(object, &["doc", "aliases", "type"]);
        canonical.insert("type".into(), value);
        if canonical.get("order").is_some_and(|order| order == "ascending") {
            canonical.remove("order");
        }
        let field = Field {
            name: name.to_owned(),
            aliases: aliases(object),
            schema,
            has_default: object.contains_key("default"),
        };
        Ok((field, Value::Object(canonical)))
    }

    fn enumeration(&mut self, object: &Map<String, Value>, namespace: &str) -> Parsed {
        let (name, _) = naming(object, namespace, "enum")?;
        let wrong = || AvroError::Member {
            of: "enum",
            member: "symbols",
        };
        let listed = object
            .get("symbols")
            .and_then(Value::as_array)
            .ok_or_else(wrong)?;
        let mut symbols = HashSet::new();
        for symbol in listed {
            let symbol = symbol.as_str().ok_or_else(wrong)?;
            check_name(symbol)?;
            if !symbols.insert(symbol) {
                return Err(AvroError::Twice(clip(symbol)));
            }
        }
        let canonical = named_members(object, &name);
        let id = self.define(Node::Enum { name })?;
        Ok((id, Value::Object(canonical)))
    }

    fn fixed(&mut self, object: &Map<String, Value>, namespace: &str) -> Parsed {
        let (name, _) = naming(object, namespace, "fixed")?;
        let bytes = object
            .get("size")
            .and_then(Value::as_u64)
            .ok_or(AvroError::Member {
                of: "fixed",
                member: "size",
            })?;
        let canonical = named_members(object, &name);
        let id = self.define(Node::Fixed { name, bytes })?;
        Ok((id, Value::Object(canonical)))
    }

    fn define(&mut self, node: Node) -> Result<NodeId, AvroError> {
        let full = match &node {
            Node::Record { name, .. } | Node::Enum { name } | Node::Fixed { name, .. } => name.full.clone(),
            _ => String::new(),
        };
        if self.named.contains_key(&full) {
            return Err(AvroError::Twice(clip(&full)));
        }
        let id = self.add(node);
        self.named.insert(full, id);
        Ok(id)
    }
}

/// The name of a named type and the namespace that its members inherit.
fn naming(
    object: &Map<String, Value>,
    namespace: &str,
    of: &'static str,
) -> Result<(Naming, String), AvroError> {
    let name = text(object, "name").ok_or(AvroError::Member { of, member: "name" })?;
    let namespace = text(object, "namespace").unwrap_or(namespace);
    let full = qualify(name, namespace);
    full.split('.').try_for_each(check_name)?;
    if PRIMITIVES.iter().any(|(word, _)| *word == full) {
        return Err(AvroError::Name(full));
    }
    let inherited = full.rsplit_once('.').map_or("", |(before, _)| before).to_owned();
    let aliases = aliases(object)
        .iter()
        .map(|alias| qualify(alias, &inherited))
        .collect();
    Ok((Naming { full, aliases }, inherited))
}

fn qualify(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

fn aliases(object: &Map<String, Value>) -> Vec<String> {
    let listed = object.get("aliases").and_then(Value::as_array);
    listed
        .into_iter()
        .flatten()
        .filter_map(|alias| alias.as_str().map(str::to_owned))
        .collect()
}

fn text<'a>(object: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    object.get(member).and_then(Value::as_str)
}

fn other_members(object: &Map<String, Value>, left_out: &[&str]) -> Map<String, Value> {
    let kept = object
        .iter()
        .filter(|(member, _)| !left_out.contains(&member.as_str()));
    kept.map(|(member, value)| (member.clone(), value.clone()))
        .collect()
}

/// The canonical members of a named type, fields apart: the full name, and no doc or aliases.
fn named_members(object: &Map<String, Value>, name: &Naming) -> Map<String, Value> {
    let mut canonical = other_members(object, &["doc", "aliases", "namespace", "fields"]);
    canonical.insert("name".into(), Value::from(name.full.as_str()));
    canonical
}

fn check_name(name: &str) -> Result<(), AvroError> {
    let mut chars = name.chars();
    let starts = chars
        .next()
        .is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '$'));
    if starts && chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
        Ok(())
    } else {
        Err(AvroError::Name(clip(name)))
    }
}

/// The start of a text that a peer chose, for an error message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AvroSchema, AvroError> {
        AvroSchema::parse(text.as_bytes())
    }

    #[test]
    fn schemas_that_clients_send_parse() {
        for text in [
            r#""string""#,
            r#"{"type":"string","avro.java.string":"String"}"#,
            r#"["null","int"]"#,
            r#"{"type":"record","name":"R","namespace":"a.b","fields":[
                {"name":"next","type":["null","R"],"default":null},
                {"name":"$kind","type":{"type":"enum","name":"K","symbols":["A","B"]}},
                {"name":"again","type":"a.b.K"},
                {"name":"list","type":{"type":"array","items":{"type":"map","values":"bytes"}}},
                {"name":"hash","type":{"type":"fixed","name":"H","size":16}}]}"#,
        ] {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
        }
        assert!(parse(r#"["null","int"]"#).unwrap().is_union());
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for text in [
            "",
            "7",
            "null",
            "{",
            r#""strin""#,
            r#"{"name":"x"}"#,
            r#"{"type":"record","name":"R"}"#,
            r#"{"type":"record","name":"1R","fields":[]}"#,
            r#"{"type":"record","fields":[]}"#,
            r#"{"type":"record","name":"R","fields":[{"name":"a"}]}"#,
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}"#,
            r#"{"type":"enum","name":"E","symbols":["A","A"]}"#,
            r#"{"type":"fixed","name":"F","size":-1}"#,
            r#"{"type":"array"}"#,
            r#"["int","int"]"#,
            r#"["int",["null"]]"#,
            r#"{"type":"object","id":"urn:jsonschema:A","properties":{"a":{"type":"integer"}}}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(matches!(parse(&deep), Err(AvroError::Json(_))));
    }

    #[test]
    fn same_schema_however_it_is_written() {
        let short = r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":"int"}]}"#;
        let long = r#"{"doc":"d","fields":[{"type":{"type":"int"},"name":"x","doc":"e","order":"ascending"}],
            "namespace":"a","name":"R","type":"record"}"#;
        assert_eq!(parse(short).unwrap(), parse(long).unwrap());
        let other = r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":"long"}]}"#;
        assert_ne!(parse(short).unwrap(), parse(other).unwrap());
    }
}
