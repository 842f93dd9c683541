//! A row of the route table and the handler that answers it.
//!
//! Every request passes [`enter`] on its way to its handler: that is where it is known what the request is about, and where
//! its path is taken apart.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter};

use pharos_admin_api::routes::{DOMAIN, Method, Route};

use crate::paths::PathParams;
use crate::state::Admin;

/// What the two kinds of topics are called in paths.
const DOMAINS: [&str; 2] = ["persistent", "non-persistent"];

/// One operation that the door answers.
pub(crate) struct Endpoint {
    /// Its row.
    pub(crate) route: &'static Route,
    methods: MethodRouter<Admin>,
}

/// `handler` answers `route`.
pub(crate) fn on<H, T>(route: &'static Route, handler: H) -> Endpoint
where
    H: Handler<T, Admin>,
    T: 'static,
{
    let filter = match route.method {
        Method::Get => MethodFilter::GET,
        Method::Put => MethodFilter::PUT,
        Method::Post => MethodFilter::POST,
        Method::Delete => MethodFilter::DELETE,
    };
    let enter = from_fn(move |request, next| enter(route, request, next));
    let methods = axum::routing::on(filter, handler).route_layer(enter);
    Endpoint { route, methods }
}

/// The way of every request to its handler.
async fn enter(route: &'static Route, mut request: Request, next: Next) -> Response {
    match PathParams::of(route, request.uri().path()) {
        Ok(params) => {
            request.extensions_mut().insert(params);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

impl Endpoint {
    /// Adds it to a router.
    pub(crate) fn mount(self, mut router: Router<Admin>) -> Router<Admin> {
        for path in places(self.route.path) {
            router = router.route(&path, self.methods.clone());
        }
        router
    }
}

/// Where a row is found. The groups of topics stand beside other groups, so each gets its own place; elsewhere the domain is
/// a parameter like any other, and a wrong one is the handler's to refuse.
fn places(path: &str) -> Vec<String> {
    let of_topics = format!("/admin/v2/{{{DOMAIN}}}/");
    match path.strip_prefix(&of_topics) {
        Some(rest) => DOMAINS
            .iter()
            .map(|domain| format!("/admin/v2/{domain}/{rest}"))
            .collect(),
        None => vec![path.to_owned()],
    }
}
