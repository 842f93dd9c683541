//! `src/proto.rs`: a prost struct per message and an enum per enum.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::HEADER;
use super::names;
use super::table::{Enum, Field, Kind, Label, Message, Table};

const ABOUT: &str = "
//! Every message and enum of the protocol, level 4.x, as prost types.
//!
//! proto2 presence is kept: an optional field is an `Option`, and the getter of the same name gives the protocol's default
//! when it is absent. A required field that is missing cannot be seen in these structs; decode bodies through
//! [`crate::frame`] or [`crate::required`], which refuse them.
//!
//! Enum fields hold the raw `i32`; the getter of the same name gives the enum, or its default when the number is unknown.
//! `uint64` ids are signed 64-bit in meaning where the protocol says so (-1 travels as 2^64-1).
";

/// The text of `src/proto.rs`.
pub(crate) fn generate(table: &Table) -> Result<String> {
    let mut out = format!("{HEADER}{ABOUT}");
    for message in &table.messages {
        write_message(&mut out, table, message)?;
    }
    let mut nested: BTreeMap<&str, Vec<&Enum>> = BTreeMap::new();
    for item in &table.enums {
        match item.name.split_once('.') {
            Some((owner, _)) => nested.entry(owner).or_default().push(item),
            None => write_enum(&mut out, item)?,
        }
    }
    for (owner, items) in nested {
        let module = names::snake(owner);
        writeln!(
            out,
            "\n/// Enums that belong to [`{owner}`].\npub mod {module} {{"
        )?;
        for item in items {
            write_enum(&mut out, item)?;
        }
        out.push_str("}\n");
    }
    Ok(out)
}

fn write_message(out: &mut String, table: &Table, message: &Message) -> Result<()> {
    let name = &message.name;
    writeln!(
        out,
        "\n/// Protocol message `{name}`.\n#[derive(Clone, PartialEq, ::prost::Message)]"
    )?;
    writeln!(out, "pub struct {name} {{")?;
    for field in &message.fields {
        write_field(out, table, message, field).with_context(|| format!("{name}.{}", field.name))?;
    }
    out.push_str("}\n");
    Ok(())
}

fn write_field(out: &mut String, table: &Table, message: &Message, field: &Field) -> Result<()> {
    let label = match field.label {
        Label::Required => "required",
        Label::Optional => "optional",
        Label::Repeated => "repeated",
    };
    write!(out, "    /// Field {}, {label}.", field.number)?;
    if !field.default.is_empty() {
        write!(out, " Default `{}`.", field.default)?;
    }
    if !field.note.is_empty() {
        let note = field
            .note
            .replace('<', "\\<")
            .replace('>', "\\>")
            .replace('[', "\\[");
        write!(out, " Note: {note}.")?;
    }
    let boxed = is_boxed(message, field);
    let mut attribute = match &field.kind {
        Kind::Scalar(scalar) if scalar == "bytes" => "bytes = \"bytes\"".to_owned(),
        Kind::Scalar(scalar) => scalar.clone(),
        Kind::Message(_) => "message".to_owned(),
        Kind::Enum(name) => format!("enumeration = \"{}\"", names::enum_path(name)),
    };
    write!(attribute, ", {label}")?;
    if boxed {
        attribute.push_str(", boxed");
    }
    if field.label == Label::Repeated && is_packable(&field.kind) {
        attribute.push_str(", packed = \"false\"");
    }
    if field.label == Label::Optional && !field.default.is_empty() {
        write!(attribute, ", default = \"{}\"", default_of(table, field)?)?;
    }
    let inner = rust_type(&field.kind);
    let inner = if boxed {
        format!("::prost::alloc::boxed::Box<{inner}>")
    } else {
        inner
    };
    let ty = match field.label {
        Label::Required => inner,
        Label::Optional => format!("Option<{inner}>"),
        Label::Repeated => format!("Vec<{inner}>"),
    };
    let name = names::field(&field.name);
    writeln!(
        out,
        "\n    #[prost({attribute}, tag = \"{}\")]\n    pub {name}: {ty},",
        field.number
    )?;
    Ok(())
}

/// Recursive fields must be boxed; the bodies of `BaseCommand` are, because a struct of sixty inline bodies is kilobytes.
fn is_boxed(message: &Message, field: &Field) -> bool {
    matches!(&field.kind, Kind::Message(name) if *name == message.name || message.name == "BaseCommand")
}

fn is_packable(kind: &Kind) -> bool {
    match kind {
        Kind::Scalar(scalar) => scalar != "string" && scalar != "bytes",
        Kind::Enum(_) => true,
        Kind::Message(_) => false,
    }
}

/// The default in the form prost wants: an enum value by its Rust name, anything else as written.
fn default_of(table: &Table, field: &Field) -> Result<String> {
    let Kind::Enum(name) = &field.kind else {
        return Ok(field.default.clone());
    };
    let found = table
        .enums
        .iter()
        .find(|e| e.name == *name)
        .context("enum not in the table")?;
    let known = found.values.iter().any(|(_, value)| *value == field.default);
    anyhow::ensure!(known, "default {} is not a value of {name}", field.default);
    Ok(names::variant(name, &field.default))
}

fn rust_type(kind: &Kind) -> String {
    let scalar = match kind {
        Kind::Message(name) => return name.clone(),
        Kind::Enum(_) => "i32",
        Kind::Scalar(scalar) => scalar.as_str(),
    };
    match scalar {
        "uint64" => "u64",
        "uint32" => "u32",
        "int64" => "i64",
        "int32" => "i32",
        "double" => "f64",
        "string" => "String",
        "bytes" => "::bytes::Bytes",
        other => other,
    }
    .to_owned()
}

fn write_enum(out: &mut String, item: &Enum) -> Result<()> {
    let short = item.name.rsplit('.').next().unwrap_or(&item.name);
    writeln!(out, "\n/// Protocol enum `{}`.", item.name)?;
    out.push_str(
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]\n",
    );
    writeln!(out, "#[repr(i32)]\npub enum {short} {{")?;
    for (number, value) in &item.values {
        let variant = names::variant(&item.name, value);
        writeln!(
            out,
            "    /// `{value}`, {number} on the wire.\n    {variant} = {number},"
        )?;
    }
    out.push_str("}\n");
    Ok(())
}
