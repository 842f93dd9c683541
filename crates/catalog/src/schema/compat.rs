//! May a new schema follow the ones that a topic has: the strategies, and the rules of Avro that they rest on.
//!
//! Checked: AVRO and JSON by Avro's resolution of a writer's schema against a reader's; KEY_VALUE on both sides, each
//! by its own type; every other type by having the same type. Not checked: the contents of PROTOBUF beyond being the
//! same type, and of PROTOBUF_NATIVE beyond the name of the root message.
//!
//! Two leniencies are those of Pulsar: the names of two records need not match, and a reader's enum may
//! lack symbols of the writer's (only reading such a value fails).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::avro::{AvroSchema, Field, Naming, Node, NodeId, Primitive, clip};
use super::types::{SchemaInfo, SchemaType, key_value_sides};
use super::validate::native_root;

/// Maximum number of steps of one comparison: each examined pair of types, field or alias is a step. Without it,
/// comparing two hostile schemas of half a megabyte each could take hours; real ones need a few hundred steps.
const STEPS_MAX: usize = 500_000;

/// Maximum depth to which one comparison follows types into types, which bounds its stack. Named types can refer to
/// one another far deeper than any text is nested.
const DEPTH_MAX: usize = 200;

/// Characters of a reason that is still prefixed with the fields on the way to it.
const REASON_CHARS_MAX: usize = 500;

/// Rule for which of the old and the new schema must be able to read the other's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SchemaCompatibilityStrategy {
    /// Not set: the next wider level decides.
    Undefined,
    /// No change at all.
    AlwaysIncompatible,
    /// Any change, even of the type.
    AlwaysCompatible,
    /// The new one reads data of the last one.
    Backward,
    /// The last one reads data of the new one.
    Forward,
    /// Both ways, against the last one.
    #[default]
    Full,
    /// As [`Self::Backward`], against all.
    BackwardTransitive,
    /// As [`Self::Forward`], against all.
    ForwardTransitive,
    /// As [`Self::Full`], against all.
    FullTransitive,
}

const NAMES: [(SchemaCompatibilityStrategy, &str); 9] = {
    use SchemaCompatibilityStrategy as S;
    [
        (S::Undefined, "UNDEFINED"),
        (S::AlwaysIncompatible, "ALWAYS_INCOMPATIBLE"),
        (S::AlwaysCompatible, "ALWAYS_COMPATIBLE"),
        (S::Backward, "BACKWARD"),
        (S::Forward, "FORWARD"),
        (S::Full, "FULL"),
        (S::BackwardTransitive, "BACKWARD_TRANSITIVE"),
        (S::ForwardTransitive, "FORWARD_TRANSITIVE"),
        (S::FullTransitive, "FULL_TRANSITIVE"),
    ]
};

impl SchemaCompatibilityStrategy {
    /// The name as REST and the configuration have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        NAMES
            .iter()
            .find(|(strategy, _)| *strategy == self)
            .map_or("UNDEFINED", |(_, name)| name)
    }

    /// The strategy behind a value of the old setting `schemaAutoUpdateCompatibilityStrategy`.
    #[must_use]
    pub fn from_auto_update(text: &str) -> Option<Self> {
        Some(match text {
            "AutoUpdateDisabled" => Self::AlwaysIncompatible,
            "Backward" => Self::Backward,
            "Forward" => Self::Forward,
            "Full" => Self::Full,
            "AlwaysCompatible" => Self::AlwaysCompatible,
            "BackwardTransitive" => Self::BackwardTransitive,
            "ForwardTransitive" => Self::ForwardTransitive,
            "FullTransitive" => Self::FullTransitive,
            _ => return None,
        })
    }

    /// Returns the strategy for a consumer's schema: it must be able to read the existing data, over the same range
    /// of versions.
    #[must_use]
    pub fn for_consumer(self) -> Self {
        match self {
            Self::AlwaysCompatible => Self::AlwaysCompatible,
            Self::BackwardTransitive | Self::FullTransitive | Self::AlwaysIncompatible => {
                Self::BackwardTransitive
            }
            Self::Undefined | Self::Backward | Self::Forward | Self::Full | Self::ForwardTransitive => {
                Self::Backward
            }
        }
    }

    fn reach(self) -> Reach {
        let (new_reads_old, old_reads_new) = match self {
            Self::Backward | Self::BackwardTransitive => (true, false),
            Self::Forward | Self::ForwardTransitive => (false, true),
            _ => (true, true),
        };
        Reach {
            new_reads_old,
            old_reads_new,
            all: matches!(
                self,
                Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive
            ),
        }
    }
}

impl fmt::Display for SchemaCompatibilityStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schema compatibility strategy")]
pub struct UnknownStrategy;

impl FromStr for SchemaCompatibilityStrategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        NAMES
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(strategy, _)| *strategy)
            .ok_or(UnknownStrategy)
    }
}

struct Reach {
    new_reads_old: bool,
    old_reads_new: bool,
    all: bool,
}

