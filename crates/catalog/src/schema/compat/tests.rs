//! Each rule of resolution once, then the strategies.

use bytes::Bytes;

use super::SchemaCompatibilityStrategy as S;
use super::*;
use crate::schema::types::KeyValueData;

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

fn avro(text: &str) -> SchemaInfo {
    SchemaInfo::new(SchemaType::Avro, text.to_owned())
}

fn reads(writer: &str, reader: &str) -> bool {
    check_compatible(S::Backward, [&avro(writer)], &avro(reader)).is_ok()
}

const A: &str = r#"{"name":"a","type":"int"}"#;
const B: &str = r#"{"name":"b","type":"int"}"#;
const B_DEFAULT: &str = r#"{"name":"b","type":"int","default":0}"#;

#[test]
fn fields_may_go_and_may_come_with_a_default() {
    let both = record(&format!("{A},{B}"));
    let both_default = record(&format!("{A},{B_DEFAULT}"));
    assert!(reads(&both, &record(A)));
    assert!(reads(&record(A), &both_default));
    assert!(!reads(&record(A), &both));
    assert!(reads(
        &record(A),
        &record(r#"{"name":"c","type":"int","aliases":["a"]}"#)
    ));
}

#[test]
fn types_promote_one_way() {
    for (writer, reader, both) in [
        (r#""int""#, r#""long""#, false),
        (r#""long""#, r#""double""#, false),
        (r#""string""#, r#""bytes""#, true),
        (
            r#"{"type":"array","items":"int"}"#,
            r#"{"type":"array","items":"float"}"#,
            false,
        ),
        (
            r#"{"type":"map","values":"int"}"#,
            r#"{"type":"map","values":["null","int"]}"#,
            false,
        ),
        (r#"["null","int"]"#, r#"["int","null","string"]"#, false),
    ] {
        assert!(reads(writer, reader), "{writer} {reader}");
        assert_eq!(reads(reader, writer), both, "{reader} {writer}");
    }
    assert!(!reads(r#""int""#, r#""string""#));
    assert!(!reads(r#""null""#, r#"{"type":"array","items":"int"}"#));
}

#[test]
fn named_types_keep_name_and_size_but_enums_may_lose_symbols() {
    let fixed = |name: &str, size: u32| format!(r#"{{"type":"fixed","name":"{name}","size":{size}}}"#);
    assert!(reads(&fixed("F", 2), &fixed("F", 2)));
    assert!(!reads(&fixed("F", 2), &fixed("F", 3)));
    assert!(!reads(&fixed("F", 2), &fixed("G", 2)));
    let some = r#"{"type":"enum","name":"E","symbols":["A","B"]}"#;
    let fewer = r#"{"type":"enum","name":"E","symbols":["A"]}"#;
    assert!(reads(some, fewer));
    assert!(!reads(some, r#"{"type":"enum","name":"F","symbols":["A","B"]}"#));
}

#[test]
fn recursive_records_end() {
    let tree = |leaf: &str| {
        record(&format!(
            r#"{{"name":"v","type":"{leaf}"}},{{"name":"left","type":["null","R"]}}"#
        ))
    };
    assert!(reads(&tree("int"), &tree("long")));
    assert!(!reads(&tree("long"), &tree("int")));
}

#[test]
fn strategies_look_the_right_way_and_far_enough() {
    let first = avro(&record(A));
    let last = avro(&record(&format!("{A},{B_DEFAULT}")));
    let drops_default = avro(&record(&format!("{A},{B}")));
    // `b` without its default reads data of the last schema, not of the first.
    let old = [&first, &last];
    assert!(check_compatible(S::Backward, old, &drops_default).is_ok());
    assert!(check_compatible(S::BackwardTransitive, old, &drops_default).is_err());
    assert!(check_compatible(S::Forward, old, &drops_default).is_ok());
    assert!(check_compatible(S::FullTransitive, old, &drops_default).is_err());
    assert!(check_compatible(S::AlwaysIncompatible, old, &drops_default).is_err());
    assert!(check_compatible(S::AlwaysIncompatible, [], &drops_default).is_ok());
}

#[test]
fn the_type_changes_only_when_everything_may() {
    let text = SchemaInfo::new(SchemaType::String, Bytes::new());
    let number = SchemaInfo::new(SchemaType::Int32, Bytes::new());
    assert!(check_compatible(S::Full, [&text], &text).is_ok());
    assert!(check_compatible(S::Full, [&text], &number).is_err());
    assert!(check_compatible(S::AlwaysCompatible, [&text], &number).is_ok());
}

#[test]
fn key_value_is_checked_on_both_sides() {
    let pair = |key: &str, value: &str| {
        let data = KeyValueData {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
        };
        let mut schema = SchemaInfo::new(SchemaType::KeyValue, data.encode());
        for side in ["key.schema.type", "value.schema.type"] {
            schema.properties.insert(side.into(), "AVRO".into());
        }
        schema
    };
    let old = pair(&record(A), &record(A));
    let good = pair(&record(A), &record(&format!("{A},{B_DEFAULT}")));
    let bad = pair(&record(&format!("{A},{B}")), &record(A));
    assert!(check_compatible(S::Full, [&old], &good).is_ok());
    assert!(check_compatible(S::Full, [&old], &bad).is_err());
}

#[test]
fn intricate_schemas_are_refused_in_bounded_time() {
    // 1,000 records in a union on either side: a million pairs.
    let wide = |leaf: &str| {
        let branches: Vec<String> = (0..1000)
            .map(|n| {
                format!(
                    r#"{{"type":"record","name":"R{n}","fields":[{{"name":"f{n}{leaf}","type":"int"}}]}}"#
                )
            })
            .collect();
        record(&format!(r#"{{"name":"u","type":[{}]}}"#, branches.join(",")))
    };
    assert!(!reads(&wide("x"), &wide("y")));
}

/// A record with so many fields of type int, the names of which begin with `start`.
fn wide(start: &str, fields: usize, aliases: usize) -> String {
    let aliases: Vec<String> = (0..aliases).map(|n| format!(r#""z{n}""#)).collect();
    let aliases = aliases.join(",");
    let fields: Vec<String> = (0..fields)
        .map(|n| format!(r#"{{"name":"{start}{n}","type":"int","default":0,"aliases":[{aliases}]}}"#))
        .collect();
    record(&fields.join(","))
}

#[test]
fn a_comparison_takes_a_bounded_number_of_steps() {
    // Wide records are compared by name, not each field with each.
    let (old, new) = (wide("f", 20_000, 0), wide("f", 20_001, 0));
    assert!(reads(&old, &new));
    // Every pair of these branches is tried.
    let union = |start: &str| {
        let branches: Vec<String> = (0..2_000)
            .map(|n| format!(r#"{{"type":"enum","name":"{start}{n}","symbols":["A"]}}"#))
            .collect();
        record(&format!(r#"{{"name":"u","type":[{}]}}"#, branches.join(",")))
    };
    let refused = check_compatible(S::Backward, [&avro(&union("a"))], &avro(&union("b"))).unwrap_err();
    assert!(refused.reason.len() < 1_000, "{}", refused.reason.len());
    // Aliases count: 1,000 fields of 1,000 each are a million looks.
    let (old, new) = (wide("a", 1_000, 0), wide("b", 1_000, 1_000));
    let refused = check_compatible(S::Backward, [&avro(&old)], &avro(&new)).unwrap_err();
    assert!(refused.reason.contains("too intricate"), "{}", refused.reason);
}

#[test]
fn types_that_refer_ever_deeper_end_the_comparison_and_not_the_stack() {
    // R0 .. R9999, each with the one before, and read from the last one on by a type that has itself.
    let chain: Vec<String> = (0..10_000)
        .map(|n| {
            let inner = if n == 0 { "null".to_owned() } else { format!("R{}", n - 1) };
            format!(
                r#"{{"name":"f{n}","type":{{"type":"record","name":"R{n}","fields":[{{"name":"x","type":["null","{inner}"]}}]}}}}"#
            )
            .replace(r#"["null","null"]"#, r#""null""#)
        })
        .collect();
    let writer = record(&chain.join(","));
    let reader = record(
        r#"{"name":"f9999","type":{"type":"record","name":"X","fields":[{"name":"x","type":["null","X"],"default":null}]}}"#,
    );
    let refused = check_compatible(S::Backward, [&avro(&writer)], &avro(&reader)).unwrap_err();
    assert!(refused.reason.contains("deeper"), "{}", refused.reason);
    assert!(refused.reason.len() < 2_000);
}
