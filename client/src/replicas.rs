//! How many replicas of the service share a limit.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// How many replicas of the service share the limits: each limits locally with
/// `1 / replicas` of the capacity and the rate. 0 counts as 1, and more than 65,535 as
/// 65,535.
///
/// A change takes hold on the next call and rescales what is left in the local buckets; it
/// never refills them.
#[derive(Clone)]
pub enum Replicas {
    /// A number that does not change.
    Fixed(u32),
    /// A number that somebody else keeps up to date.
    Shared(Arc<AtomicU32>),
    /// Asked at each local decision, so it must be quick.
    Function(Arc<dyn Fn() -> u32 + Send + Sync>),
}

impl Replicas {
    pub(crate) fn now(&self) -> u16 {
        let replicas = match self {
            Self::Fixed(replicas) => *replicas,
            // Ordering: the number alone is what is read.
            Self::Shared(replicas) => replicas.load(Ordering::Relaxed),
            Self::Function(replicas) => replicas(),
        };
        u16::try_from(replicas).unwrap_or(u16::MAX).max(1)
    }
}

impl From<u32> for Replicas {
    fn from(replicas: u32) -> Self {
        Self::Fixed(replicas)
    }
}

impl From<Arc<AtomicU32>> for Replicas {
    fn from(replicas: Arc<AtomicU32>) -> Self {
        Self::Shared(replicas)
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replicas").field(&self.now()).finish()
    }
}
