//! `src/command.rs`: one enum over the bodies of `BaseCommand`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::HEADER;
use super::names;
use super::table::{Kind, Label, Table};

const ABOUT: &str = "
//! A command of the protocol: `BaseCommand` reduced to the one body its type names.
//!
//! Bodies larger than a cache line or two are boxed so that the per-message commands stay cheap to move.

use prost::Message as _;
use prost::bytes::BufMut;

use crate::ack::Ack;
use crate::error::DecodeError;
use crate::proto;
use crate::required::{self, table};

/// The number that names a command on the wire; its body sits in the `BaseCommand` field of the same number.
pub use crate::proto::base_command::Type as CommandType;
";

/// Bodies estimated larger than this many bytes are boxed.
const INLINE_BYTES_MAX: usize = 160;

struct Body {
    variant: String,
    message: String,
    number: u32,
    boxed: bool,
}

/// The text of `src/command.rs`.
pub(crate) fn generate(table: &Table) -> Result<String> {
    let bodies = bodies(table)?;
    let mut out = format!("{HEADER}{ABOUT}");
    write_enum(&mut out, &bodies)?;
    out.push_str("impl Command {\n");
    write_type(&mut out, &bodies)?;
    write_encode(&mut out, &bodies)?;
    write_decode(&mut out, &bodies)?;
    out.push_str("}\n");
    for body in &bodies {
        write_from(&mut out, body)?;
    }
    Ok(out)
}

fn bodies(table: &Table) -> Result<Vec<Body>> {
    let types = table
        .enums
        .iter()
        .find(|e| e.name == "BaseCommand.Type")
        .context("no BaseCommand.Type")?;
    let mut bodies = Vec::new();
    for field in &table.message("BaseCommand")?.fields {
        let Kind::Message(message) = &field.kind else {
            continue;
        };
        let (_, value) = types
            .values
            .iter()
            .find(|(number, _)| u32::try_from(*number) == Ok(field.number))
            .with_context(|| format!("body {} has no command type", field.name))?;
        bodies.push(Body {
            variant: names::camel(value),
            message: message.clone(),
            number: field.number,
            boxed: size_of_message(table, message)? > INLINE_BYTES_MAX,
        });
    }
    Ok(bodies)
}

/// About the size of the Rust struct, without padding.
fn size_of_message(table: &Table, name: &str) -> Result<usize> {
    let mut sum = 0;
    for field in &table.message(name)?.fields {
        sum += match (&field.kind, field.label) {
            (_, Label::Repeated) => 24,
            (Kind::Message(inner), _) if inner == name => 8,
            (Kind::Message(inner), _) => size_of_message(table, inner)?,
            (Kind::Scalar(scalar), label) => match (scalar.as_str(), label) {
                ("string", _) => 24,
                ("bytes", _) => 32,
                ("bool", _) => 1,
                ("int32" | "uint32", Label::Optional) => 8,
                ("int32" | "uint32", _) => 4,
                (_, Label::Optional) => 16,
                _ => 8,
            },
            (Kind::Enum(_), Label::Optional) => 8,
            (Kind::Enum(_), _) => 4,
        };
    }
    Ok(sum)
}

fn write_enum(out: &mut String, bodies: &[Body]) -> Result<()> {
    out.push_str(
        "\n/// One command with its body.\n#[derive(Clone, Debug, PartialEq)]\npub enum Command {\n",
    );
    for body in bodies {
        let ty = held_type(body);
        writeln!(out, "    /// Type {}.\n    {}({ty}),", body.number, body.variant)?;
    }
    out.push_str("}\n\n");
    Ok(())
}

fn held_type(body: &Body) -> String {
    if body.message == "CommandAck" {
        // Acks arrive once per message and consumer; their own type spares an allocation each.
        "Ack".to_owned()
    } else if body.boxed {
        format!("Box<proto::{}>", body.message)
    } else {
        format!("proto::{}", body.message)
    }
}

fn write_type(out: &mut String, bodies: &[Body]) -> Result<()> {
    out.push_str("    /// The type that travels in front of the body.\n");
    out.push_str("    pub fn command_type(&self) -> CommandType {\n        match self {\n");
    for Body { variant, .. } in bodies {
        writeln!(out, "            Self::{variant}(_) => CommandType::{variant},")?;
    }
    out.push_str("        }\n    }\n\n");
    Ok(())
}

fn write_encode(out: &mut String, bodies: &[Body]) -> Result<()> {
    out.push_str("    /// Bytes of the body alone, as protobuf.\n");
    out.push_str("    pub fn body_bytes(&self) -> usize {\n        match self {\n");
    for Body { variant, .. } in bodies {
        writeln!(out, "            Self::{variant}(body) => body.encoded_len(),")?;
    }
    out.push_str("        }\n    }\n\n");
    out.push_str("    /// Writes the body alone; `out` must have room for [`Command::body_bytes`].\n");
    out.push_str("    pub(crate) fn write_body(&self, out: &mut impl BufMut) {\n        match self {\n");
    for Body { variant, .. } in bodies {
        writeln!(out, "            Self::{variant}(body) => body.encode_raw(out),")?;
    }
    out.push_str("        }\n    }\n\n");
    Ok(())
}

fn write_decode(out: &mut String, bodies: &[Body]) -> Result<()> {
    out.push_str("    /// Decodes a body with prost, after checking that every required field is there.\n");
    out.push_str(
        "    pub(crate) fn decode_body(kind: CommandType, body: &[u8]) -> Result<Self, DecodeError> {\n",
    );
    out.push_str("        Ok(match kind {\n");
    for Body { variant, message, .. } in bodies {
        let constant = names::constant(message);
        writeln!(
            out,
            "CommandType::{variant} => required::decode::<proto::{message}>(&table::{constant}, body)?.into(),"
        )?;
    }
    out.push_str("        })\n    }\n");
    Ok(())
}

fn write_from(out: &mut String, body: &Body) -> Result<()> {
    let Body {
        variant,
        message,
        boxed,
        ..
    } = body;
    let inner = if message == "CommandAck" {
        "Ack::from(body)"
    } else if *boxed {
        "Box::new(body)"
    } else {
        "body"
    };
    writeln!(
        out,
        "\nimpl From<proto::{message}> for Command {{
            fn from(body: proto::{message}) -> Self {{
                Self::{variant}({inner})
            }}
        }}"
    )?;
    Ok(())
}
