//! The tower layer, in axum.

use std::convert::Infallible;
use std::future::{ready, Ready};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::routing::get;
use axum::Router;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokenbucket_client::tower::{OnError, RateLimitLayer};
use tokenbucket_client::{Client, Limiter};
use tokenbucket_testkit::Server;
use tower::{Layer, Service, ServiceExt};

use crate::*;

fn key(request: &Parts) -> Option<Vec<u8>> {
    Some(request.headers.get("x-api-key")?.as_bytes().to_vec())
}

fn app(limiter: &Limiter, on_error: OnError) -> Router {
    let layer = RateLimitLayer::new(limiter.clone(), key)
        .cost(|request: &Parts| if request.uri.path() == "/dear" { 5 } else { 1 })
        .on_server_error(on_error);
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/dear", get(|| async { "dear" }))
        .layer(layer)
}

async fn ask(app: &Router, path: &str, key: Option<&str>) -> Response<Body> {
    let mut request = Request::get(path);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let request = request.body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

fn field(response: &Response<Body>, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or(String::new(), |value| value.to_str().unwrap().to_string())
}

#[tokio::test]
async fn requests_are_limited() {
    let server = with_module().held_clock(1_800_000_000_000_000).start();
    let client = connect(&server);
    let limiter = client.limiter(limit(7.0, 0.5)).named("api");
    let app = app(&limiter, OnError::Refuse);

    let first = ask(&app, "/", Some("a")).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(field(&first, "ratelimit-policy"), "\"api\";q=7;w=14");
    assert_eq!(field(&first, "ratelimit"), "\"api\";r=6;t=2");
    assert_eq!(field(&first, "retry-after"), "");

    let dear = ask(&app, "/dear", Some("a")).await;
    assert_eq!(
        (dear.status(), field(&dear, "ratelimit")),
        (StatusCode::OK, "\"api\";r=1;t=12".into())
    );
    let denied = ask(&app, "/dear", Some("a")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&denied, "retry-after"), "8");
    assert_eq!(field(&denied, "ratelimit"), "\"api\";r=1;t=12");

    // Another key, and no key at all.
    assert_eq!(ask(&app, "/dear", Some("b")).await.status(), StatusCode::OK);
    for _ in 0..20 {
        let free = ask(&app, "/", None).await;
        assert_eq!(
            (free.status(), field(&free, "ratelimit")),
            (StatusCode::OK, String::new())
        );
    }
}

/// A cost above the capacity: no, and no time to come back at.
#[tokio::test]
async fn never() {
    let client = Client::in_process().build().unwrap();
    let app = app(
        &client.limiter(limit(2.0, 1.0)).named("api"),
        OnError::Refuse,
    );
    let never = ask(&app, "/dear", Some("a")).await;
    assert_eq!(never.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&never, "retry-after"), "");
    assert_eq!(field(&never, "ratelimit"), "\"api\";r=2;t=0");
}

/// F13: what the client calls broken is what the layer was told to make of it.
#[tokio::test]
async fn a_broken_set_up() {
    let server = Server::builder().start();
    let client = connect(&server);
    let limiter = client.limiter(limit(2.0, 1.0)).named("api");
    let refused = ask(&app(&limiter, OnError::Refuse), "/", Some("a")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let passed = ask(&app(&limiter, OnError::Pass), "/", Some("a")).await;
    assert_eq!(passed.status(), StatusCode::OK);
}

/// A service that must be found ready before each call, and whose clones are not.
#[derive(Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        ready(Ok(Response::new(())))
    }
}

/// The service that was found ready is the one that is called.
#[tokio::test]
async fn the_ready_service_is_called() {
    let client = Client::in_process().build().unwrap();
    let layer = RateLimitLayer::new(client.limiter(limit(10.0, 1.0)), |_: &Parts| Some("all"));
    let mut service = layer.layer(Strict::default());
    for _ in 0..3 {
        let ready = ServiceExt::<Request<()>>::ready(&mut service)
            .await
            .unwrap();
        assert_eq!(
            ready.call(Request::new(())).await.unwrap().status(),
            StatusCode::OK
        );
    }
}
