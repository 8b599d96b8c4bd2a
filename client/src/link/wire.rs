//! Commands and replies.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::limiter::Shape;
use crate::local::Act;
use crate::{Cost, Decision, Decisions, Limit, Limiter, Outcome, Source};

pub(super) fn command(key: &[u8], shape: &Shape, act: Act) -> Cmd {
    let name = match act {
        Act::Acquire(_) => "TB.ACQUIRE",
        Act::Peek(_) | Act::Check(_) => "TB.PEEK",
        Act::Reserve { .. } => "TB.RESERVE",
        Act::Credit(_) => "TB.CREDIT",
        Act::Debit(_) => "TB.DEBIT",
    };
    // Sixteen digits are room for the amount.
    let bytes = [
        name.len(),
        key.len(),
        shape.capacity.len(),
        shape.rate.len(),
        16,
    ];
    let bytes = bytes.into_iter().fold(0, usize::saturating_add);
    let mut command = Cmd::with_capacity(6, bytes);
    command.arg(name);
    bucket(&mut command, key, shape, Cost::of(act.amount()));
    if let Act::Reserve { max_wait_ms, .. } = act {
        command.arg(max_wait_ms);
    }
    command
}

pub(super) fn debit(key: &[u8], shape: &Shape, amount: Cost) -> Cmd {
    command(key, shape, Act::Debit(amount.amount()))
}

pub(super) fn acquire_all(keys: &[Vec<u8>], wanted: &[(&Limiter, Cost)]) -> Cmd {
    let mut command = redis::cmd("TB.MACQUIRE");
    for (key, (limiter, cost)) in keys.iter().zip(wanted) {
        bucket(&mut command, key, limiter.shape(), *cost);
    }
    command
}

/// The call of [`Client::check`](crate::Client::check): it takes nothing and leaves
/// nothing behind, but is refused where a call that limits would be.
pub(super) fn check(key: &[u8]) -> Cmd {
    let mut command = redis::cmd("TB.ACQUIRE");
    command.arg(key).arg("1").arg("1").arg("0");
    command
}

fn bucket(command: &mut Cmd, key: &[u8], shape: &Shape, amount: Cost) {
    command
        .arg(key)
        .arg(shape.capacity.as_str())
        .arg(shape.rate.as_str());
    match amount.whole() {
        Some(whole) => command.arg(whole),
        None => command.arg(amount.text()),
    };
}

/// The four integers of a decision; `None` for what the module never says.
pub(super) fn decision(value: Value, limit: Limit) -> Option<Decision> {
    let Value::Array(items) = value else {
        return None;
    };
    four(&items, limit)
}

pub(super) fn decisions(value: Value, limits: &[Limit]) -> Option<Decisions> {
    let Value::Array(items) = value else {
        return None;
    };
    let [Value::Int(allowed), Value::Int(retry_after_ms), Value::Array(buckets)] = items.as_slice()
    else {
        return None;
    };
    if buckets.len() != limits.len() {
        return None;
    }
    let each = buckets
        .iter()
        .zip(limits)
        .map(|(bucket, limit)| match bucket {
            Value::Array(items) => four(items, *limit),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()?;
    let outcome = outcome(*allowed, *retry_after_ms)?;
    Some(Decisions { outcome, each })
}

fn four(items: &[Value], limit: Limit) -> Option<Decision> {
    let [Value::Int(allowed), Value::Int(remaining), Value::Int(retry_after_ms), Value::Int(reset_after_ms)] =
        items
    else {
        return None;
    };
    Some(Decision::new(
        outcome(*allowed, *retry_after_ms)?,
        u64::try_from(*remaining).ok()?,
        Duration::from_millis(u64::try_from(*reset_after_ms).ok()?),
        limit,
        Source::Redis,
    ))
}

/// Whether it is allowed is said by the flag and by nothing else.
fn outcome(allowed: i64, retry_after_ms: i64) -> Option<Outcome> {
    let time = u64::try_from(retry_after_ms).map(Duration::from_millis);
    match (allowed, time) {
        (1, Ok(wait)) => Some(Outcome::Allowed { wait }),
        (0, Ok(Duration::ZERO)) => None,
        (0, Ok(retry_after)) => Some(Outcome::Denied { retry_after }),
        (0, Err(_)) if retry_after_ms == -1 => Some(Outcome::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Limit {
        Limit::per_second(1.0).unwrap()
    }

    fn ints(items: &[i64]) -> Value {
        Value::Array(items.iter().map(|item| Value::Int(*item)).collect())
    }

    fn read(items: &[i64]) -> Option<Decision> {
        decision(ints(items), limit())
    }

    /// B03, B04: no number that means something else reaches a user, and the flag alone
    /// says yes.
    #[test]
    fn replies_become_decisions() {
        let allowed = read(&[1, 9, 0, 1000]).unwrap();
        assert!(allowed.is_allowed());
        assert_eq!(allowed.remaining(), 9);
        assert_eq!(allowed.reset_after(), Duration::from_secs(1));
        assert_eq!(allowed.source(), Source::Redis);
        assert_eq!(allowed.retry_after(), None);

        let denied = read(&[0, 0, 500, 1000]).unwrap();
        assert_eq!(denied.retry_after(), Some(Duration::from_millis(500)));
        assert!(!denied.is_allowed());

        let never = read(&[0, 5, -1, 0]).unwrap();
        assert_eq!(never.outcome(), Outcome::Never);
        assert_eq!(never.retry_after(), None);

        let reserved = read(&[1, 0, 250, 1000]).unwrap();
        assert_eq!(reserved.wait(), Duration::from_millis(250));
        let largest = read(&[0, 0, i64::MAX, i64::MAX]).unwrap();
        assert_eq!(
            largest.retry_after(),
            Some(Duration::from_millis(9_223_372_036_854_775_807))
        );
    }

    #[test]
    fn what_the_module_never_says_is_no_decision() {
        for items in [
            &[][..],
            &[1],
            &[1, 1, 0],
            &[1, 1, 0, 0, 0],
            &[2, 1, 0, 0],
            &[-1, 1, 0, 0],
            &[1, -1, 0, 0],
            &[1, 1, -1, 0],
            &[1, 1, 0, -1],
            &[0, 0, 0, 1],
            &[0, 0, -2, 1],
            &[0, 0, i64::MIN, 1],
        ] {
            assert_eq!(read(items), None, "{items:?}");
        }
        for value in [
            Value::Nil,
            Value::Okay,
            Value::Int(1),
            Value::SimpleString("1".into()),
            Value::Array(vec![Value::Nil; 4]),
        ] {
            assert_eq!(decision(value, limit()), None);
        }
        let one = ints(&[1, 1, 0, 0]);
        let all = |each: Vec<Value>| {
            let items = vec![Value::Int(1), Value::Int(0), Value::Array(each)];
            decisions(Value::Array(items), &[limit(), limit()])
        };
        assert!(all(vec![one.clone(), one.clone()]).is_some());
        assert_eq!(all(vec![one.clone()]), None);
        assert_eq!(all(vec![one, Value::Nil]), None);
    }
}
