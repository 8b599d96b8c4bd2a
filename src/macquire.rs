//! `TB.MACQUIRE key capacity rate cost [key capacity rate cost ...]`
//!
//! Takes from every bucket or from none, in one step. From 1 to 64 buckets, a key
//! at most once.
//!
//! Answers `[allowed, retry_after_ms, [four, ...]]`: allowed for all; the longest
//! wait, -1 if any bucket says never; and for each bucket the four integers of
//! `TB.ACQUIRE` in the order given, after the debit when all were allowed,
//! untouched when one was not. A denial writes nothing.

use arrayvec::ArrayVec;
use tokenbucket_core::{Amount, Bucket, Decision, Limit};

use crate::arguments::{self, AMOUNT, CAPACITY, KEY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::{Call, Key};
use crate::reply::{All, MAX_BUCKETS};
use crate::stats::{self, Tally};
use crate::store;

/// Arguments of one bucket.
const GROUP: usize = 4;

/// `TB.MACQUIRE`.
pub struct Macquire;

impl Command for Macquire {
    const SPEC: Spec = Spec {
        name: c"TB.MACQUIRE",
        flags: c"write deny-oom fast",
        arity: -5,
        key_access: KeyAccess::Update,
        keys: Keys::Every(4),
        summary: c"Takes tokens from every one of several buckets, or from none.",
        complexity: c"O(N) where N is the number of buckets",
        since: c"0.1.0",
        args: &[Arg::required(
            c"bucket",
            ArgKind::Groups(&[
                Arg::required(c"key", ArgKind::Key),
                Arg::required(c"capacity", ArgKind::Amount),
                Arg::required(c"rate", ArgKind::Rate),
                Arg::required(c"cost", ArgKind::Amount),
            ]),
        )],
    };

    const TALLY: &'static Tally = &stats::MACQUIRE;

    type Reply = All;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        let groups = call.groups_of(GROUP)?;
        if groups > MAX_BUCKETS {
            return Err(Error::TooManyBuckets);
        }
        let first_of = |group: usize| group.saturating_mul(GROUP);
        let mut wants = ArrayVec::<(Limit, Amount), MAX_BUCKETS>::new();
        for group in 0..groups {
            let first = first_of(group);
            wants.push((
                arguments::limit(call, CAPACITY.saturating_add(first))?,
                arguments::amount(call, AMOUNT.saturating_add(first), Argument::Cost)?,
            ));
        }
        let mut names = ArrayVec::<&[u8], MAX_BUCKETS>::new();
        for group in 0..groups {
            let name = call.argument(KEY.saturating_add(first_of(group)))?;
            if names.contains(&name) {
                return Err(Error::RepeatedKey);
            }
            names.push(name);
        }

        let now = call.now();
        let mut keys = ArrayVec::<Key<'_>, MAX_BUCKETS>::new();
        let mut buckets = ArrayVec::<Bucket, MAX_BUCKETS>::new();
        for (group, (limit, _)) in wants.iter().enumerate() {
            let key = call.open_for_update(KEY.saturating_add(first_of(group)))?;
            buckets.push(store::load(&key, limit, now)?);
            keys.push(key);
        }

        let decide = |rule: fn(&Bucket, &Limit, Amount, u64) -> Decision| {
            buckets
                .iter()
                .zip(&wants)
                .map(|(bucket, (limit, cost))| rule(bucket, limit, *cost, now))
                .collect::<ArrayVec<_, MAX_BUCKETS>>()
        };
        let mut decisions = decide(Bucket::acquire);
        if !decisions.iter().all(Decision::is_allowed) {
            decisions = decide(Bucket::check);
        }
        for (key, decision) in keys.into_iter().zip(&decisions) {
            store::apply(key, decision)?;
        }
        Ok(All::new(&decisions))
    }
}
