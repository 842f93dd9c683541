//! Authorization: every row of the route table makes the one authorization call, and a denied caller changes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pharos_admin_api::routes::{self, Method, Route};
use pharos_auth::{Access, Action, Authorizer, Denied, Principal, Resource};

use super::{Door, ask};

/// Writes down what it is asked.
#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<(Action, String)>>,
    denies: AtomicBool,
}

impl Authorizer for Recorder {
    fn authorize(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
        assert!(who.address().starts_with("/127.0.0.1:"), "{who}");
        self.asked.lock().unwrap().push((action, resource.to_string()));
        match self.denies.load(Ordering::Relaxed) {
            true => Err(Denied::to(who, action, resource)),
            false => Ok(()),
        }
    }
}

/// A request for a row, with names for its parameters.
fn path_of(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| match part {
        "{domain}" => "persistent",
        "{tenant}" => "public",
        "{namespace}" => "default",
        "{topic}" => "t",
        "{subscription}" => "s",
        "{cluster}" => "standalone",
        "{bundle}" => "0x00000000_0xffffffff",
        name if name.starts_with('{') => "1",
        literal => literal,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Subject of a row, by the names in its path.
fn resource_of(route: &Route) -> String {
    let has = |name: &str| route.path_parameters().any(|parameter| parameter == name);
    match (has("tenant"), has("namespace"), has("topic"), has("subscription")) {
        (_, _, true, true) => "subscription s of topic persistent://public/default/t".to_owned(),
        (_, _, true, false) => "topic persistent://public/default/t".to_owned(),
        (_, true, false, _) => "namespace public/default".to_owned(),
        (true, false, ..) => "tenant public".to_owned(),
        _ => "the cluster".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_is_asked_about_once_and_who_is_denied_changes_nothing() {
    let recorder = Arc::new(Recorder::default());
    let door = Door::open_with(false, Access::by(recorder.clone())).await;
    let tenants = door.catalog.tenants().names();
    recorder.denies.store(true, Ordering::Relaxed);
    let address = door.address;
    let asking = tokio::task::spawn_blocking(move || {
        for route in routes::all() {
            let (status, _, body) = ask(address, route.method.as_str(), &path_of(route), "");
            assert_eq!(status, 401, "{}: {body}", route.id());
            let asked = std::mem::take(&mut *recorder.asked.lock().unwrap());
            assert_eq!(asked, [(route.action, resource_of(route))], "{}", route.id());
        }
        // Allowed, each is asked about once as well, whatever becomes of it.
        recorder.denies.store(false, Ordering::Relaxed);
        for route in routes::all().filter(|route| route.method == Method::Get) {
            let _ = ask(address, route.method.as_str(), &path_of(route), "");
            let asked = std::mem::take(&mut *recorder.asked.lock().unwrap());
            assert_eq!(asked, [(route.action, resource_of(route))], "{}", route.id());
        }
    });
    asking.await.unwrap();
    assert_eq!(door.catalog.tenants().names(), tenants);
    door.close().await;
}

/// Rows covered by each action: a new row appears here.
#[test]
fn the_table_says_what_each_operation_needs() {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let policies = |action: Action| matches!(action, Action::ReadPolicy | Action::UpdatePolicy);
    for route in routes::all().filter(|route| !policies(route.action)) {
        found.entry(route.action.name()).or_default().push(route.id());
    }
    let lines = found
        .iter()
        .map(|(action, ids)| format!("{action}: {}\n", ids.join(" ")));
    let wanted = include_str!("../actions.txt");
    assert_eq!(lines.collect::<String>(), wanted);
    for route in routes::all().filter(|route| policies(route.action)) {
        let is_read = route.action == Action::ReadPolicy;
        assert_eq!(is_read, route.method == Method::Get, "{}", route.id());
    }
}
