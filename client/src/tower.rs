//! A tower layer for HTTP services; axum takes it as it is.
//!
//! ```
//! use http::request::Parts;
//! use tokenbucket_client::tower::RateLimitLayer;
//! use tokenbucket_client::{Client, Limit};
//!
//! let client = Client::in_process().build()?;
//! let api = client.limiter(Limit::per_second(50.0)?.burst(100.0)?).named("api");
//! let layer = RateLimitLayer::new(api, |request: &Parts| {
//!     // None: not limited.
//!     let key = request.headers.get("x-api-key")?;
//!     Some(key.as_bytes().to_vec())
//! });
//! # let _: tower::util::BoxService<http::Request<()>, http::Response<()>, std::convert::Infallible> =
//! #     tower::util::BoxService::new(tower::Layer::layer(&layer, tower::service_fn(
//! #         |_: http::Request<()>| async { Ok(http::Response::new(())) })));
//! # Ok::<(), tokenbucket_client::Error>(())
//! ```
//!
//! | the request | the response |
//! |---|---|
//! | has no key | the service's own |
//! | is allowed | the service's own, with `RateLimit-Policy` and `RateLimit` |
//! | is denied | 429 with these and `Retry-After`, in seconds, at least 1 |
//! | costs more than the capacity | 429 without `Retry-After`: it never will be allowed |
//! | can't be decided, as the [error](crate::Error) says | as [`OnError`] says |

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::headers;
use crate::{Cost, IntoCost, Limiter, Outcome};

/// What becomes of a request whose limit can't be decided: a broken set-up, or a failure
/// mode that says [`Error`](crate::FailureMode::Error). (A server that is away is not
/// such a case: the failure mode decides then.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// 503, so that a limit that does not hold is seen.
    #[default]
    Refuse,
    /// Goes to the service, unlimited.
    Pass,
}

type CostOf = Arc<dyn Fn(&Parts) -> Cost + Send + Sync>;

/// Limits the requests to a service. See the [module](self).
#[derive(Clone)]
pub struct RateLimitLayer<E> {
    limiter: Limiter,
    subject: E,
    cost: Option<CostOf>,
    on_error: OnError,
}

impl<E> fmt::Debug for RateLimitLayer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.limiter)
            .field("on_error", &self.on_error)
            .finish_non_exhaustive()
    }
}

impl<E> RateLimitLayer<E> {
    /// Limits by `limiter`; `subject` says about whom it is asked, `None` for a request
    /// that is not limited.
    pub fn new<K>(limiter: Limiter, subject: E) -> Self
    where
        E: Fn(&Parts) -> Option<K>,
        K: AsRef<[u8]>,
    {
        Self {
            limiter,
            subject,
            cost: None,
            on_error: OnError::default(),
        }
    }

    /// What a request costs: 1 unless said. A cost that is none ([`IntoCost`]) is 1 too.
    #[must_use]
    pub fn cost<C: IntoCost>(mut self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(move |request: &Parts| {
            cost(request).into_cost().unwrap_or(Cost::ONE)
        }));
        self
    }

    /// What becomes of a request whose limit can't be decided.
    #[must_use]
    pub fn on_server_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}

impl<S, E: Clone> Layer<S> for RateLimitLayer<E> {
    type Service = RateLimit<S, E>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose requests are limited. See the [module](self).
#[derive(Clone, Debug)]
pub struct RateLimit<S, E> {
    inner: S,
    layer: RateLimitLayer<E>,
}

impl<S, E, K, B, R> Service<Request<B>> for RateLimit<S, E>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    E: Fn(&Parts) -> Option<K>,
    K: AsRef<[u8]> + Send + Sync + 'static,
    B: Send + 'static,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was found ready; its clone need not be.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let subject = (self.layer.subject)(&parts);
        let cost = match &self.layer.cost {
            Some(cost) => cost(&parts),
            None => Cost::ONE,
        };
        let request = Request::from_parts(parts, body);
        let Some(subject) = subject else {
            return Box::pin(inner.call(request));
        };
        let limiter = self.layer.limiter.clone();
        let on_error = self.layer.on_error;
        Box::pin(async move {
            let decision = match (limiter.acquire(&subject, cost).await, on_error) {
                (Ok(decision), _) => decision,
                (Err(_), OnError::Pass) => return inner.call(request).await,
                (Err(_), OnError::Refuse) => {
                    return Ok(empty(StatusCode::SERVICE_UNAVAILABLE));
                }
            };
            let mut response = match decision.outcome() {
                Outcome::Allowed { .. } => inner.call(request).await?,
                Outcome::Denied { .. } | Outcome::Never => empty(StatusCode::TOO_MANY_REQUESTS),
            };
            headers::add(response.headers_mut(), limiter.name(), &decision);
            Ok(response)
        })
    }
}

fn empty<R: Default>(status: StatusCode) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = status;
    response
}
