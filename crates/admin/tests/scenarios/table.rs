//! Comparison of the stories' answers with the route table.

use std::cmp::Reverse;

use pharos_admin_api::routes::{self, Answer, COMMON_FAILURES, Resource, Route};

/// Checks that the table has the operation, and that the answer is one that it declares.
pub(crate) fn check(place: &str, method: &str, path: &str, status: u16) {
    let path = path.split('?').next().unwrap_or_default();
    match find(method, path) {
        Some(route) => assert!(
            declares(route, status),
            "{place}\n{} does not declare {status}",
            route.id()
        ),
        // What the table does not have is not there.
        None => assert!(
            matches!(status, 404 | 405 | 501 | 503),
            "{place}\n{status} by no row of the table"
        ),
    }
}

/// The row that answers: of those that fit, the one that names most of the path itself.
fn find(method: &str, path: &str) -> Option<&'static Route> {
    let rows = routes::all().filter(|route| route.method.as_str() == method && fits(route, path));
    rows.min_by_key(|route| {
        Reverse(
            route
                .path
                .split('/')
                .position(|part| part.starts_with('{'))
                .unwrap_or(usize::MAX),
        )
    })
}

fn fits(route: &Route, path: &str) -> bool {
    let (wanted, found): (Vec<&str>, Vec<&str>) =
        (route.path.split('/').collect(), path.split('/').collect());
    let is_domain = |part: &str| matches!(part, "persistent" | "non-persistent");
    wanted.len() == found.len()
        && wanted
            .iter()
            .zip(found)
            .enumerate()
            .all(|(index, (wanted, found))| match *wanted {
                "{domain}" => index > 3 || is_domain(found),
                name if name.starts_with('{') => !found.is_empty(),
                literal => literal == found,
            })
}

fn declares(route: &Route, status: u16) -> bool {
    let may_be_nothing =
        matches!(route.answer, Answer::JsonOrNothing(_) | Answer::TextOrNothing) && status == 204;
    status == route.status
        || may_be_nothing
        || route.fails.contains(&status)
        || COMMON_FAILURES.contains(&status)
        || (status == 307 && (route.may_be_elsewhere() || route.resource == Resource::Lookup))
}
