//! Stored bytes.

use num_bigint::BigInt;
use tokenbucket_core::{Bucket, MAX_LEVEL, MAX_STAMP, MIN_LEVEL, STORED_LEN};

use crate::model::SpecBucket;

/// Any bytes are the same bucket to the arithmetic and to the model, or none to both;
/// a bucket is written as it was read, and its numbers are within what they may be.
///
/// # Panics
///
/// When that is not so.
pub fn stored(data: &[u8]) {
    let (ours, model) = (Bucket::decode(data).ok(), SpecBucket::from_bytes(data));
    let (Some(bucket), Some(model)) = (ours, &model) else {
        assert!(ours.is_none() && model.is_none(), "{ours:?}, {model:?}");
        return;
    };
    assert_eq!(data.len(), STORED_LEN);
    assert_eq!(bucket.encode()[..], *data);
    assert_eq!(BigInt::from(bucket.level()), model.level_atto);
    assert_eq!(i64::try_from(bucket.stamp()), Ok(model.stamp_us));
    assert!((MIN_LEVEL..=MAX_LEVEL).contains(&bucket.level()));
    assert!(bucket.stamp() <= MAX_STAMP);
}
