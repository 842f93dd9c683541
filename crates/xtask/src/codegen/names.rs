//! Names of the protocol turned into names of Rust.

/// `ledgerId`, `batch_index`, `KeyShared` → `ledger_id`, `batch_index`, `key_shared`.
pub(crate) fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut previous_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && previous_lower {
            out.push('_');
        }
        previous_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A field name that is legal in Rust.
pub(crate) fn field(name: &str) -> String {
    let name = snake(name);
    if name == "type" { "r#type".to_owned() } else { name }
}

/// `KEY_SHARED`, `Key_Shared`, `UnknownError`, `v21` → `KeyShared`, `KeyShared`, `UnknownError`, `V21`.
pub(crate) fn camel(name: &str) -> String {
    let shouting = !name.chars().any(|c| c.is_ascii_lowercase());
    name.split('_')
        .map(|word| {
            let mut chars = word.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            let rest = chars.as_str();
            let rest = if shouting {
                rest.to_ascii_lowercase()
            } else {
                rest.to_owned()
            };
            first.into_iter().collect::<String>() + &rest
        })
        .collect()
}

/// `CommandAck` → `COMMAND_ACK`.
pub(crate) fn constant(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

/// The path of an enum seen from the `proto` module: `Schema.Type` → `schema::Type`.
pub(crate) fn enum_path(name: &str) -> String {
    match name.split_once('.') {
        Some((owner, inner)) => format!("{}::{inner}", snake(owner)),
        None => name.to_owned(),
    }
}

/// The variant for value `value` of enum `name`; a value that repeats the enum's name drops it (`AuthMethodNone` → `None`).
pub(crate) fn variant(name: &str, value: &str) -> String {
    let short = name.rsplit('.').next().unwrap_or(name);
    let camel = camel(value);
    match camel.strip_prefix(short) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_uppercase()) => rest.to_owned(),
        _ => camel,
    }
}
