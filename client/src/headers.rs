//! The header fields of a decision.
//!
//! `Retry-After` is of RFC 9110. `RateLimit-Policy` and `RateLimit` are as in the IETF draft
//! "RateLimit header fields for HTTP" since its eighth version; the draft may still change,
//! and this file is all that would change with it.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::HeaderMap;

use crate::Decision;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Adds to `headers` what `decision` by the limit `name` says.
pub(crate) fn add(headers: &mut HeaderMap, name: &str, decision: &Decision) {
    let name = quoted(name);
    let limit = decision.limit();
    // Quota: the capacity, in whole tokens. Window: the time in which so many flow in.
    let policy = format!(
        "{name};q={:.0};w={}",
        limit.capacity().floor(),
        seconds(limit.time_to_fill()).max(1)
    );
    let state = format!(
        "{name};r={};t={}",
        decision.remaining(),
        seconds(decision.reset_after())
    );
    // Several limits on one request: each says its own.
    for (field, value) in [(POLICY, policy), (LIMIT, state)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.append(field, value);
        }
    }
    if let Some(retry_after) = decision.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds(retry_after).max(1)));
    }
}

/// Rounded up; within what a structured field's integer holds.
fn seconds(time: Duration) -> u64 {
    let whole = time.as_secs();
    let up = u64::from(time.subsec_nanos() > 0);
    whole.saturating_add(up).min(999_999_999_999_999)
}

/// A string of a structured field: printable ASCII in quotes.
fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len().saturating_add(2));
    text.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => {
                text.push('\\');
                text.push(character);
            }
            ' '..='~' => text.push(character),
            _ => text.push('_'),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, Outcome, Source};

    fn fields(
        name: &str,
        limit: Limit,
        outcome: Outcome,
        remaining: u64,
        reset: Duration,
    ) -> Vec<String> {
        let decision = Decision::new(outcome, remaining, reset, limit, Source::Redis);
        let mut headers = HeaderMap::new();
        add(&mut headers, name, &decision);
        ["ratelimit-policy", "ratelimit", "retry-after"]
            .map(|field| {
                let value = headers.get(field).map(|value| value.to_str().unwrap());
                value.unwrap_or_default().to_string()
            })
            .to_vec()
    }

    #[test]
    fn fields_say_what_the_decision_says() {
        let limit = Limit::per_minute(90.0).unwrap();
        let denied = Outcome::Denied {
            retry_after: Duration::from_millis(1),
        };
        let reset = Duration::from_millis(1_500);
        assert_eq!(
            fields("api", limit, denied, 0, reset),
            ["\"api\";q=90;w=60", "\"api\";r=0;t=2", "1"]
        );
        let allowed = Outcome::Allowed {
            wait: Duration::ZERO,
        };
        assert_eq!(
            fields("a\"\\é", limit, allowed, 89, Duration::ZERO),
            ["\"a\\\"\\\\_\";q=90;w=60", "\"a\\\"\\\\_\";r=89;t=0", ""]
        );
        assert_eq!(
            fields("n", limit, Outcome::Never, 0, Duration::MAX),
            ["\"n\";q=90;w=60", "\"n\";r=0;t=999999999999999", ""]
        );
        let fast = Limit::per_second(1e12).unwrap().burst(0.5).unwrap();
        assert_eq!(fields("n", fast, denied, 0, reset)[0], "\"n\";q=0;w=1");
    }
}
