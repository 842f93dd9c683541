//! A row of the route table and the handler that answers it.
//!
//! Every request passes [`enter`] on its way to its handler: that is where it is known what the request is about, and where
//! its path is taken apart.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter};

use pharos_admin_api::routes::{DOMAIN, Method, Route};
use pharos_auth::{Access, Action, Principal, Resource};

use crate::error::ApiError;
use crate::owners::OriginalRequest;
use crate::paths::PathParams;
use crate::redirect;
use crate::request_rate::{RequestRate, admit};
use crate::state::Admin;

/// Names of the two topic domains in paths.
const DOMAINS: [&str; 2] = ["persistent", "non-persistent"];

/// Operation with its handler.
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

/// The way of every request to its handler: the one place where it is asked whether the caller may do it.
async fn enter(route: &'static Route, mut request: Request, next: Next) -> Response {
    let permitted = admit(&mut request).await.and_then(|()| permit(route, &request));
    match permitted {
        Ok(params) => {
            let (uri, subject) = (request.uri().clone(), params.subject());
            let (encrypted, asked) = (request.extensions().get().copied(), OriginalRequest::of(&request));
            request.extensions_mut().insert(params);
            let answer = asked.scope(next.run(request)).await;
            redirect::follow(answer, &uri, &subject, encrypted)
        }
        Err(error) => error.into_response(),
    }
}

/// Takes the path apart and asks, then whether the tenant is asked about too fast. The handler checks names that are none: what they are
/// part of is what is asked about.
fn permit(route: &'static Route, request: &Request) -> Result<PathParams, ApiError> {
    let params = PathParams::of(route, request.uri().path())?;
    let subject = params.subject();
    may(request, route.action, subject.as_resource())?;
    if let (Some(tenant), Some(rate)) = (
        subject.as_resource().tenant(),
        request.extensions().get::<RequestRate>(),
    ) {
        rate.take_of_tenant(tenant)?;
    }
    Ok(params)
}

/// Asks whether the one who sends a request may do this.
pub(crate) fn may(request: &Request, action: Action, resource: Resource<'_>) -> Result<(), ApiError> {
    let found = request.extensions();
    let (Some(access), Some(who)) = (found.get::<Access>(), found.get::<Principal>()) else {
        let reason = "the request came by no connection";
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, reason));
    };
    let asked = access.check(who, action, resource);
    asked.map_err(|denied| ApiError::denied(&denied))
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

/// Paths of a row. Topic routes need one path per domain, because the groups of topics stand beside other groups;
/// elsewhere the domain is an ordinary parameter, and the handler refuses a wrong one.
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
