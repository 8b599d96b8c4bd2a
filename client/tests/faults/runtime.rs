//! Runtimes that end, are another, or are not there.

use std::future::Future;
use std::time::Duration;

use tokenbucket_client::{ErrorKind, Source};
use tokenbucket_testkit::{Fault, FaultProxy};

use crate::support::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// A runtime that is shut down with calls in flight takes its connection with it; the same
/// client goes on in the next one.
#[test]
fn a_client_outlives_its_runtime() {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    let client = builder(proxy.port())
        .deadline(Duration::from_secs(5))
        .build()
        .unwrap();
    let limiter = client.limiter(plenty()).named("api");
    for fault in [Fault::Forward, Fault::BlackHole, Fault::Forward] {
        let runtime = runtime();
        proxy.set(fault.clone());
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                runtime.spawn(async move { limiter.acquire("user:42", 1).await })
            })
            .collect();
        runtime.shutdown_background();
        drop(calls);
    }
    proxy.cut_all();
    runtime().block_on(async {
        let mut tally = Tally::default();
        let took = until_redis(&limiter, &mut tally).await;
        println!("on the server {took:?} after its runtime was shut down");
        assert_eq!(tally.errors, 0);
    });
}

/// A dial that was under way in a runtime that has ended is nobody's dial.
#[test]
fn a_dial_dies_with_its_runtime() {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    proxy.set(Fault::BlackHole);
    let client = builder(proxy.port())
        .connect_timeout(PATIENCE)
        .build()
        .unwrap();
    let limiter = client.limiter(plenty()).named("api");
    let first = runtime();
    let decision = first.block_on(limiter.acquire("user:42", 1)).unwrap();
    assert!(matches!(decision.source(), Source::Local(_)));
    first.shutdown_background();
    proxy.set(Fault::Forward);
    runtime().block_on(async {
        until_redis(&limiter, &mut Tally::default()).await;
    });
}

/// Without a runtime there is an error and no panic.
#[test]
fn without_a_runtime() {
    let server = with_module().start();
    let client = builder(server.port()).build().unwrap();
    let limiter = client.limiter(plenty()).named("api");
    let future = limiter.acquire("user:42", 1);
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(result) = future.as_mut().poll(&mut context) else {
        panic!("it waits");
    };
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}
