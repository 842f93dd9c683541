//! A value that is JSON, in Avro's binary form by a schema.

use serde_json::{Map, Value};

use super::avro_value::{AvroCodec, DEPTH_MAX, space_of};

impl AvroCodec {
    /// The bytes of a value. Where it lacks a member, the member's default counts, else null; a member that the schema lacks is refused.
    ///
    /// # Errors
    /// What does not fit.
    pub(super) fn write(&self, value: &Value) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        self.put(&self.schema, "", value, &mut out, 0)?;
        Ok(out)
    }

    fn put(
        &self,
        schema: &Value,
        space: &str,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("the schema is too deep".to_owned());
        }
        match schema {
            Value::String(name) => self.put_simple(name, space, value, out, depth),
            Value::Array(branches) => self.put_union(branches, space, value, out, depth),
            Value::Object(schema) => self.put_complex(schema, space, value, out, depth),
            _ => Err("the schema has something that is no type".to_owned()),
        }
    }

    /// The first type of a union that takes the value.
    fn put_union(
        &self,
        branches: &[Value],
        space: &str,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        let begin = out.len();
        let mut why = format!("{value} is none of its types");
        for (number, branch) in (0..).zip(branches) {
            put_long(number, out);
            match self.put(branch, space, value, out, depth + 1) {
                Ok(()) => return Ok(()),
                Err(error) if branch != "null" => why = error,
                Err(_) => {}
            }
            out.truncate(begin);
        }
        Err(why)
    }

    fn put_simple(
        &self,
        name: &str,
        space: &str,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        let wrong = || format!("{value} is no {name}");
        match name {
            "null" if value.is_null() => {}
            "null" => return Err(wrong()),
            "boolean" => out.push(u8::from(value.as_bool().ok_or_else(wrong)?)),
            "int" => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                put_long(number.ok_or_else(wrong)?.into(), out);
            }
            "long" => put_long(value.as_i64().ok_or_else(wrong)?, out),
            "double" => out.extend_from_slice(&value.as_f64().ok_or_else(wrong)?.to_le_bytes()),
            "string" => put_text(value.as_str().ok_or_else(wrong)?, out),
            "float" | "bytes" => return Err(format!("a {name} is not written")),
            name => return self.put(self.named(name, space)?, space, value, out, depth + 1),
        }
        Ok(())
    }

    fn put_complex(
        &self,
        schema: &Map<String, Value>,
        space: &str,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        let kind = schema.get("type").ok_or("a type of the schema has no name")?;
        let part = |name: &str| {
            schema
                .get(name)
                .ok_or_else(|| format!("a type of the schema has no {name}"))
        };
        let own_space = space_of(schema, space);
        match kind.as_str() {
            Some("record") => {
                let fields = part("fields")?.as_array().ok_or("a record has no fields")?;
                let members = value.as_object().ok_or_else(|| format!("{value} is no record"))?;
                self.put_fields(fields, &own_space, members, out, depth)
            }
            Some("enum") => {
                let symbols = part("symbols")?.as_array().ok_or("an enum has no symbols")?;
                let number = (0..).zip(symbols).find(|(_, symbol)| *symbol == value);
                let (number, _) = number.ok_or_else(|| format!("{value} is none of its symbols"))?;
                put_long(number, out);
                Ok(())
            }
            Some("array") => {
                let kind = part("items")?;
                let items = value.as_array().ok_or_else(|| format!("{value} is no list"))?;
                put_count(items.len(), out)?;
                for item in items {
                    self.put(kind, &own_space, item, out, depth + 1)?;
                }
                end_blocks(items.len(), out);
                Ok(())
            }
            Some("map") => {
                let kind = part("values")?;
                let members = value.as_object().ok_or_else(|| format!("{value} is no map"))?;
                put_count(members.len(), out)?;
                for (name, member) in members {
                    put_text(name, out);
                    self.put(kind, &own_space, member, out, depth + 1)
                        .map_err(|error| format!("{name}: {error}"))?;
                }
                end_blocks(members.len(), out);
                Ok(())
            }
            Some("fixed") => Err("a fixed type is not written".to_owned()),
            _ => self.put(kind, &own_space, value, out, depth + 1),
        }
    }

    fn put_fields(
        &self,
        fields: &[Value],
        space: &str,
        members: &Map<String, Value>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        let name_of = |field: &Value| field.get("name").and_then(Value::as_str).map(str::to_owned);
        let unknown = members.keys().find(|name| {
            let mut names = fields.iter().filter_map(name_of);
            !names.any(|known| known == **name)
        });
        if let Some(unknown) = unknown {
            return Err(format!("it has no member {unknown}"));
        }
        for field in fields {
            let (Some(name), Some(kind)) = (name_of(field), field.get("type")) else {
                return Err("a field of the schema has no name or type".to_owned());
            };
            let value = members.get(&name).or_else(|| field.get("default"));
            self.put(kind, space, value.unwrap_or(&Value::Null), out, depth + 1)
                .map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

fn put_long(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest > 0x7f {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_long(i64::try_from(text.len()).unwrap_or(i64::MAX), out);
    out.extend_from_slice(text.as_bytes());
}

/// All items are one block; none are no block.
fn put_count(count: usize, out: &mut Vec<u8>) -> Result<(), String> {
    put_long(i64::try_from(count).map_err(|error| error.to_string())?, out);
    Ok(())
}

/// The end, unless the number of items was 0 and said so.
fn end_blocks(count: usize, out: &mut Vec<u8>) {
    if count > 0 {
        put_long(0, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SCHEMA: &[u8] = br#"{"type":"record","name":"R","namespace":"a.b","fields":[
        {"name":"n","type":"long"},{"name":"e","type":["null",{"type":"enum","name":"E","symbols":["x","y"]}],"default":null},
        {"name":"again","type":"a.b.E","default":"x"},{"name":"l","type":{"type":"array","items":"string"}},
        {"name":"m","type":{"type":"map","values":"boolean"}},{"name":"d","type":"double"},{"name":"i","type":["null","int"]}]}"#;

    #[test]
    fn what_is_written_is_read_again() {
        let schema = AvroCodec::new(SCHEMA).unwrap();
        for number in [0, -1, 1, 63, 64, -65, i64::MAX, i64::MIN] {
            let value = json!({"n": number, "e": "y", "again": "x", "l": ["p", "q"], "m": {"k": true}, "d": 1.5, "i": null});
            let bytes = schema.write(&value).unwrap();
            assert_eq!(schema.read(&bytes), Ok(value));
        }
        let short = json!({"n": 1, "l": [], "m": {}, "d": 2});
        let whole = json!({"n": 1, "e": null, "again": "x", "l": [], "m": {}, "d": 2.0, "i": null});
        assert_eq!(schema.read(&schema.write(&short).unwrap()), Ok(whole));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let schema = AvroCodec::new(SCHEMA).unwrap();
        let value = json!({"n": 1, "l": [], "m": {}, "d": 2});
        for (name, wrong, word) in [
            ("n", json!("1"), "n: "),
            ("n", json!(1.5), "n: "),
            ("n", Value::Null, "n: "),
            ("e", json!("z"), "e: "),
            ("l", json!([1]), "l: "),
            ("m", json!({"k": 1}), "m: k: "),
            ("i", json!(1_u64 << 40), "i: "),
            ("other", json!(1), "no member other"),
        ] {
            let mut value = value.clone();
            value[name] = wrong;
            let error = schema.write(&value).unwrap_err();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
