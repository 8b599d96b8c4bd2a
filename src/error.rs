//! Every error text. Each begins with a Redis error code, names the argument and
//! its bound, and holds nothing of what the caller sent.

use std::ffi::CStr;

use tokenbucket_core::NumberError;

/// Why a call is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The number of arguments; the server has its own text for it.
    WrongArity,
    /// The key holds something that is not a bucket.
    WrongType,
    /// An argument is not what it has to be.
    Argument(Argument, NumberError),
    /// A call names a key twice.
    RepeatedKey,
    /// A call names more buckets than it may.
    TooManyBuckets,
    /// A fault of ours, or a refusal of the server's API that should not occur.
    Internal,
}

/// The arguments that are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The most tokens a bucket holds.
    Capacity,
    /// Tokens per second.
    Rate,
    /// Tokens that the call wants.
    Cost,
    /// Tokens to give or to take.
    Amount,
    /// The longest wait that a reservation may name.
    MaxWait,
}

/// An argument's name and what is wrong with it, as the server takes a text.
macro_rules! text {
    ($argument:literal, $text:literal) => {
        match CStr::from_bytes_with_nul(concat!("ERR ", $argument, " ", $text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"ERR internal error",
        }
    };
}
/// The texts for an amount of tokens.
macro_rules! amount_text {
    ($argument:literal, $error:expr) => {
        match $error {
            NumberError::TooLong => text!($argument, "is too long: at most 64 bytes"),
            NumberError::TooSmall => text!($argument, "is too small: 0, or at least 1e-12"),
            NumberError::TooLarge => text!($argument, "is too large: at most 1e12"),
            _ => text!(
                $argument,
                "is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3"
            ),
        }
    };
}

impl Error {
    /// The text of the error, code first; `None` where the server has its own.
    pub const fn text(self) -> Option<&'static CStr> {
        Some(match self {
            Self::WrongArity => return None,
            Self::WrongType => c"WRONGTYPE the key holds a value that is not a token bucket",
            Self::Argument(Argument::Capacity, error) => amount_text!("capacity", error),
            Self::Argument(Argument::Cost, error) => amount_text!("cost", error),
            Self::Argument(Argument::Amount, error) => amount_text!("amount", error),
            Self::Argument(Argument::MaxWait, error) => match error {
                NumberError::TooLong => text!("max_wait_ms", "is too long: at most 64 bytes"),
                _ => text!("max_wait_ms", "is not a whole number of milliseconds, 0 or more"),
            },
            Self::RepeatedKey => text!("key", "is given twice: at most once in a call"),
            Self::TooManyBuckets => c"ERR too many buckets: at most 64 in a call",
            Self::Argument(Argument::Rate, error) => match error {
                NumberError::TooLong => {
                    text!("rate", "is too long: at most 64 bytes before and after the slash")
                }
                NumberError::Zero => text!("rate", "must be above 0: at least 1e-12 per second"),
                NumberError::TooSmall => text!("rate", "is too small: at least 1e-12 per second"),
                NumberError::TooLarge => text!("rate", "is too large: at most 1e12 per second"),
                NumberError::NotAPeriod => text!(
                    "rate",
                    "has a period that is not a whole number from 1 to 1e28 and one of ms s m h d, such as 100/m or 1/10s"
                ),
                _ => text!(
                    "rate",
                    "is not a number, or a number and a period, such as 10, 0.5 or 100/m"
                ),
            },
            Self::Internal => c"ERR internal error",
        })
    }
}
