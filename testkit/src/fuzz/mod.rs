//! Properties of the arithmetic that hold for any bytes whatever, each a function that
//! panics when it is broken: for fuzzers, and for tests that run their seeds.

mod decisions;
mod numbers;
mod stored;

pub use decisions::decisions;
pub use numbers::{numbers, rates, same_amount, same_rate};
pub use stored::stored;

/// A property of any bytes.
pub type Property = fn(&[u8]);

/// All of them, with the name that is that of a fuzz target and of the folder of its
/// seeds.
pub const PROPERTIES: [(&str, Property); 4] = [
    ("numbers", numbers),
    ("rates", rates),
    ("stored", stored),
    ("decisions", decisions),
];
