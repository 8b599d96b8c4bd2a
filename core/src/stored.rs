//! The bytes in which a bucket is stored.
//!
//! ```text
//! byte  0        1 .. 6            7 .. 19
//!      +--------+-----------------+----------------------------------------+
//!      |10vv ssss  s ... s        | level: attotokens, signed, 104 bits    |
//!      +--------+-----------------+----------------------------------------+
//!       10    tag
//!         vv  format version, now 1
//!            s ... s  stamp: microseconds since the Unix epoch, 52 bits
//! ```
//!
//! Both numbers are big-endian. Twenty bytes and the shortest header of a Redis
//! string fall into the allocator's class of 24 bytes.
//!
//! The tag is what a continuation byte of UTF-8 begins with: no text in UTF-8 or
//! ASCII starts with one, so no text of twenty bytes is ever taken for a bucket.

use core::fmt;

use crate::bucket::Bucket;

/// Length of a stored bucket, in bytes.
pub const STORED_LEN: usize = 20;

/// The last instant that a stamp holds: 2^52 - 1 microseconds, in the year 2112.
/// Later clocks are read as this instant.
pub const MAX_STAMP: u64 = (1 << STAMP_BITS) - 1;

/// The lowest level that is stored, in attotokens: about -1e13 tokens. A debt
/// beyond it is cut to it.
pub const MIN_LEVEL: i128 = -(1 << 103);

/// The highest level that the bytes hold, in attotokens; above every capacity.
pub const MAX_LEVEL: i128 = (1 << 103) - 1;

const STAMP_BITS: u32 = 52;
/// Tag and version of the newest format, in their place above the stamp.
const HEADER: u64 = 0b1001 << STAMP_BITS;
const HEADER_MASK: u64 = 0b1111 << STAMP_BITS;

/// The bytes are not a bucket: another length, no tag, or a version that this
/// code does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotABucket;

impl fmt::Display for NotABucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a bucket")
    }
}

impl core::error::Error for NotABucket {}

impl Bucket {
    /// The bucket as stored, in the newest format.
    #[must_use]
    pub fn encode(&self) -> [u8; STORED_LEN] {
        let [_, head @ ..] = (HEADER | self.stamp()).to_be_bytes();
        let [_, _, _, tail @ ..] = self.level().to_be_bytes();
        let mut bytes = [0; STORED_LEN];
        let (front, back) = bytes.split_at_mut(head.len());
        front.copy_from_slice(&head);
        back.copy_from_slice(&tail);
        bytes
    }

    /// Reads a stored bucket. Every value of stamp and level is sane, since the
    /// arithmetic holds for all that the bits can say: a level above the
    /// capacity is cut to it, a stamp in the future is taken for now.
    ///
    /// # Errors
    ///
    /// [`NotABucket`] for any other length, tag or version.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotABucket> {
        let (head, level) = bytes.split_first_chunk::<7>().ok_or(NotABucket)?;
        let level: &[u8; 13] = level.try_into().map_err(|_| NotABucket)?;

        let mut wide = [0; 8];
        let (_, low) = wide.split_at_mut(1);
        low.copy_from_slice(head);
        let head = u64::from_be_bytes(wide);
        if head & HEADER_MASK != HEADER {
            return Err(NotABucket);
        }

        let mut wide = [0; 16];
        let (high, _) = wide.split_at_mut(level.len());
        high.copy_from_slice(level);
        // Shifting down from the top extends the sign.
        let level = i128::from_be_bytes(wide) >> 24;
        Ok(Self::new(level, head & MAX_STAMP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_as_drawn() {
        let bucket = Bucket::new(-2, 3);
        let bytes = bucket.encode();
        assert_eq!(bytes[..7], [0x90, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[7..19], [0xff; 12]);
        assert_eq!(bytes[19], 0xfe);
    }

    #[test]
    fn extremes_round_trip() {
        for level in [MIN_LEVEL, -1, 0, 1, MAX_LEVEL] {
            for stamp in [0, 1, 1 << 51, MAX_STAMP] {
                let bucket = Bucket::new(level, stamp);
                assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let bytes = [0x90; 64];
        for len in 0..=64 {
            let read = Bucket::decode(&bytes[..len]);
            assert_eq!(read.is_ok(), len == STORED_LEN, "{len} bytes");
        }
    }

    #[test]
    fn only_the_known_header_is_read() {
        for first in 0..=255_u8 {
            let mut bytes = Bucket::new(1, 1).encode();
            bytes[0] = first;
            let read = Bucket::decode(&bytes);
            assert_eq!(read.is_ok(), first >> 4 == 0b1001, "first byte {first:#x}");
        }
    }
}
