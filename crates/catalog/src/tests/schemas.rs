//! The registry: adding under the rules, versions, deletion.

use serde_json::json;

use super::schema::*;
use super::*;

fn record(fields: &str) -> SchemaInfo {
    let text = format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#);
    SchemaInfo::new(SchemaType::Avro, text)
}

fn one() -> SchemaInfo {
    record(r#"{"name":"a","type":"int"}"#)
}

fn two() -> SchemaInfo {
    record(r#"{"name":"a","type":"int"},{"name":"b","type":"int","default":0}"#)
}

fn other() -> SchemaInfo {
    record(r#"{"name":"a","type":"string"}"#)
}

async fn add(catalog: &Catalog, name: &str, schema: SchemaInfo) -> Result<u64, SchemaError> {
    let added = catalog.schemas().add(&topic(name), schema, "").await?;
    Ok(added.version.0)
}

#[tokio::test]
async fn versions_count_up_and_survive() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    assert_eq!(add(&catalog, "a", one()).await.unwrap(), 0);
    assert_eq!(add(&catalog, "a-partition-3", two()).await.unwrap(), 1);
    // The same, written differently.
    let mut spaced = one();
    spaced.data = [b" ".as_slice(), &spaced.data].concat().into();
    assert_eq!(add(&catalog, "a", spaced).await.unwrap(), 0);
    assert!(matches!(
        add(&catalog, "a", other()).await,
        Err(SchemaError::Incompatible(_))
    ));
    let again = bench.open().await;
    let latest = again.schemas().latest(&topic("a-partition-0")).unwrap();
    assert_eq!((latest.version, &latest.schema), (SchemaVersion(1), &two()));
    assert_eq!(
        again.schemas().get(&topic("a"), SchemaVersion(0)).unwrap().schema,
        one()
    );
    assert!(again.schemas().get(&topic("a"), SchemaVersion(9)).is_none());
    assert_eq!(again.schemas().id(&topic("a-partition-0")), "public/default/a");
    assert_eq!(again.schemas().history(&topic("a")).live().len(), 2);
    assert!(again.schemas().latest(&topic("b")).is_none());
}

#[tokio::test]
async fn a_deleted_schema_leaves_room_for_any_other() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("a");
    assert_eq!(catalog.schemas().delete(&name, "").await.unwrap(), None);
    add(&catalog, "a", one()).await.unwrap();
    assert_eq!(
        catalog.schemas().delete(&name, "").await.unwrap(),
        Some(SchemaVersion(1))
    );
    assert!(catalog.schemas().latest(&name).is_none());
    let again = bench.open().await;
    assert_eq!(add(&again, "a", other()).await.unwrap(), 2);
    // The deleted one is gone for its messages as well.
    assert!(again.schemas().get(&name, SchemaVersion(0)).is_none());
    assert_eq!(
        again.schemas().get(&name, SchemaVersion(2)).unwrap().schema,
        other()
    );
    again.schemas().delete_all(&name).await.unwrap();
    assert_eq!(add(&again, "a", one()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_topic_takes_its_schemas_with_it() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    catalog.ensure_topic(&topic("a"), true).await.unwrap();
    add(&catalog, "a", one()).await.unwrap();
    catalog.delete_topic(&topic("a")).await.unwrap();
    assert!(bench.open().await.schemas().latest(&topic("a")).is_none());
}

#[tokio::test]
async fn the_narrowest_strategy_counts() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    add(&catalog, "a", one()).await.unwrap();
    assert_eq!(
        catalog.schemas().strategy(&name),
        SchemaCompatibilityStrategy::Full
    );
    assert!(catalog.schemas().test(&name, &other()).await.is_err());
    catalog
        .namespaces()
        .set_policy(
            &namespace("public/default"),
            "schema_compatibility_strategy",
            json!("ALWAYS_COMPATIBLE"),
        )
        .await
        .unwrap();
    catalog.schemas().test(&name, &other()).await.unwrap();
    if CHANGES_TOPIC_POLICIES {
        let strategy = json!("ALWAYS_INCOMPATIBLE");
        catalog
            .set_topic_policy(&name, "schemaCompatibilityStrategy", strategy)
            .await
            .unwrap();
        assert!(catalog.schemas().test(&name, &two()).await.is_err());
    }
    assert_eq!(
        catalog.schemas().strategy(&topic("__change_events")),
        SchemaCompatibilityStrategy::AlwaysCompatible
    );
}

#[tokio::test]
async fn producers_bring_schemas_where_they_may() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    let here = namespace("public/default");
    let bring = |schema| catalog.schemas().add_for_producer(&name, schema, "role");
    assert_eq!(bring(None).await.unwrap(), None);
    assert_eq!(bring(Some(one())).await.unwrap(), Some(SchemaVersion(0)));
    assert_eq!(catalog.schemas().latest(&name).unwrap().user, "role");
    let bytes = || SchemaInfo::new(SchemaType::Bytes, "");
    assert!(matches!(
        bring(Some(bytes())).await,
        Err(SchemaError::Incompatible(_))
    ));
    assert!(matches!(
        bring(Some(SchemaInfo::new(SchemaType::Avro, "{"))).await,
        Err(SchemaError::Invalid(_))
    ));
    catalog
        .namespaces()
        .set_policy(&here, "schema_validation_enforced", json!(true))
        .await
        .unwrap();
    assert!(matches!(bring(None).await, Err(SchemaError::Incompatible(_))));
    catalog
        .namespaces()
        .set_policy(&here, "is_allow_auto_update_schema", json!(false))
        .await
        .unwrap();
    assert_eq!(bring(Some(one())).await.unwrap(), Some(SchemaVersion(0)));
    assert!(matches!(
        bring(Some(two())).await,
        Err(SchemaError::Incompatible(_))
    ));
}

#[tokio::test]
async fn bytes_are_a_schema_that_is_called_none() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    let bring = |schema| catalog.schemas().add_for_producer(&name, schema, "");
    let mut bytes = SchemaInfo::new(SchemaType::Bytes, "");
    bytes.properties.insert("a".into(), "b".into());
    assert_eq!(bring(Some(bytes)).await.unwrap(), Some(SchemaVersion(0)));
    let stored = catalog.schemas().latest(&name).unwrap();
    assert_eq!(stored.schema.kind, SchemaType::None);
    assert_eq!(stored.schema.properties["a"], "b");
    // The same again, under its name on the wire; another type may not follow.
    let none = || SchemaInfo::new(SchemaType::None, "");
    assert_eq!(bring(Some(none())).await.unwrap(), Some(SchemaVersion(0)));
    assert_eq!(bring(None).await.unwrap(), None);
    assert!(matches!(
        bring(Some(one())).await,
        Err(SchemaError::Incompatible(_))
    ));
    catalog
        .schemas()
        .check_for_consumer(&name, none(), "", false)
        .await
        .unwrap();
    let other = topic("b");
    let refused = catalog
        .schemas()
        .check_for_consumer(&other, none(), "", false)
        .await;
    assert!(matches!(refused, Err(SchemaError::Incompatible(_))));
    catalog
        .schemas()
        .check_for_consumer(&other, none(), "", true)
        .await
        .unwrap();
    assert!(catalog.schemas().latest(&other).is_some());
}