/// Reason why a schema is incompatible with the existing ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("incompatible schema: {reason}")]
pub struct Incompatible {
    /// Mismatch, described for the client's developer.
    pub reason: String,
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, Incompatible> {
    Err(Incompatible {
        reason: reason.into(),
    })
}

/// Decides whether `new` may follow `existing` (oldest first, since the last deletion) under `strategy`.
///
/// Both must have passed validation. CPU bound, a few microseconds for common schemas; bounded for hostile ones.
///
/// # Errors
/// [`Incompatible`] with the reason, meant for the answer to the client.
pub fn check_compatible<'a, I>(
    strategy: SchemaCompatibilityStrategy,
    existing: I,
    new: &SchemaInfo,
) -> Result<(), Incompatible>
where
    I: IntoIterator<Item = &'a SchemaInfo>,
    I::IntoIter: DoubleEndedIterator,
{
    use SchemaCompatibilityStrategy as S;
    let mut newest_first = existing.into_iter().rev();
    match strategy {
        S::AlwaysCompatible => return Ok(()),
        S::AlwaysIncompatible => {
            return match newest_first.next() {
                Some(_) => refuse("the strategy ALWAYS_INCOMPATIBLE allows no change"),
                None => Ok(()),
            };
        }
        _ => {}
    }
    let reach = strategy.reach();
    let against = if reach.all { usize::MAX } else { 1 };
    newest_first
        .take(against)
        .try_for_each(|old| check_pair(&reach, old, new))
}

