//! One limiter, ten calls: `cargo run --example basic [redis://127.0.0.1/]`.

use std::time::Instant;

use tokenbucket_client::{Client, Error, Limit};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("redis://127.0.0.1/");
    let client = Client::builder(address)?.replicas(6).build()?;
    // At the start of a service: a wrong password or a missing module is seen here.
    if let Err(error) = client.check().await {
        eprintln!("limits will not be shared: {error}");
    }
    let api = client
        .limiter(Limit::per_second(2.0)?.burst(5.0)?)
        .named("api");
    for call in 1..=10 {
        let start = Instant::now();
        let decision = api.acquire("user:42", 1).await?;
        println!(
            "call {call}: {}, {} left, decided by {:?} in {:?}{}",
            if decision.is_allowed() { "yes" } else { "no" },
            decision.remaining(),
            decision.source(),
            start.elapsed(),
            decision
                .retry_after()
                .map_or_else(String::new, |wait| format!(", again in {wait:?}")),
        );
    }
    Ok(())
}
