//! May a new schema follow the ones that a topic has: the strategies, and the rules of Avro that they rest on.
//!
//! Checked: AVRO and JSON by Avro's resolution of a writer's schema against a reader's; KEY_VALUE on both sides, each
//! by its own type; every other type by having the same type. Not checked: the contents of PROTOBUF beyond being the
//! same type, and of PROTOBUF_NATIVE beyond the name of the root message.
//!
//! Two leniencies are those of the reference broker: the names of two records need not match, and a reader's enum may
//! lack symbols of the writer's (only reading such a value fails).

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::avro::{AvroSchema, Field, Naming, Node, NodeId, Primitive};
use super::types::{SchemaInfo, SchemaType, key_value_sides};
use super::validate::native_root;

/// How many pairs of types one comparison may visit. Two hostile schemas of some megabytes each could otherwise hold
/// a shard for minutes; real ones need a few hundred.
const VISITS_MAX: usize = 200_000;

/// Which of the old and the new schema must be able to read the other's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SchemaCompatibilityStrategy {
    /// Not set: the next wider setting decides.
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

    /// What this strategy asks of a consumer's schema: that it can read what is there, against the same reach.
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

/// Why a schema may not follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("incompatible schema: {reason}")]
pub struct Incompatible {
    /// What does not fit, for the client's developer.
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
    // An older schema in a form that is no Avro (JSON schemas of very old clients) cannot be compared; the reference
    // broker lets a change through then as well.
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

/// One question: can `reader` read everything that `writer` writes?
struct Resolution<'a> {
    writer: &'a AvroSchema,
    reader: &'a AvroSchema,
    /// Pairs of records under way or found good; a recursive type meets itself here and is taken for good.
    assumed: HashSet<(NodeId, NodeId)>,
    visits_left: usize,
}

impl<'a> Resolution<'a> {
    fn new(writer: &'a AvroSchema, reader: &'a AvroSchema) -> Self {
        Self {
            writer,
            reader,
            assumed: HashSet::new(),
            visits_left: VISITS_MAX,
        }
    }

    fn check(mut self, what: &str) -> Result<(), Incompatible> {
        self.resolve(self.writer.root(), self.reader.root())
            .map_err(|mismatch| Incompatible {
                reason: format!("{what}: {}", mismatch.reason),
            })
    }

    fn resolve(&mut self, writer: NodeId, reader: NodeId) -> Result<(), Incompatible> {
        self.visits_left = self.visits_left.saturating_sub(1);
        if self.visits_left == 0 {
            return refuse("the schemas are too intricate to compare");
        }
        match (self.writer.node(writer), self.reader.node(reader)) {
            (Node::Union(branches), _) => branches
                .iter()
                .try_for_each(|branch| self.resolve(*branch, reader)),
            (_, Node::Union(branches)) => self.resolve_into_union(writer, branches),
            (Node::Primitive(w), Node::Primitive(r)) if promotes(*w, *r) => Ok(()),
            (Node::Array(w), Node::Array(r)) | (Node::Map(w), Node::Map(r)) => self.resolve(*w, *r),
            (Node::Enum { name: w }, Node::Enum { name: r }) => same_name(w, r),
            (Node::Fixed { name: w, bytes }, Node::Fixed { name: r, bytes: want }) => {
                same_name(w, r)?;
                if bytes == want {
                    Ok(())
                } else {
                    refuse(format!("fixed '{}' changes from {bytes} to {want} bytes", w.full))
                }
            }
            (Node::Record { fields: w, .. }, Node::Record { fields: r, .. }) => {
                if self.assumed.insert((writer, reader)) {
                    let outcome = self.resolve_fields(w, r);
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
            if self.resolve(writer, *branch).is_ok() {
                return Ok(());
            }
        }
        refuse(format!(
            "found {}, expecting a union without it",
            describe(self.writer.node(writer))
        ))
    }

    fn resolve_fields(&mut self, writer: &[Field], reader: &[Field]) -> Result<(), Incompatible> {
        for field in reader {
            let written = writer
                .iter()
                .find(|w| w.name == field.name)
                .or_else(|| writer.iter().find(|w| field.aliases.contains(&w.name)));
            match written {
                Some(written) => self.resolve(written.schema, field.schema).map_err(|mismatch| {
                    let reason = format!("field '{}': {}", field.name, mismatch.reason);
                    Incompatible { reason }
                })?,
                None if field.has_default => {}
                None => return refuse(format!("missing required field '{}'", field.name)),
            }
        }
        Ok(())
    }
}

/// Whether a reader of type `reader` takes what was written as `writer`.
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

fn same_name(writer: &Naming, reader: &Naming) -> Result<(), Incompatible> {
    if writer.local() == reader.local() || reader.aliases.contains(&writer.full) {
        Ok(())
    } else {
        refuse(format!("found '{}', expecting '{}'", writer.full, reader.full))
    }
}

fn describe(node: &Node) -> String {
    match node {
        Node::Primitive(primitive) => format!("{primitive:?}").to_lowercase(),
        Node::Array(_) => "array".into(),
        Node::Map(_) => "map".into(),
        Node::Union(_) => "union".into(),
        Node::Record { name, .. } => format!("record '{}'", name.full),
        Node::Enum { name } => format!("enum '{}'", name.full),
        Node::Fixed { name, .. } => format!("fixed '{}'", name.full),
    }
}

#[cfg(test)]
mod tests;
