//! The local table: the buckets of this process, in memory of a fixed size.
//!
//! Eight-way set-associative. A key belongs to one set, found by a hash with a random
//! seed, so that nobody outside can choose keys that fall together; each set has a lock of
//! its own, so that threads wait for each other only when they want the same eighth of
//! a ten-thousandth. Nothing is allocated after the start.
//!
//! A bucket that is full again says nothing and is free to drop. Where a set has no such
//! bucket, the one that is soonest full goes: a flood of new keys pushes out the buckets
//! of other new keys, which are nearly full, before that of a caller who has used up his
//! tokens. (Least recently used would do the opposite: the flood is always the most
//! recent.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokenbucket_core::{Amount, Bucket, Decision, Effect, Limit, Wait, STORED_LEN};

const WAYS: usize = 8;
/// The tick in which the instant is noted at which a bucket is full: 2^10 microseconds.
/// 48 bits of them are 9,000 years.
const TICK_BITS: u32 = 10;
const ATTO_PER_MICRO: u128 = 1_000_000_000_000;
const PICO_PER_MICRO: u128 = 1_000_000;
const ATTO_PER_PICO: u128 = 1_000_000;

/// One bucket: 40 bytes.
///
/// What is kept is what is missing, not the level: the room of a local bucket depends on
/// the request ([`Spot`]), and what is missing does not.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The part of the hash that is not spent on choosing the set; 0 for an empty place.
    tag: u32,
    /// The number of replicas whose share it is of.
    replicas: u16,
    /// When it is full, in ticks, rounded up: the upper and the lower part.
    full_at_upper: u16,
    full_at_lower: u32,
    /// A bucket as stored, whose level is below zero by what is missing.
    missing: [u8; STORED_LEN],
    /// Of what is missing, the part that was sent to the server without a reply, in
    /// microtokens at the bucket's stamp. Paid off first by what flows in.
    sent: u64,
}

/// What a key owes the server for what was taken locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deficit {
    /// All that was missing, in microtokens.
    missing: u64,
    owed: Amount,
}

impl Deficit {
    /// What the server has to be told; above zero.
    pub(crate) const fn owed(&self) -> Amount {
        self.owed
    }
}

/// A key as one call meets it: where its bucket is, and what its share of the limit is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) hash: u64,
    pub(crate) limit: Limit,
    pub(crate) replicas: u16,
    /// Microseconds.
    pub(crate) now: u64,
}

#[derive(Debug)]
pub(crate) struct Table {
    sets: Box<[Mutex<[Entry; WAYS]>]>,
    /// A newcomer is no fuller than the bucket that it pushes out.
    strict: bool,
    /// The latest instant, in microseconds, at which any bucket is full: after it there is
    /// nothing in the table that says anything.
    last_full_at: AtomicU64,
}

