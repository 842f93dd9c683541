//! A value in Avro's binary form, as JSON, by the schema that its writer had. `avro_write` has the reverse.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Types inside of types.
pub(super) const DEPTH_MAX: usize = 64;
/// Items of all lists and maps of a value together.
const ITEMS_MAX: usize = 1 << 16;

/// Reads and writes values of one schema.
pub(super) struct AvroCodec {
    pub(super) schema: Value,
    /// The types that have a name, by their full name.
    named: HashMap<String, Value>,
}

impl AvroCodec {
    /// Parses the schema; the error says what is wrong with it.
    pub(super) fn new(schema: &[u8]) -> Result<Self, String> {
        let schema = serde_json::from_slice(schema).map_err(|error| error.to_string())?;
        let mut named = HashMap::new();
        collect(&schema, "", &mut named, 0)?;
        Ok(Self { schema, named })
    }

    /// The value in `bytes`.
    pub(super) fn read(&self, bytes: &[u8]) -> Result<Value, String> {
        let mut input = Input {
            rest: bytes,
            items: ITEMS_MAX,
        };
        self.value(&self.schema, "", &mut input, 0)
    }

    /// The type of this name.
    pub(super) fn named(&self, name: &str, space: &str) -> Result<&Value, String> {
        let found = self.named.get(&full_name(name, space));
        found
            .or_else(|| self.named.get(name))
            .ok_or_else(|| format!("the type {name} is not known"))
    }

