//! Auth: there are no users, roles and tokens. Every call is refused with etcd's own message.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::refusal::Refusal;

/// The service.
#[derive(Clone)]
pub struct Auth;

impl NamedService for Auth {
    const NAME: &'static str = "etcdserverpb.Auth";
}

impl Service<Request<Body>> for Auth {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let refusal = match request.uri().path() {
            "/etcdserverpb.Auth/Authenticate" => Refusal::AuthNotEnabled,
            _ => Refusal::NotCapable,
        };
        ready(Ok(Status::from(refusal).into_http()))
    }
}