impl Table {
    /// At least `buckets` of them, rounded up to a power of two of sets.
    pub(crate) fn new(buckets: usize, strict: bool) -> Self {
        let sets = buckets.div_ceil(WAYS).max(1).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            strict,
            last_full_at: AtomicU64::new(0),
        }
    }

    /// Whether at `now` any bucket may have something to say. One load, where none ever had.
    pub(crate) fn is_in_use(&self, now: impl FnOnce() -> u64) -> bool {
        // Ordering: a bucket that another thread puts in at this moment may be missed, as
        // it would be had this call come a moment earlier.
        let last = self.last_full_at.load(Ordering::Relaxed);
        last > 0 && last > now()
    }

    /// Decides on the key's bucket with `rule`, and keeps what that says to keep. When it is
    /// allowed, `sent` of it counts as sent to the server.
    pub(crate) fn decide(
        &self,
        spot: &Spot,
        sent: Amount,
        rule: impl FnOnce(&Bucket) -> Decision,
    ) -> Decision {
        self.at(spot, |set, tag| {
            let (before, sent_before) = set
                .find(tag)
                .map_or_else(|| (self.newcomer(set, spot), 0), |at| set.held(at, spot));
            let decision = rule(&before);
            let sent = if decision.is_allowed() {
                sent_before.saturating_add(micro(sent))
            } else {
                sent_before
            };
            match decision.effect {
                Effect::Nothing => {}
                Effect::Put { bucket, .. } => {
                    self.keep(set, spot, tag, &bucket, decision.reset_after, sent);
                }
                Effect::Delete => set.forget(tag),
            }
            decision
        })
    }

    /// What the key owes the server, which is sent now: it counts as sent from here on, so
    /// that nobody else sends it. The bucket goes on limiting until the server has
    /// [answered](Self::settled).
    pub(crate) fn take_deficit(&self, spot: &Spot) -> Option<Deficit> {
        self.at(spot, |set, tag| {
            let at = set.find(tag)?;
            let (bucket, sent) = set.held(at, spot);
            let level = bucket.level_at(&spot.limit, spot.now);
            let missing = spot.limit.capacity.attotokens().saturating_sub(level);
            let missing = missing.max(0).unsigned_abs() / ATTO_PER_PICO;
            let owed = missing.saturating_sub(u128::from(sent).saturating_mul(PICO_PER_MICRO));
            let owed = Amount::from_picotokens(owed).unwrap_or(Amount::MAX);
            if owed.is_zero() {
                return None;
            }
            let missing = u64::try_from(missing.div_ceil(PICO_PER_MICRO)).unwrap_or(u64::MAX);
            self.keep_level(set, spot, tag, level, missing);
            Some(Deficit { missing, owed })
        })
    }

    /// The server has it: what was missing then is not any more.
    pub(crate) fn settled(&self, spot: &Spot, deficit: &Deficit) {
        self.at(spot, |set, tag| {
            let Some(at) = set.find(tag) else {
                return;
            };
            let (bucket, sent) = set.held(at, spot);
            // What is left of it after what has flowed in meanwhile.
            let paid = sent.min(deficit.missing);
            let atto = i128::from(paid).saturating_mul(i128::from(1_000_000_000_000_u64));
            let level = bucket.level_at(&spot.limit, spot.now).saturating_add(atto);
            self.keep_level(set, spot, tag, level, sent.saturating_sub(paid));
        });
    }

    /// It did not reach the server: it is owed still.
    pub(crate) fn not_sent(&self, spot: &Spot, deficit: &Deficit) {
        self.at(spot, |set, tag| {
            let Some(at) = set.find(tag) else {
                return;
            };
            let (bucket, sent) = set.held(at, spot);
            let level = bucket.level_at(&spot.limit, spot.now);
            let sent = sent.saturating_sub(micro(deficit.owed));
            self.keep_level(set, spot, tag, level, sent);
        });
    }

    fn at<T>(&self, spot: &Spot, run: impl FnOnce(&mut Set<'_>, u32) -> T) -> T {
        let [a, b, c, d, e, f, g, h] = spot.hash.to_le_bytes();
        let number = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or_default();
        let tag = u32::from_le_bytes([e, f, g, h]).max(1);
        let mask = self.sets.len().saturating_sub(1);
        let Some(set) = self.sets.get(number & mask) else {
            // There is no such number; an empty set of one's own is the safe thing to see.
            return run(&mut Set(&mut [Entry::default(); WAYS]), tag);
        };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        run(&mut Set(&mut set), tag)
    }

    /// The bucket of a key that has none: full, but where the table is strict and full, no
    /// sooner full than the one that it would push out.
    fn newcomer(&self, set: &Set<'_>, spot: &Spot) -> Bucket {
        let full = Bucket::full(&spot.limit, spot.now);
        if !self.strict {
            return full;
        }
        let (_, full_at) = set.victim(spot.now);
        let Some(until_full) = full_at.checked_sub(spot.now) else {
            return full;
        };
        // What flows in until then is what is missing now.
        let later = spot.now.saturating_add(until_full);
        let flow = Bucket::new(0, spot.now).level_at(&spot.limit, later);
        Bucket::new(full.level().saturating_sub(flow), spot.now)
    }

    /// Keeps a level of now, in attotokens.
    fn keep_level(&self, set: &mut Set<'_>, spot: &Spot, tag: u32, level: i128, sent: u64) {
        let bucket = Bucket::new(level, spot.now);
        let reset_after = bucket
            .check(&spot.limit, Amount::ZERO, spot.now)
            .reset_after;
        if reset_after == Wait::NONE {
            set.forget(tag);
        } else {
            self.keep(set, spot, tag, &bucket, reset_after, sent);
        }
    }

    fn keep(
        &self,
        set: &mut Set<'_>,
        spot: &Spot,
        tag: u32,
        bucket: &Bucket,
        reset_after: Wait,
        sent: u64,
    ) {
        let at = set.find(tag).unwrap_or_else(|| set.victim(spot.now).0);
        let until_full = u64::try_from(reset_after.micros()).unwrap_or(u64::MAX);
        let full_at = spot.now.saturating_add(until_full);
        // Ordering: see `is_in_use`.
        self.last_full_at.fetch_max(full_at, Ordering::Relaxed);
        let ticks = full_at.div_ceil(1 << TICK_BITS);
        let [a, b, c, d, ..] = ticks.to_le_bytes();
        let below = bucket
            .level()
            .saturating_sub(spot.limit.capacity.attotokens())
            .min(0);
        let missing = below.unsigned_abs().div_ceil(ATTO_PER_MICRO);
        set.put(
            at,
            Entry {
                tag,
                replicas: spot.replicas,
                full_at_upper: u16::try_from(ticks >> 32).unwrap_or(u16::MAX),
                full_at_lower: u32::from_le_bytes([a, b, c, d]),
                missing: Bucket::new(below, bucket.stamp()).encode(),
                sent: sent.min(u64::try_from(missing).unwrap_or(u64::MAX)),
            },
        );
    }
}