    fn value(
        &self,
        schema: &Value,
        space: &str,
        input: &mut Input<'_>,
        depth: usize,
    ) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("the schema is too deep".to_owned());
        }
        match schema {
            Value::String(name) => self.simple(name, space, input, depth),
            Value::Array(branches) => {
                let branch = usize::try_from(input.long()?)
                    .ok()
                    .and_then(|at| branches.get(at));
                let branch = branch.ok_or("a union has no such branch")?;
                self.value(branch, space, input, depth + 1)
            }
            Value::Object(schema) => self.complex(schema, space, input, depth),
            _ => Err("the schema has something that is no type".to_owned()),
        }
    }

    fn simple(&self, name: &str, space: &str, input: &mut Input<'_>, depth: usize) -> Result<Value, String> {
        Ok(match name {
            "null" => Value::Null,
            "boolean" => json!(input.byte()? != 0),
            "int" | "long" => json!(input.long()?),
            "float" => json!(f32::from_le_bytes(input.take(4)?.try_into().unwrap_or_default())),
            "double" => json!(f64::from_le_bytes(input.take(8)?.try_into().unwrap_or_default())),
            "string" => json!(input.text()?),
            "bytes" => json!(String::from_utf8_lossy(input.sized()?)),
            name => self.value(self.named(name, space)?, space, input, depth + 1)?,
        })
    }

    fn complex(
        &self,
        schema: &Map<String, Value>,
        space: &str,
        input: &mut Input<'_>,
        depth: usize,
    ) -> Result<Value, String> {
        let kind = schema.get("type").ok_or("a type of the schema has no name")?;
        let part = |name: &str| {
            schema
                .get(name)
                .ok_or_else(|| format!("a type of the schema has no {name}"))
        };
        let own_space = space_of(schema, space);
        match kind.as_str() {
            Some("record") => {
                let mut members = Map::new();
                for field in part("fields")?.as_array().into_iter().flatten() {
                    let (Some(name), Some(kind)) =
                        (field.get("name").and_then(Value::as_str), field.get("type"))
                    else {
                        return Err("a field of the schema has no name or type".to_owned());
                    };
                    members.insert(name.to_owned(), self.value(kind, &own_space, input, depth + 1)?);
                }
                Ok(Value::Object(members))
            }
            Some("enum") => {
                let symbols = part("symbols")?.as_array().ok_or("an enum has no symbols")?;
                let symbol = usize::try_from(input.long()?).ok().and_then(|at| symbols.get(at));
                symbol
                    .cloned()
                    .ok_or_else(|| "an enum has no such symbol".to_owned())
            }
            Some("array") => {
                let kind = part("items")?;
                let mut items = Vec::new();
                input.blocks(|input| {
                    items.push(self.value(kind, &own_space, input, depth + 1)?);
                    Ok(())
                })?;
                Ok(Value::Array(items))
            }
            Some("map") => {
                let kind = part("values")?;
                let mut members = Map::new();
                input.blocks(|input| {
                    let name = input.text()?.to_owned();
                    members.insert(name, self.value(kind, &own_space, input, depth + 1)?);
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            Some("fixed") => {
                let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                let bytes = input.take(size.ok_or("a fixed type has no size")?)?;
                Ok(json!(String::from_utf8_lossy(bytes)))
            }
            _ => self.value(kind, &own_space, input, depth + 1),
        }
    }
}

fn full_name(name: &str, space: &str) -> String {
    match name.contains('.') || space.is_empty() {
        true => name.to_owned(),
        false => format!("{space}.{name}"),
    }
}

pub(super) fn space_of(schema: &Map<String, Value>, space: &str) -> String {
    let said = schema.get("namespace").and_then(Value::as_str);
    said.unwrap_or(space).to_owned()
}

/// Notes every type that has a name.
fn collect(
    schema: &Value,
    space: &str,
    named: &mut HashMap<String, Value>,
    depth: usize,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("the schema is too deep".to_owned());
    }
    match schema {
        Value::Array(branches) => {
            for branch in branches {
                collect(branch, space, named, depth + 1)?;
            }
        }
        Value::Object(members) => {
            let space = space_of(members, space);
            if let Some(name) = members.get("name").and_then(Value::as_str)
                && members.get("type").is_some_and(Value::is_string)
            {
                named.insert(full_name(name, &space), schema.clone());
            }
            for field in members
                .get("fields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                collect(
                    field.get("type").unwrap_or(&Value::Null),
                    &space,
                    named,
                    depth + 1,
                )?;
            }
            for inner in ["items", "values", "type"] {
                if let Some(inner) = members.get(inner).filter(|inner| !inner.is_string()) {
                    collect(inner, &space, named, depth + 1)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

struct Input<'a> {
    rest: &'a [u8],
    items: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("the value ends early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn long(&mut self) -> Result<i64, String> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let half = i64::try_from(number >> 1).unwrap_or_default();
                return Ok(if number & 1 == 0 { half } else { !half });
            }
        }
        Err("a number is too long".to_owned())
    }

    fn sized(&mut self) -> Result<&'a [u8], String> {
        let size = usize::try_from(self.long()?).map_err(|_| "a size is below 0")?;
        self.take(size)
    }

    fn text(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.sized()?).map_err(|error| error.to_string())
    }

    /// The items of a list or map, block after block.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The bytes of the block, which is read all the same.
                self.long()?;
                count = count.checked_neg().ok_or("a list is too long")?;
            }
            for _ in 0..count {
                self.items = self.items.checked_sub(1).ok_or("a list is too long")?;
                item(self)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_schema() {
        let schema = br#"{"type":"record","name":"R","namespace":"a.b","fields":[
            {"name":"n","type":"long"},{"name":"e","type":["null",{"type":"enum","name":"E","symbols":["x","y"]}]},
            {"name":"again","type":"a.b.E"},{"name":"l","type":{"type":"array","items":"string"}},
            {"name":"m","type":{"type":"map","values":"boolean"}},{"name":"d","type":"double"}]}"#;
        let reader = AvroCodec::new(schema).unwrap();
        let mut bytes = vec![
            0x03, 0x02, 0x02, 0x00, 0x04, 0x02, b'p', 0x02, b'q', 0x00, 0x02, 0x02, b'k', 0x01, 0x00,
        ];
        bytes.extend_from_slice(&1.5_f64.to_le_bytes());
        let expected = json!({"n": -2, "e": "y", "again": "x", "l": ["p", "q"], "m": {"k": true}, "d": 1.5});
        assert_eq!(reader.read(&bytes), Ok(expected));
        for end in 0..bytes.len() {
            assert!(reader.read(bytes.get(..end).unwrap()).is_err(), "{end}");
        }
        // A long list of nothing ends.
        let nulls = AvroCodec::new(br#"{"type":"array","items":"null"}"#).unwrap();
        assert!(nulls.read(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0x02]).is_err());
        assert!(AvroCodec::new(br#"{"type":"no"#).is_err());
    }
}
