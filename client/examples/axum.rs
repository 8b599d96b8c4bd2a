//! An HTTP service with a limit per API key:
//! `cargo run --example axum --features tower [redis://127.0.0.1/] [127.0.0.1:3000]`, then
//! `curl -i -H 'x-api-key: me' 127.0.0.1:3000`.

use axum::routing::get;
use axum::Router;
use http::request::Parts;
use tokenbucket_client::tower::RateLimitLayer;
use tokenbucket_client::{Client, Limit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let redis = arguments.next().unwrap_or("redis://127.0.0.1/".to_string());
    let listen = arguments.next().unwrap_or("127.0.0.1:3000".to_string());

    let client = Client::builder(&redis)?.replicas(3).build()?;
    let api = client
        .limiter(Limit::per_second(1.0)?.burst(3.0)?)
        .named("api");
    let limited = RateLimitLayer::new(api, |request: &Parts| {
        // Without a key: not limited here. A real service asks for one before.
        let key = request.headers.get("x-api-key")?;
        Some(key.as_bytes().to_vec())
    });
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limited)
        // Outside of the layer: a health check is never limited.
        .route("/health", get(|| async { "ok\n" }));

    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