/// In microtokens, rounded up.
fn micro(amount: Amount) -> u64 {
    u64::try_from(amount.picotokens().div_ceil(PICO_PER_MICRO)).unwrap_or(u64::MAX)
}

/// The eight places of a set, while it is locked.
struct Set<'table>(&'table mut [Entry; WAYS]);

impl Entry {
    /// The instant at which it is full, in microseconds.
    fn full_at(&self) -> u64 {
        let ticks = u64::from(self.full_at_upper) << 32 | u64::from(self.full_at_lower);
        ticks << TICK_BITS
    }
}

impl Set<'_> {
    fn find(&self, tag: u32) -> Option<usize> {
        self.0.iter().position(|entry| entry.tag == tag)
    }

    fn put(&mut self, at: usize, entry: Entry) {
        if let Some(place) = self.0.get_mut(at) {
            *place = entry;
        }
    }

    fn forget(&mut self, tag: u32) {
        if let Some(at) = self.find(tag) {
            self.put(at, Entry::default());
        }
    }

    /// The bucket in that place, and what is left of its sent part at the spot's instant, in
    /// microtokens. Where the number of replicas has changed since, both are rescaled to the
    /// new share: as full as before, in parts of the share.
    fn held(&self, at: usize, spot: &Spot) -> (Bucket, u64) {
        let entry = self.0.get(at).copied().unwrap_or_default();
        let Ok(below) = Bucket::decode(&entry.missing) else {
            return (Bucket::full(&spot.limit, spot.now), 0);
        };
        let (mut level, mut sent) = (below.level(), i128::from(entry.sent));
        if entry.replicas != spot.replicas {
            let rescale = |part: i128| {
                part.saturating_mul(entry.replicas.into())
                    .checked_div(spot.replicas.into())
                    .unwrap_or(part)
            };
            (level, sent) = (rescale(level), rescale(sent));
        }
        let capacity = spot.limit.capacity.attotokens();
        let bucket = Bucket::new(level.saturating_add(capacity), below.stamp());
        if sent == 0 {
            return (bucket, 0);
        }
        // A debt that what flows in pays off.
        let debt = sent.saturating_mul(i128::from(1_000_000_000_000_u64));
        let debt = Bucket::new(debt.saturating_neg(), below.stamp());
        let left = debt.level_at(&spot.limit, spot.now).min(0).unsigned_abs();
        let left = u64::try_from(left.div_ceil(ATTO_PER_MICRO)).unwrap_or(u64::MAX);
        (bucket, left)
    }

    /// The place for a newcomer: an empty one, or that of the bucket which is soonest
    /// full; and when that is, in microseconds. (A bucket that is full already is the
    /// soonest of all.)
    fn victim(&self, now: u64) -> (usize, u64) {
        let full_at = |entry: &Entry| match entry.tag {
            0 => 0,
            _ => entry.full_at(),
        };
        let soonest = self
            .0
            .iter()
            .map(full_at)
            .enumerate()
            .min_by_key(|(_, full_at)| *full_at);
        soonest.unwrap_or((0, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenbucket_core::{Outcome, Rate};

    const SECOND: u64 = 1_000_000;

    fn limit(capacity: &str, rate: &str) -> Limit {
        Limit {
            capacity: Amount::parse(capacity.as_bytes()).unwrap(),
            rate: Rate::parse(rate.as_bytes()).unwrap(),
        }
    }

    fn spot(key: u64, now: u64) -> Spot {
        Spot {
            // Spread as a hash would: the low half chooses the set, the high half is the tag.
            hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            limit: limit("25", "1"),
            replicas: 1,
            now,
        }
    }

    fn tokens(count: u64) -> Amount {
        Amount::from_tokens(count).unwrap()
    }

    fn acquire(table: &Table, spot: &Spot, cost: u64) -> bool {
        table
            .decide(spot, Amount::ZERO, |bucket| {
                bucket.acquire(&spot.limit, tokens(cost), spot.now)
            })
            .is_allowed()
    }

    fn level(table: &Table, spot: &Spot) -> u64 {
        table
            .decide(spot, Amount::ZERO, |bucket| {
                bucket.check(&spot.limit, Amount::ZERO, spot.now)
            })
            .remaining
    }

    #[test]
    fn an_entry_has_40_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn a_bucket_is_kept_until_it_is_full() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert!(!table.is_in_use(|| SECOND));
        assert!(acquire(&table, &at, 25));
        assert!(!acquire(&table, &at, 1));
        assert!(table.is_in_use(|| SECOND));
        let later = Spot {
            now: 11 * SECOND,
            ..at
        };
        assert_eq!(level(&table, &later), 10);
        assert!(table.is_in_use(|| 25 * SECOND));
        assert!(!table.is_in_use(|| 26 * SECOND));
        assert_eq!(level(&table, &spot(1, 26 * SECOND)), 25);
    }

    #[test]
    fn a_denial_takes_no_place() {
        let table = Table::new(8, false);
        for key in 0..8 {
            assert!(acquire(&table, &spot(key, SECOND), 1));
        }
        let outcome = table
            .decide(&spot(9, SECOND), Amount::ZERO, |bucket| {
                bucket.acquire(&spot(9, SECOND).limit, tokens(26), SECOND)
            })
            .outcome;
        assert_eq!(outcome, Outcome::Never);
        for key in 0..8 {
            assert_eq!(level(&table, &spot(key, SECOND)), 24);
        }
    }

    /// Also where a bucket takes thirty years to fill.
    #[test]
    fn a_flood_pushes_out_the_buckets_that_are_nearly_full_of_slow_limits_too() {
        let table = Table::new(64, false);
        let slow = |key, now| Spot {
            limit: limit("25", "1e-9"),
            ..spot(key, now)
        };
        let mut admitted = 0;
        for key in 1..20_000 {
            let now = SECOND + key;
            admitted += u32::from(acquire(&table, &slow(0, now), 1));
            acquire(&table, &slow(key, now), 1);
        }
        assert_eq!(admitted, 25);
    }

    /// An abuser keeps hammering while a flood of other keys goes through the table: he
    /// gets his capacity and no more, as his bucket is the last to be full.
    #[test]
    fn a_flood_pushes_out_the_buckets_that_are_nearly_full() {
        let table = Table::new(64, false);
        let mut admitted = 0;
        for key in 1..20_000 {
            let now = SECOND + key;
            admitted += u32::from(acquire(&table, &spot(0, now), 1));
            acquire(&table, &spot(key, now), 1);
        }
        assert_eq!(admitted, 25);
    }

    #[test]
    fn in_a_strict_table_a_newcomer_is_no_fuller_than_its_victim() {
        let table = Table::new(8, true);
        for key in 0..8 {
            assert!(acquire(&table, &spot(key, SECOND), 20));
        }
        let newcomer = spot(100, SECOND);
        // Less than a tick less than 5.
        assert_eq!(level(&table, &newcomer), 4);
        // However many keys come, the table admits no more than 8 buckets hold.
        let mut admitted = 0;
        for key in 100..10_000 {
            admitted += u32::from(acquire(&table, &spot(key, SECOND), 1));
        }
        assert!(admitted <= 8 * 5, "{admitted}");
        assert!(admitted >= 8 * 4, "{admitted}");
        // Without it they are full.
        let table = Table::new(8, false);
        for key in 0..8 {
            assert!(acquire(&table, &spot(key, SECOND), 20));
        }
        assert_eq!(level(&table, &newcomer), 25);
    }

    #[test]
    fn another_number_of_replicas_rescales() {
        let table = Table::new(8, false);
        let all = limit("100", "1");
        let half = limit("50", "0.5");
        let at = Spot {
            limit: half,
            replicas: 2,
            ..spot(1, SECOND)
        };
        assert!(acquire(&table, &at, 30));
        let fewer = Spot {
            limit: all,
            replicas: 1,
            ..at
        };
        assert_eq!(level(&table, &fewer), 40);
        let more = Spot {
            limit: limit("25", "0.25"),
            replicas: 4,
            ..at
        };
        assert_eq!(level(&table, &more), 10);
        assert!(acquire(&table, &more, 10));
        // Back and forth refills nothing.
        assert_eq!(level(&table, &fewer), 0);
        assert_eq!(level(&table, &at), 0);
    }

    #[test]
    fn a_deficit_is_taken_once() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert_eq!(table.take_deficit(&at), None);
        assert!(acquire(&table, &at, 10));
        let later = spot(1, 3 * SECOND);
        let deficit = table.take_deficit(&later).unwrap();
        assert_eq!(deficit.owed(), tokens(8));
        assert_eq!(table.take_deficit(&later), None);
        // Until the server has answered, the bucket is as it was.
        assert_eq!(level(&table, &later), 17);
        table.settled(&later, &deficit);
        assert_eq!(level(&table, &later), 25);
    }

    /// What is taken while the debt is on its way is owed after it.
    #[test]
    fn what_is_taken_meanwhile_is_owed_after_it() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert!(acquire(&table, &at, 10));
        let deficit = table.take_deficit(&at).unwrap();
        let later = spot(1, 2 * SECOND);
        assert!(acquire(&table, &later, 3));
        table.settled(&later, &deficit);
        assert_eq!(level(&table, &later), 22);
        assert_eq!(table.take_deficit(&later).unwrap().owed(), tokens(3));
    }

    #[test]
    fn what_could_not_be_sent_is_owed_still() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert!(acquire(&table, &at, 10));
        let deficit = table.take_deficit(&at).unwrap();
        assert!(acquire(&table, &at, 3));
        table.not_sent(&at, &deficit);
        assert_eq!(level(&table, &at), 12);
        assert_eq!(table.take_deficit(&at).unwrap().owed(), tokens(13));
    }

    /// The debit of a deficit is never sent twice; and the local bucket is not refilled by
    /// its being sent.
    #[test]
    fn what_was_sent_without_a_reply_is_not_sent_again() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert!(acquire(&table, &at, 10));
        assert!(table.take_deficit(&at).is_some());
        assert_eq!(level(&table, &at), 15);
        // 4 flow in, which pay off the part that was sent; 5 more are taken.
        let later = spot(1, 5 * SECOND);
        assert!(acquire(&table, &later, 5));
        assert_eq!(level(&table, &later), 14);
        assert_eq!(table.take_deficit(&later).unwrap().owed(), tokens(5));
        assert_eq!(table.take_deficit(&later), None);
    }

    /// A request whose reply was lost may have been debited by the server.
    #[test]
    fn a_request_that_was_sent_is_not_owed() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        let lost = table.decide(&at, tokens(4), |bucket| {
            bucket.acquire(&at.limit, tokens(4), at.now)
        });
        assert!(lost.is_allowed());
        assert_eq!((level(&table, &at), table.take_deficit(&at)), (21, None));
        assert!(acquire(&table, &at, 2));
        assert_eq!(table.take_deficit(&at).unwrap().owed(), tokens(2));
    }

    /// The room of a bucket is that of the request; what is missing is what was taken.
    #[test]
    fn a_dear_request_owes_what_it_took_whoever_settles() {
        let table = Table::new(64, false);
        let dear = Spot {
            limit: limit("50", "1"),
            ..spot(1, SECOND)
        };
        assert!(acquire(&table, &dear, 50));
        let cheap = spot(1, SECOND);
        assert!(!acquire(&table, &cheap, 1));
        assert_eq!(table.take_deficit(&cheap).unwrap().owed(), tokens(50));
    }

    /// F09: as large after any number of keys as at the start.
    #[test]
    fn the_table_does_not_grow() {
        let table = Table::new(1_000, false);
        let places = table.sets.len() * WAYS;
        assert_eq!(places, 1_024);
        for key in 0..100_000 {
            acquire(&table, &spot(key, SECOND), 1);
        }
        assert_eq!(table.sets.len() * WAYS, places);
    }
}
