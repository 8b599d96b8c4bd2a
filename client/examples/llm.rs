//! A budget of language-model tokens: take the estimate before the call, settle when the
//! real usage is known: `cargo run --example llm [redis://127.0.0.1/]`.

use tokenbucket_client::{Client, Error, Limit};

/// A model that uses what it likes.
async fn complete(prompt: &str) -> u64 {
    tokio::task::yield_now().await;
    u64::try_from(prompt.len()).unwrap_or(u64::MAX)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("redis://127.0.0.1/");
    let client = Client::builder(address)?.build()?;
    let budget = client.limiter(Limit::per_minute(90_000.0)?).named("llm");
    let estimate = 4_000;
    for prompt in ["short", &"long ".repeat(1_000)] {
        let decision = budget.acquire("team:7", estimate).await?;
        if let Some(wait) = decision.retry_after() {
            println!("over budget, again in {wait:?}");
            continue;
        }
        let used = complete(prompt).await;
        let decision = if used <= estimate {
            budget
                .credit("team:7", estimate.saturating_sub(used))
                .await?
        } else {
            // What was used was used: into debt if need be.
            budget
                .debit("team:7", used.saturating_sub(estimate))
                .await?
        };
        println!(
            "estimated {estimate}, used {used}, {} left in this minute's budget",
            decision.remaining()
        );
    }
    Ok(())
}
