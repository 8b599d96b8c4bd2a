//! Calls of all six commands, whose answers are known beforehand.

mod caller;
mod calls;
mod threads;

pub use caller::Caller;
pub use calls::{Limits, MIXED, SLOW};
pub use threads::Traffic;
