//! `src/required/table.rs`: what must be present in each message, for the walker that refuses incomplete ones.

use std::fmt::Write as _;

use anyhow::Result;

use super::HEADER;
use super::names;
use super::table::{Kind, Label, Message, Table};

const ABOUT: &str = "
//! One [`Shape`] per message: its required fields, and the messages and enums inside it.

use super::{Nested, RequiredField, Shape};
use crate::proto;
";

/// The text of `src/required/table.rs`.
pub(crate) fn generate(table: &Table) -> Result<String> {
    let mut out = format!("{HEADER}{ABOUT}");
    for message in &table.messages {
        // BaseCommand is taken apart by hand, because only the body its type names matters.
        if message.name != "BaseCommand" {
            write_shape(&mut out, message)?;
        }
    }
    Ok(out)
}

fn write_shape(out: &mut String, message: &Message) -> Result<()> {
    let Message { name, fields } = message;
    writeln!(out, "\n/// Shape of [`proto::{name}`].")?;
    writeln!(
        out,
        "pub static {}: Shape = Shape {{ name: \"{name}\", required: &[",
        names::constant(name)
    )?;
    for field in fields.iter().filter(|f| f.label == Label::Required) {
        let is_known = match &field.kind {
            Kind::Enum(inner) => format!("Some(proto::{}::is_valid)", names::enum_path(inner)),
            _ => "None".to_owned(),
        };
        writeln!(
            out,
            "RequiredField {{ number: {}, name: \"{}\", is_known: {is_known} }},",
            field.number, field.name
        )?;
    }
    out.push_str("], nested: &[");
    for field in fields {
        if let Kind::Message(inner) = &field.kind {
            write!(
                out,
                "Nested {{ number: {}, shape: &{} }},",
                field.number,
                names::constant(inner)
            )?;
        }
    }
    out.push_str("] };\n");
    Ok(())
}
