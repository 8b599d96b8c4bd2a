//! Numbers as people and languages write them: digits, an optional fraction, an
//! optional exponent.
//!
//! The text is read into at most [`MANTISSA_DIGITS`] significant digits and a
//! power of ten. That is more than any quantity here can hold (1e12 tokens in
//! picotokens are 25 digits, the largest rate in its fixed point 32), and that
//! something was cut behind them is remembered in `more`, so that rounding
//! upwards and range checks stay right.

use core::fmt;

/// The longest text of a number, in bytes.
pub const MAX_NUMBER_LEN: usize = 64;

/// Significant digits kept: all that a `u128` holds.
const MANTISSA_DIGITS: u32 = 38;

/// Exponents beyond this size are all alike: no 64 digits bring them back into
/// the range of any quantity.
const EXPONENT_LIMIT: i32 = 1_000_000;

/// Why a text is not a capacity, a cost or a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NumberError {
    /// Not of the form `digits[.digits][e[sign]digits]`.
    NotANumber,
    /// What follows the slash of a rate is not a whole number and one of
    /// `ms s m h d`.
    NotAPeriod,
    /// Not digits alone, where a whole number is wanted.
    NotWhole,
    /// Longer than [`MAX_NUMBER_LEN`] bytes.
    TooLong,
    /// Zero, where only what is above zero makes sense.
    Zero,
    /// Above zero, but below 1e-12.
    TooSmall,
    /// Above 1e12.
    TooLarge,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "not a number",
            Self::NotAPeriod => "not a period",
            Self::NotWhole => "not a whole number",
            Self::TooLong => "longer than 64 bytes",
            Self::Zero => "must be above 0",
            Self::TooSmall => "below 1e-12",
            Self::TooLarge => "above 1e12",
        })
    }
}

impl core::error::Error for NumberError {}

/// `mantissa * 10^exponent`, and a little more when `more` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// At most [`MANTISSA_DIGITS`] digits.
    pub mantissa: u128,
    /// Power of ten of the mantissa's last digit.
    pub exponent: i32,
    /// Whether digits other than zero were cut behind the mantissa.
    pub more: bool,
}

impl Decimal {
    /// Reads the whole of `text`.
    ///
    /// # Errors
    ///
    /// [`NumberError::TooLong`] above 64 bytes, [`NumberError::NotANumber`] for
    /// anything but digits with an optional fraction and an optional exponent.
    pub fn parse(text: &[u8]) -> Result<Self, NumberError> {
        if text.len() > MAX_NUMBER_LEN {
            return Err(NumberError::TooLong);
        }
        let mut number = Self {
            mantissa: 0,
            exponent: 0,
            more: false,
        };
        let mut kept = 0;
        let mut any_digit = false;
        let mut in_fraction = false;
        let mut rest = text.iter();
        while let Some(&byte) = rest.next() {
            match byte {
                b'0'..=b'9' => {
                    any_digit = true;
                    number.push(byte.wrapping_sub(b'0'), &mut kept, in_fraction);
                }
                b'.' if !in_fraction => in_fraction = true,
                b'e' | b'E' if any_digit => {
                    let shift = parse_exponent(rest.as_slice())?;
                    number.exponent = number.exponent.saturating_add(shift);
                    return Ok(number);
                }
                _ => return Err(NumberError::NotANumber),
            }
        }
        if any_digit {
            Ok(number)
        } else {
            Err(NumberError::NotANumber)
        }
    }

    fn push(&mut self, digit: u8, kept: &mut u32, in_fraction: bool) {
        if *kept < MANTISSA_DIGITS {
            self.mantissa = self
                .mantissa
                .saturating_mul(10)
                .saturating_add(u128::from(digit));
            // Leading zeros are not significant.
            if self.mantissa != 0 {
                *kept = kept.saturating_add(1);
            }
            if in_fraction {
                self.exponent = self.exponent.saturating_sub(1);
            }
        } else {
            self.more |= digit != 0;
            if !in_fraction {
                self.exponent = self.exponent.saturating_add(1);
            }
        }
    }
}

fn parse_exponent(text: &[u8]) -> Result<i32, NumberError> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let value = parse_whole(digits).ok_or(NumberError::NotANumber)?;
    let value = i32::try_from(value).map_or(EXPONENT_LIMIT, |v| v.min(EXPONENT_LIMIT));
    Ok(if negative {
        value.saturating_neg()
    } else {
        value
    })
}

/// Reads a whole number, such as a number of milliseconds: digits, nothing else.
/// What does not fit is the largest `u128`.
///
/// # Errors
///
/// [`NumberError::TooLong`] above 64 bytes, [`NumberError::NotWhole`] for anything
/// but digits.
pub fn parse_whole_number(text: &[u8]) -> Result<u128, NumberError> {
    if text.len() > MAX_NUMBER_LEN {
        return Err(NumberError::TooLong);
    }
    parse_whole(text).ok_or(NumberError::NotWhole)
}

/// Reads one or more digits; `None` for anything else. A value that does not
/// fit is the largest `u128`.
pub(crate) fn parse_whole(digits: &[u8]) -> Option<u128> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u128, |value, byte| {
        byte.is_ascii_digit().then(|| {
            value
                .saturating_mul(10)
                .saturating_add(u128::from(byte.wrapping_sub(b'0')))
        })
    })
}

/// `10^n`, or `None` where it does not fit.
pub(crate) fn power_of_ten(n: u32) -> Option<u128> {
    10_u128.checked_pow(n)
}
