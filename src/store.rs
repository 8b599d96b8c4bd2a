//! A bucket at a key: reading it, and carrying out what a decision leaves behind.

use tokenbucket_core::{Bucket, Decision, Effect, Limit};

use crate::arguments::KEY;
use crate::error::Error;
use crate::ffi::{Call, Key, Value};
use crate::reply::Four;
use crate::stats::CLOCK_STEPS;

/// What every command does that changes the one bucket of its call: opens the
/// key, lets `rule` decide about the bucket at this instant, and carries that out.
///
/// # Errors
///
/// As [`load`] and [`apply`].
pub fn update(
    call: &Call<'_>,
    limit: &Limit,
    rule: impl FnOnce(&Bucket, u64) -> Decision,
) -> Result<Four, Error> {
    let now = call.now();
    let key = call.open_for_update(KEY)?;
    let decision = rule(&load(&key, limit, now)?, now);
    apply(key, &decision)?;
    Ok(Four::new(&decision))
}

/// The bucket at `key`; a full one where there is none.
///
/// # Errors
///
/// [`Error::WrongType`] for any other value, which is left as it is.
pub fn load(key: &Key<'_>, limit: &Limit, now: u64) -> Result<Bucket, Error> {
    match key.value() {
        Value::Missing => Ok(Bucket::full(limit, now)),
        Value::Bytes(bytes) => Bucket::decode(&bytes).map_err(|_| Error::WrongType),
        Value::Other => Err(Error::WrongType),
    }
}

/// Does to `key` what the decision says, and to replicas and the AOF the same:
/// the resulting bytes and their absolute expiry, never the call. Tells those who
/// listen of a denial.
///
/// # Errors
///
/// [`Error::Internal`] where the server refuses, which it has no reason to.
pub fn apply(key: Key<'_>, decision: &Decision) -> Result<(), Error> {
    match decision.effect {
        Effect::Nothing => {}
        Effect::Put {
            bucket,
            expires_at_ms,
        } => key.set(&bucket.encode(), expires_at_ms)?,
        Effect::Delete => key.delete()?,
    }
    if decision.clock_stepped {
        CLOCK_STEPS.count();
    }
    if !decision.is_allowed() {
        key.notify_denied();
    }
    Ok(())
}
