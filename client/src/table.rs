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

use tokenbucket_core::{Amount, Bucket, Decision, Effect, Limit, STORED_LEN};

const WAYS: usize = 8;
/// The tick in which the instant is noted at which a bucket is full: 2^10 microseconds.
/// 48 bits of them are 9,000 years.
const TICK_BITS: u32 = 10;
const PICO_PER_MICRO: u128 = 1_000_000;
const ATTO_PER_PICO: u128 = 1_000_000;

/// One bucket: 40 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The part of the hash that is not spent on choosing the set; 0 for an empty place.
    tag: u32,
    /// The number of replicas whose share the level is of.
    replicas: u16,
    /// When it is full, in ticks, rounded up: the upper and the lower part.
    full_at_upper: u16,
    full_at_lower: u32,
    bucket: [u8; STORED_LEN],
    /// Of what is missing in the bucket, the part whose debit was sent to the server
    /// without a reply, in microtokens at the bucket's stamp. Paid off first by what
    /// flows in.
    sent: u64,
}

/// What a key owes the server for what was taken locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deficit {
    /// What is missing in the local bucket.
    missing: Amount,
    /// Of that, what was sent once before, with no reply.
    sent: u64,
}

impl Deficit {
    /// What the server has to be told.
    pub(crate) fn owed(&self) -> Amount {
        let sent = u128::from(self.sent).saturating_mul(PICO_PER_MICRO);
        let owed = self.missing.picotokens().saturating_sub(sent);
        Amount::from_picotokens(owed).unwrap_or(Amount::MAX)
    }