fn check_pair(reach: &Reach, old: &SchemaInfo, new: &SchemaInfo) -> Result<(), Incompatible> {
    if old.kind != new.kind {
        return refuse(format!("the type changes from {} to {}", old.kind, new.kind));
    }
    match new.kind {
        SchemaType::Avro | SchemaType::Json => check_avro(reach, old, new),
        SchemaType::KeyValue => {
            let (Some(old), Some(new)) = (key_value_sides(old), key_value_sides(new)) else {
                return refuse("the KEY_VALUE data does not come apart");
            };
            check_pair(reach, &old.0, &new.0)?;
            check_pair(reach, &old.1, &new.1)
        }
        SchemaType::ProtobufNative => match (native_root(&old.data), native_root(&new.data)) {
            (Some(old), Some(new)) if old != new => {
                refuse(format!("the root message changes from {old} to {new}"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_avro(reach: &Reach, old: &SchemaInfo, new: &SchemaInfo) -> Result<(), Incompatible> {
    // An older schema in a form that is no Avro (JSON schemas of very old clients) cannot be compared; Pulsar
    // lets a change through then as well.
    let Ok(old) = AvroSchema::parse(&old.data) else {
        return Ok(());
    };
    let new = AvroSchema::parse(&new.data).map_err(|error| Incompatible {
        reason: error.to_string(),
    })?;
    if reach.new_reads_old {
        Resolution::new(&old, &new).check("the new schema cannot read data of an earlier one")?;
    }
    if reach.old_reads_new {
        Resolution::new(&new, &old).check("an earlier schema cannot read data of the new one")?;
    }
    Ok(())
}

/// Check that `reader` can read everything that `writer` writes.
struct Resolution<'a> {
    writer: &'a AvroSchema,
    reader: &'a AvroSchema,
    /// Pairs of records under way or found good; a recursive type meets itself here and is taken for good.
    assumed: HashSet<(NodeId, NodeId)>,
    /// Index of each field, for the writer's records examined so far.
    fields_of: HashMap<NodeId, HashMap<&'a str, usize>>,
    steps_left: usize,
    depth: usize,
}

impl<'a> Resolution<'a> {
    fn new(writer: &'a AvroSchema, reader: &'a AvroSchema) -> Self {
        Self {
            writer,
            reader,
            assumed: HashSet::new(),
            fields_of: HashMap::new(),
            steps_left: STEPS_MAX,
            depth: 0,
        }
    }

    fn check(mut self, what: &str) -> Result<(), Incompatible> {
        self.resolve(self.writer.root(), self.reader.root())
            .map_err(|mismatch| Incompatible {
                reason: format!("{what}: {}", mismatch.reason),
            })
    }

    /// Counts steps.
    fn take_steps(&mut self, steps: usize) -> Result<(), Incompatible> {
        self.steps_left = self.steps_left.saturating_sub(steps);
        if self.steps_left == 0 {
            return refuse(format!(
                "the schemas are too intricate to compare: more than {STEPS_MAX} steps"
            ));
        }
        Ok(())
    }

    fn resolve(&mut self, writer: NodeId, reader: NodeId) -> Result<(), Incompatible> {
        self.take_steps(1)?;
        if self.depth == DEPTH_MAX {
            // What is deeper is not looked at, in any branch.
            self.steps_left = 0;
            return refuse(format!("the types are nested deeper than {DEPTH_MAX}"));
        }
        self.depth += 1;
        let outcome = self.resolve_nodes(writer, reader);
        self.depth -= 1;
        outcome
    }

    fn resolve_nodes(&mut self, writer: NodeId, reader: NodeId) -> Result<(), Incompatible> {
        let (writers, readers) = (self.writer, self.reader);
        match (writers.node(writer), readers.node(reader)) {
            (Node::Union(branches), _) => branches
                .iter()
                .try_for_each(|branch| self.resolve(*branch, reader)),
            (_, Node::Union(branches)) => self.resolve_into_union(writer, branches),
            (Node::Primitive(w), Node::Primitive(r)) if promotes(*w, *r) => Ok(()),
            (Node::Array(w), Node::Array(r)) | (Node::Map(w), Node::Map(r)) => self.resolve(*w, *r),
            (Node::Enum { name: w }, Node::Enum { name: r }) => self.same_name(w, r),
            (Node::Fixed { name: w, bytes }, Node::Fixed { name: r, bytes: want }) => {
                self.same_name(w, r)?;
                if bytes == want {
                    Ok(())
                } else {
                    let name = clip(&w.full);
                    refuse(format!("fixed '{name}' changes from {bytes} to {want} bytes"))
                }
            }
            (Node::Record { fields: w, .. }, Node::Record { fields: r, .. }) => {
                if self.assumed.insert((writer, reader)) {
                    let outcome = self.resolve_fields(writer, w, r);
                    if outcome.is_err() {
                        // A union may still try another branch and come by here again.
                        self.assumed.remove(&(writer, reader));
                    }
                    return outcome;
                }
                Ok(())
            }
            (w, r) => refuse(format!("found {}, expecting {}", describe(w), describe(r))),
        }
    }

    fn resolve_into_union(&mut self, writer: NodeId, branches: &[NodeId]) -> Result<(), Incompatible> {
        for branch in branches {
            match self.resolve(writer, *branch) {
                Ok(()) => return Ok(()),
                // Not an answer about this branch: the comparison is over.
                Err(over) if self.steps_left == 0 => return Err(over),
                Err(_) => {}
            }
        }
        refuse(format!(
            "found {}, expecting a union without it",
            describe(self.writer.node(writer))
        ))
    }

    /// `written`: the fields of the writer's record `writer`.
    fn resolve_fields(
        &mut self,
        writer: NodeId,
        written: &'a [Field],
        reader: &'a [Field],
    ) -> Result<(), Incompatible> {
        for field in reader {
            self.take_steps(1 + field.aliases.len())?;
            match self.written(writer, written, field)? {
                Some(from) => self.resolve(from.schema, field.schema).map_err(|mismatch| {
                    if mismatch.reason.len() > REASON_CHARS_MAX {
                        return mismatch;
                    }
                    let reason = format!("field '{}': {}", clip(&field.name), mismatch.reason);
                    Incompatible { reason }
                })?,
                None if field.has_default => {}
                None => return refuse(format!("missing required field '{}'", clip(&field.name))),
            }
        }
        Ok(())
    }

    /// The writer's field that a reader's field takes: of its name, else the first with one of its aliases.
    fn written(
        &mut self,
        writer: NodeId,
        written: &'a [Field],
        field: &Field,
    ) -> Result<Option<&'a Field>, Incompatible> {
        if !self.fields_of.contains_key(&writer) {
            self.take_steps(written.len())?;
        }
        let places = self.fields_of.entry(writer).or_insert_with(|| {
            let names = written.iter().enumerate();
            names.map(|(at, field)| (field.name.as_str(), at)).collect()
        });
        let at = places.get(field.name.as_str()).copied().or_else(|| {
            let aliases = field.aliases.iter();
            aliases
                .filter_map(|alias| places.get(alias.as_str()).copied())
                .min()
        });
        Ok(at.and_then(|at| written.get(at)))
    }

    fn same_name(&mut self, writer: &Naming, reader: &Naming) -> Result<(), Incompatible> {
        self.take_steps(reader.aliases.len())?;
        if writer.local() == reader.local() || reader.aliases.contains(&writer.full) {
            Ok(())
        } else {
            let (found, wanted) = (clip(&writer.full), clip(&reader.full));
            refuse(format!("found '{found}', expecting '{wanted}'"))
        }
    }
}

/// True if a reader of type `reader` accepts data written as `writer`.
fn promotes(writer: Primitive, reader: Primitive) -> bool {
    use Primitive::{Bytes, Double, Float, Int, Long, String};
    writer == reader
        || matches!(
            (writer, reader),
            (Int, Long | Float | Double)
                | (Long, Float | Double)
                | (Float, Double)
                | (String, Bytes)
                | (Bytes, String)
        )
}

fn describe(node: &Node) -> String {
    match node {
        Node::Primitive(primitive) => format!("{primitive:?}").to_lowercase(),
        Node::Array(_) => "array".into(),
        Node::Map(_) => "map".into(),
        Node::Union(_) => "union".into(),
        Node::Record { name, .. } => format!("record '{}'", clip(&name.full)),
        Node::Enum { name } => format!("enum '{}'", clip(&name.full)),
        Node::Fixed { name, .. } => format!("fixed '{}'", clip(&name.full)),
    }
}

#[cfg(test)]
mod tests;
