//! The table of protocol facts, parsed.
//!
//! Always true after `parse`: every type named by a field is a scalar, a message or an enum of the table, and field numbers
//! are unique within their message.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Required,
    Optional,
    Repeated,
}

/// Type of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A protobuf scalar by its protobuf name, for example `uint64`.
    Scalar(String),
    /// A message, by its name.
    Message(String),
    /// An enum, by its full name (`Owner.Name` when nested).
    Enum(String),
}

/// Field of a message.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// As on the wire, for example `ledgerId`.
    pub(crate) name: String,
    pub(crate) label: Label,
    pub(crate) kind: Kind,
    /// The proto2 default as written, empty when there is none.
    pub(crate) default: String,
    /// A remark for the reader, possibly empty.
    pub(crate) note: String,
}

/// A message and its fields in table order.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

/// An enum and its values in table order.
#[derive(Clone, Debug)]
pub(crate) struct Enum {
    /// Full name, `Owner.Name` when nested in a message.
    pub(crate) name: String,
    pub(crate) values: Vec<(i32, String)>,
}

/// The whole protocol.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) messages: Vec<Message>,
    pub(crate) enums: Vec<Enum>,
}

const SCALARS: [&str; 8] = [
    "bool", "bytes", "double", "int32", "int64", "string", "uint32", "uint64",
];

impl Table {
    /// Parses the tab-separated text; lines starting with `#` are remarks.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| line.split('\t').collect())
            .collect();
        let names = Names::collect(&rows);
        let mut table = Self::default();
        for row in &rows {
            table.add(row, &names).with_context(|| format!("row {row:?}"))?;
        }
        Ok(table)
    }

    /// The message called `name`.
    pub(crate) fn message(&self, name: &str) -> Result<&Message> {
        self.messages
            .iter()
            .find(|m| m.name == name)
            .with_context(|| format!("no message {name}"))
    }

    fn add(&mut self, row: &[&str], names: &Names) -> Result<()> {
        let cell = |i: usize| row.get(i).copied().unwrap_or_default();
        let owner = cell(1);
        match cell(0) {
            "message" => {
                self.message_mut(owner);
            }
            "enum" => {
                let value = (cell(2).parse()?, cell(3).to_owned());
                match self.enums.iter_mut().find(|e| e.name == owner) {
                    Some(found) => found.values.push(value),
                    None => self.enums.push(Enum {
                        name: owner.to_owned(),
                        values: vec![value],
                    }),
                }
            }
            "field" => {
                let field = Field {
                    number: cell(2).parse()?,
                    name: cell(3).to_owned(),
                    label: match cell(4) {
                        "required" => Label::Required,
                        "optional" => Label::Optional,
                        "repeated" => Label::Repeated,
                        other => bail!("unknown label {other:?}"),
                    },
                    kind: names.resolve(owner, cell(5))?,
                    default: cell(6).to_owned(),
                    note: cell(7).to_owned(),
                };
                let message = self.message_mut(owner);
                if message.fields.iter().any(|f| f.number == field.number) {
                    bail!("number {} is used twice in {owner}", field.number);
                }
                message.fields.push(field);
            }
            other => bail!("unknown kind of row {other:?}"),
        }
        Ok(())
    }

    fn message_mut(&mut self, name: &str) -> &mut Message {
        let at = self
            .messages
            .iter()
            .position(|m| m.name == name)
            .unwrap_or_else(|| {
                self.messages.push(Message {
                    name: name.to_owned(),
                    fields: Vec::new(),
                });
                self.messages.len() - 1
            });
        &mut self.messages[at]
    }
}

/// All names of the table, gathered first because a field may name a type of a later row.
struct Names {
    messages: BTreeSet<String>,
    enums: BTreeSet<String>,
}

impl Names {
    fn collect(rows: &[Vec<&str>]) -> Self {
        let of = |kinds: &[&str]| -> BTreeSet<String> {
            rows.iter()
                .filter(|row| row.first().is_some_and(|kind| kinds.contains(kind)))
                .filter_map(|row| row.get(1).map(|owner| (*owner).to_owned()))
                .collect()
        };
        Self {
            messages: of(&["field", "message"]),
            enums: of(&["enum"]),
        }
    }

    /// A type name in `owner` means the owner's own enum first, then anything global.
    fn resolve(&self, owner: &str, name: &str) -> Result<Kind> {
        let nested = format!("{owner}.{name}");
        if SCALARS.contains(&name) {
            Ok(Kind::Scalar(name.to_owned()))
        } else if self.enums.contains(&nested) {
            Ok(Kind::Enum(nested))
        } else if self.enums.contains(name) {
            Ok(Kind::Enum(name.to_owned()))
        } else if self.messages.contains(name) {
            Ok(Kind::Message(name.to_owned()))
        } else {
            bail!("unknown type {name:?}")
        }
    }
}
