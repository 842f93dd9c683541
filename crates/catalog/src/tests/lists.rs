//! Topic lists, patterns and watchers.

use pharos_types::hash::topics_hash;

use super::*;

async fn make(catalog: &Catalog, names: &[&str]) {
    for name in names {
        catalog.ensure_topic(&topic(name), true).await.unwrap();
    }
}

fn names(topics: &[&str]) -> Vec<String> {
    topics.iter().map(|name| topic(name).to_string()).collect()
}

async fn next(watcher: &mut TopicListWatcher) -> TopicListUpdate {
    loop {
        watcher.changed().await;
        if let Some(update) = watcher.update() {
            return update;
        }
    }
}

#[tokio::test]
async fn lists_follow_mode_and_leave_out_system_topics() {
    let catalog = Bench::new().open().await;
    let here = namespace("public/default");
    catalog
        .partitioned()
        .create(&topic("p"), 2, no_properties(), true)
        .await
        .unwrap();
    make(
        &catalog,
        &["b", "a", "__change_events", "non-persistent://public/default/n"],
    )
    .await;
    let list = |mode| catalog.topic_lists().answer(&here, mode, None, None).topics;
    assert_eq!(
        list(ListMode::Persistent),
        names(&["a", "b", "p-partition-0", "p-partition-1"])
    );
    assert_eq!(
        list(ListMode::NonPersistent),
        ["non-persistent://public/default/n"]
    );
    assert_eq!(list(ListMode::All).len(), 5);
    assert_eq!(catalog.topics(&here, ListMode::Persistent, true).len(), 5);
    assert!(
        catalog
            .topic_lists()
            .answer(&namespace("public/none"), ListMode::All, None, None)
            .topics
            .is_empty()
    );
}

#[tokio::test]
async fn a_list_that_the_client_has_is_not_sent() {
    let catalog = Bench::new().open().await;
    make(&catalog, &["a", "b"]).await;
    let here = namespace("public/default");
    let first = catalog
        .topic_lists()
        .answer(&here, ListMode::Persistent, None, None);
    assert_eq!(first.hash, topics_hash(&names(&["b", "a"])));
    assert!(first.changed && !first.filtered);
    let again = catalog
        .topic_lists()
        .answer(&here, ListMode::Persistent, None, Some(&first.hash));
    assert!(!again.changed && again.topics.is_empty());
    assert_eq!(again.hash, first.hash);
}

#[tokio::test]
async fn patterns_fit_whole_base_names() {
    let catalog = Bench::new().open().await;
    catalog
        .partitioned()
        .create(&topic("car-p"), 1, no_properties(), true)
        .await
        .unwrap();
    make(&catalog, &["car", "cars", "bus"]).await;
    let here = namespace("public/default");
    let list = |pattern: &str| {
        catalog
            .topic_lists()
            .answer(&here, ListMode::Persistent, Some(pattern), None)
    };
    let cars = list("public/default/car.*");
    assert!(cars.filtered);
    assert_eq!(cars.topics, names(&["car", "car-p-partition-0", "cars"]));
    assert_eq!(list("persistent://public/default/car").topics, names(&["car"]));
    assert_eq!(list("default/car").topics, Vec::<String>::new());
    // What cannot be evaluated here is left to the client, whole.
    for pattern in ["public/default/(?=car).*", "(((", &"x".repeat(51)] {
        let listing = list(pattern);
        assert!(!listing.filtered, "{pattern}");
        assert_eq!(listing.topics.len(), 4);
    }
    assert_eq!(
        catalog.topic_lists().watch(&here, "(((").err(),
        Some(PatternError::Invalid)
    );
    assert!(matches!(
        catalog.topic_lists().watch(&here, &"x".repeat(51)).err(),
        Some(PatternError::TooLong { length: 51, .. })
    ));
}

#[tokio::test]
async fn a_watcher_hears_what_concerns_it() {
    let catalog = Bench::new().open().await;
    make(&catalog, &["car-1"]).await;
    let here = namespace("public/default");
    let mut watcher = catalog
        .topic_lists()
        .watch(&here, "public/default/car.*")
        .unwrap();
    assert_eq!(watcher.topics(), names(&["car-1"]));
    make(
        &catalog,
        &[
            "bus",
            "car-2",
            "car-3",
            "pulsar/system/car",
            "non-persistent://public/default/car-9",
        ],
    )
    .await;
    let update = next(&mut watcher).await;
    assert_eq!(update.new, names(&["car-2", "car-3"]));
    assert_eq!(update.hash, topics_hash(&names(&["car-1", "car-2", "car-3"])));
    catalog.delete_topic(&topic("car-1")).await.unwrap();
    // Came and went between two words: nothing to say about it.
    make(&catalog, &["car-4"]).await;
    catalog.delete_topic(&topic("car-4")).await.unwrap();
    let update = next(&mut watcher).await;
    assert_eq!((update.new, update.deleted), (Vec::new(), names(&["car-1"])));
    assert_eq!(update.hash, watcher.hash());
}

#[tokio::test]
async fn a_watcher_that_fell_behind_catches_up() {
    let catalog = Bench::new().open().await;
    make(&catalog, &["first"]).await;
    let here = namespace("public/default");
    let mut watcher = catalog.topic_lists().watch(&here, "public/default/.*").unwrap();
    catalog.delete_topic(&topic("first")).await.unwrap();
    let partitions = u32::try_from(TOPIC_EVENTS).unwrap() * 2;
    catalog
        .partitioned()
        .create(&topic("p"), partitions, no_properties(), true)
        .await
        .unwrap();
    let update = next(&mut watcher).await;
    assert_eq!(update.new.len(), TOPIC_EVENTS * 2);
    assert_eq!(update.deleted, names(&["first"]));
    let listing = catalog
        .topic_lists()
        .answer(&here, ListMode::Persistent, None, None);
    assert_eq!(update.hash, listing.hash);
}

#[tokio::test]
async fn a_large_namespace_is_listed_whole_and_in_order() {
    let catalog = Bench::new().open().await;
    let here = namespace("public/default");
    catalog
        .partitioned()
        .create(&topic("p"), 5000, no_properties(), true)
        .await
        .unwrap();
    make(&catalog, &["a", "z"]).await;
    let listed = catalog.topics(&here, ListMode::All, false);
    assert_eq!(listed.len(), 5002);
    assert!(listed.is_sorted());
}

#[tokio::test]
async fn a_costly_pattern_is_refused_once_and_watches_share_what_is_compiled() {
    let catalog = Bench::new().open().await;
    let here = namespace("public/default");
    let lists = catalog.topic_lists();
    for _ in 0..100 {
        let refused = lists.watch(&here, r"[\s\S]{1,65535}").err();
        assert!(
            matches!(refused, Some(PatternError::TooLarge { .. })),
            "{refused:?}"
        );
        let listing = lists.answer(&here, ListMode::All, Some(r"[\s\S]{1,65535}"), None);
        assert!(!listing.filtered);
    }
    let mut watchers: Vec<_> = (0..100)
        .map(|_| lists.watch(&here, "public/default/car.*").unwrap())
        .collect();
    make(&catalog, &["car-1"]).await;
    for watcher in &mut watchers {
        assert_eq!(next(watcher).await.new, names(&["car-1"]));
    }
    assert_eq!(lists.compiled_patterns(), 2);
}