    /// This deficit after it was sent: whether it arrived is not known.
    pub(crate) fn after_sending(self) -> Self {
        let all = self.missing.picotokens().div_ceil(PICO_PER_MICRO);
        Self {
            sent: u64::try_from(all).unwrap_or(u64::MAX),
            ..self
        }
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

    /// Whether at `now` any bucket may have something to say. One load.
    pub(crate) fn is_in_use(&self, now: u64) -> bool {
        // Ordering: a bucket that another thread puts in at this moment may be missed, as
        // it would be had this call come a moment earlier.
        self.last_full_at.load(Ordering::Relaxed) > now
    }

    /// Decides on the key's bucket with `rule`, and keeps what that says to keep.
    pub(crate) fn decide(&self, spot: &Spot, rule: impl FnOnce(&Bucket) -> Decision) -> Decision {
        self.at(spot, |set, tag| {
            let found = set.find(tag);
            let before = found.map_or_else(|| self.newcomer(set, spot), |at| set.bucket(at, spot));
            let decision = rule(&before);
            if decision.effect != Effect::Nothing {
                let sent = found.map_or(0, |at| set.sent(at, spot));
                self.keep(set, spot, tag, &decision, sent);
            }
            decision
        })
    }

    /// Forgets the key's bucket, and gives what was missing in it.
    pub(crate) fn take_deficit(&self, spot: &Spot) -> Option<Deficit> {
        self.at(spot, |set, tag| {
            let at = set.find(tag)?;
            let capacity = spot.limit.capacity.attotokens();
            let level = set.bucket(at, spot).level_at(&spot.limit, spot.now);
            let sent = set.sent(at, spot);
            set.clear(at);
            let missing = capacity.saturating_sub(level).max(0).unsigned_abs();
            let pico = missing / ATTO_PER_PICO;
            let missing = Amount::from_picotokens(pico).unwrap_or(Amount::MAX);
            (!missing.is_zero()).then_some(Deficit { missing, sent })
        })
    }

    /// Puts back what [`take_deficit`](Self::take_deficit) took, with what others have
    /// taken locally meanwhile.
    pub(crate) fn put_back(&self, spot: &Spot, deficit: &Deficit) {
        self.at(spot, |set, tag| {
            let found = set.find(tag);
            let before = found.map_or_else(
                || Bucket::full(&spot.limit, spot.now),
                |at| set.bucket(at, spot),
            );
            let sent = found.map_or(0, |at| set.sent(at, spot));
            let decision = before.debit(&spot.limit, deficit.missing, spot.now);
            self.keep(set, spot, tag, &decision, sent.saturating_add(deficit.sent));
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

    fn keep(&self, set: &mut Set<'_>, spot: &Spot, tag: u32, decision: &Decision, sent: u64) {
        let Effect::Put { bucket, .. } = decision.effect else {
            if let Some(at) = set.find(tag) {
                set.clear(at);
            }
            return;
        };
        let at = set.find(tag).unwrap_or_else(|| set.victim(spot.now).0);
        let until_full = u64::try_from(decision.reset_after.micros()).unwrap_or(u64::MAX);
        let full_at = spot.now.saturating_add(until_full);
        // Ordering: see `is_in_use`.
        self.last_full_at.fetch_max(full_at, Ordering::Relaxed);
        let ticks = full_at.div_ceil(1 << TICK_BITS);
        let [a, b, c, d, ..] = ticks.to_le_bytes();
        set.put(
            at,
            Entry {
                tag,
                replicas: spot.replicas,
                full_at_upper: u16::try_from(ticks >> 32).unwrap_or(u16::MAX),
                full_at_lower: u32::from_le_bytes([a, b, c, d]),
                bucket: bucket.encode(),
                sent,
            },
        );
    }
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

    fn get(&self, at: usize) -> Entry {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn put(&mut self, at: usize, entry: Entry) {
        if let Some(place) = self.0.get_mut(at) {
            *place = entry;
        }
    }

    fn clear(&mut self, at: usize) {
        self.put(at, Entry::default());
    }

    /// The bucket in that place. Where the number of replicas has changed since, what is
    /// left in it is rescaled to the new share: as full as before, in parts of the share.
    fn bucket(&self, at: usize, spot: &Spot) -> Bucket {
        let entry = self.get(at);
        let Ok(bucket) = Bucket::decode(&entry.bucket) else {
            return Bucket::full(&spot.limit, spot.now);
        };
        if entry.replicas == spot.replicas {
            return bucket;
        }
        let level = bucket
            .level()
            .saturating_mul(entry.replicas.into())
            .checked_div(spot.replicas.into())
            .unwrap_or(bucket.level());
        Bucket::new(level, bucket.stamp())
    }

    /// What is left of that place's sent part, in microtokens, after what has flowed in.
    fn sent(&self, at: usize, spot: &Spot) -> u64 {
        let entry = self.get(at);
        if entry.sent == 0 {
            return 0;
        }
        let stamp = Bucket::decode(&entry.bucket).map_or(spot.now, |bucket| bucket.stamp());
        let atto = i128::from(entry.sent).saturating_mul(1_000_000_000_000);
        let level = Bucket::new(atto.saturating_neg(), stamp).level_at(&spot.limit, spot.now);
        let left = level.min(0).unsigned_abs().div_ceil(1_000_000_000_000);
        u64::try_from(left).unwrap_or(u64::MAX)
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
            .decide(spot, |bucket| {
                bucket.acquire(&spot.limit, tokens(cost), spot.now)
            })
            .is_allowed()
    }

    fn level(table: &Table, spot: &Spot) -> u64 {
        table
            .decide(spot, |bucket| {
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
        assert!(!table.is_in_use(SECOND));
        assert!(acquire(&table, &at, 25));
        assert!(!acquire(&table, &at, 1));
        assert!(table.is_in_use(SECOND));
        let later = Spot {
            now: 11 * SECOND,
            ..at
        };
        assert_eq!(level(&table, &later), 10);
        assert!(table.is_in_use(25 * SECOND));
        assert!(!table.is_in_use(26 * SECOND));
        assert_eq!(level(&table, &spot(1, 26 * SECOND)), 25);
    }

    #[test]
    fn a_denial_takes_no_place() {
        let table = Table::new(8, false);
        for key in 0..8 {
            assert!(acquire(&table, &spot(key, SECOND), 1));
        }
        let outcome = table
            .decide(&spot(9, SECOND), |bucket| {
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
        assert_eq!(level(&table, &later), 25);
    }

    #[test]
    fn what_could_not_be_sent_is_owed_still() {
        let table = Table::new(64, false);
        let at = spot(1, SECOND);
        assert!(acquire(&table, &at, 10));
        let deficit = table.take_deficit(&at).unwrap();
        // Another call is admitted locally meanwhile.
        assert!(acquire(&table, &at, 3));
        table.put_back(&at, &deficit);
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
        let deficit = table.take_deficit(&at).unwrap();
        table.put_back(&at, &deficit.after_sending());
        assert_eq!(level(&table, &at), 15);
        // 4 flow in, which pay off the part that was sent; 5 more are taken.
        let later = spot(1, 5 * SECOND);
        assert!(acquire(&table, &later, 5));
        assert_eq!(level(&table, &later), 14);
        let deficit = table.take_deficit(&later).unwrap();
        assert_eq!(deficit.owed(), tokens(5));
        table.put_back(&later, &deficit.after_sending());
        let deficit = table.take_deficit(&later).unwrap();
        assert_eq!(deficit.owed(), Amount::ZERO);
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
