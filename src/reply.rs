//! A decision into the integers that the caller gets.

use tokenbucket_core::{Decision, Outcome};

/// What a command answers: `allowed`, `remaining`, `retry_after_ms` and
/// `reset_after_ms`, in this order.
pub type Reply = [i64; 4];

/// `retry_after_ms` of a call that would never be allowed.
const NEVER: i64 = -1;

/// The reply that tells `decision`.
pub fn reply(decision: &Decision) -> Reply {
    let (allowed, retry_after_ms) = match decision.outcome {
        Outcome::Allowed => (1, 0),
        Outcome::Denied { retry_after } => (0, retry_after.millis_ceil()),
        Outcome::Never => (0, NEVER),
    };
    let remaining = i64::try_from(decision.remaining).unwrap_or(i64::MAX);
    [
        allowed,
        remaining,
        retry_after_ms,
        decision.reset_after.millis_ceil(),
    ]
}
