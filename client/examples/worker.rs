//! A worker that sends at a steady pace, however many of it run:
//! `cargo run --example worker [redis://127.0.0.1/]`.

use std::time::{Duration, Instant};

use tokenbucket_client::{Client, Error, Limit};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("redis://127.0.0.1/");
    let client = Client::builder(address)?.build()?;
    // Twenty a second, and never two at once.
    let pace = client
        .limiter(Limit::per_second(20.0)?.burst(1.0)?)
        .named("mails");
    let start = Instant::now();
    for mail in 1..=10 {
        // The place in the queue is taken now; the work begins when it is due.
        let place = pace.reserve("smtp", 1, Duration::from_secs(60)).await?;
        if !place.is_allowed() {
            println!("mail {mail}: the queue is longer than a minute");
            continue;
        }
        tokio::time::sleep(place.wait()).await;
        println!("mail {mail} sent after {:?}", start.elapsed());
    }
    Ok(())
}