#[tokio::test]
async fn a_schema_that_cannot_be_stored_is_refused_with_its_size() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    let large = |bytes: usize| SchemaInfo::new(SchemaType::None, vec![b'x'; bytes]);
    let refused = catalog
        .schemas()
        .add(&name, large(SCHEMA_BYTES_MAX + 1), "")
        .await;
    let Err(error @ SchemaError::Invalid(_)) = refused else {
        panic!("{refused:?}");
    };
    let text = error.to_string();
    assert!(text.contains(&SCHEMA_BYTES_MAX.to_string()), "{text}");
    let mut escapes = large(SCHEMA_BYTES_MAX - 2000);
    escapes.properties.insert("a".into(), "\u{1}".repeat(1999));
    let refused = catalog.schemas().add(&name, escapes, "").await;
    assert!(matches!(refused, Err(SchemaError::Invalid(_))), "{refused:?}");
    catalog
        .schemas()
        .add(&name, large(SCHEMA_BYTES_MAX), "")
        .await
        .unwrap();
}

#[tokio::test]
async fn consumers_must_be_able_to_read() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    let check = |schema, is_idle| catalog.schemas().check_for_consumer(&name, schema, "", is_idle);
    check(SchemaInfo::new(SchemaType::AutoConsume, ""), false)
        .await
        .unwrap();
    assert!(matches!(
        check(one(), false).await,
        Err(SchemaError::Incompatible(_))
    ));
    check(one(), true).await.unwrap();
    assert_eq!(catalog.schemas().latest(&name).unwrap().schema, one());
    // Reads what is there; that the other way round fails does not matter to a consumer.
    check(record(r#"{"name":"a","type":"long"}"#), false)
        .await
        .unwrap();
    assert!(check(other(), false).await.is_err());
}

#[tokio::test]
async fn one_schema_brought_by_many_is_stored_once() {
    let catalog = Bench::new().open().await;
    let bring = || add(&catalog, "a", one());
    let (a, b, c) = tokio::join!(bring(), bring(), bring());
    assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (0, 0, 0));
    assert_eq!(catalog.schemas().history(&topic("a")).live().len(), 1);
}

#[tokio::test]
async fn large_schemas_do_not_hold_up_the_thread_that_asks() {
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    async fn is_answered_at_once<T>(asked: impl Future<Output = T>) -> bool {
        let mut asked = std::pin::pin!(asked);
        poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_ready())).await
    }

    let bench = Bench::new();
    let catalog = bench.open().await;
    let wide = |fields: usize| {
        let fields: Vec<String> = (0..fields)
            .map(|n| format!(r#"{{"name":"f{n}","type":"int","default":0}}"#))
            .collect();
        record(&fields.join(","))
    };
    add(&catalog, "a", wide(10)).await.unwrap();
    assert!(
        is_answered_at_once(catalog.schemas().test(&topic("a"), &wide(11))).await,
        "a small one is looked at here"
    );
    let large = wide(2_000);
    assert!(
        !is_answered_at_once(catalog.schemas().test(&topic("a"), &large)).await,
        "a large one is looked at elsewhere"
    );
    catalog.schemas().test(&topic("a"), &large).await.unwrap();
    assert_eq!(add(&catalog, "a", large).await.unwrap(), 1);
}
