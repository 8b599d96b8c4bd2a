//! Argument texts, read as exact fractions.

use std::fmt;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

/// The longest number, in bytes.
const LONGEST: usize = 64;
/// Powers of ten beyond this are out of every range, whatever 64 digits stand
/// before them.
const FAR: i64 = 1_000;

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// It is not of the form.
    Form,
    /// It is of the form, and above 1e12.
    TooLarge,
    /// It is of the form, above 0, and below 1e-12.
    TooSmall,
    /// It is a rate of 0.
    ZeroRate,
    /// The command is unknown or has too few or too many arguments, or names a
    /// key twice.
    Call,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextError::Form => "not of the form",
            TextError::TooLarge => "above 1e12",
            TextError::TooSmall => "below 1e-12 and not 0",
            TextError::ZeroRate => "a rate of 0",
            TextError::Call => "not a call",
        })
    }
}

impl std::error::Error for TextError {}

/// A capacity, a cost or an amount of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// What the text says, in tokens, before rounding.
    pub exact: BigRational,
    /// In picotokens (1e-12 token), rounded half up.
    pub pico: BigInt,
}

impl Amount {
    /// Reads a `number`.
    ///
    /// # Errors
    ///
    /// When it is not of the form, or the exact value is above 1e12, or is above
    /// 0 and below 1e-12.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        Self::new(number(text)?)
    }

    /// The amount of `exact` tokens.
    ///
    /// # Errors
    ///
    /// When the value is negative or out of the range.
    pub fn new(exact: BigRational) -> Result<Self, TextError> {
        in_range(&exact)?;
        let half = BigRational::new(BigInt::one(), BigInt::from(2));
        let pico = (&exact * ten_to(12) + half).floor().to_integer();
        Ok(Self { exact, pico })
    }

    /// In attotokens (1e-18 token).
    pub fn atto(&self) -> BigInt {
        &self.pico * 1_000_000
    }
}

/// The speed at which tokens flow in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What the text says, in tokens per second, before rounding.
    pub exact: BigRational,
    /// In attotokens per microsecond times 2^24, rounded up.
    pub fixed: BigInt,
}

impl Rate {
    /// Reads a `number` (tokens per second) or `number/period`.
    ///
    /// # Errors
    ///
    /// When it is not of the form, or the exact rate is 0, above 1e12 or below
    /// 1e-12 tokens per second.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        let slash = text.iter().position(|byte| *byte == b'/');
        let exact = match slash {
            None => number(text)?,
            Some(at) => {
                let (tokens, period) = (number(&text[..at])?, seconds(&text[at + 1..])?);
                tokens / period
            }
        };
        Self::new(exact)
    }

    /// The rate of `exact` tokens per second.
    ///
    /// # Errors
    ///
    /// When the value is negative, 0 or out of the range.
    pub fn new(exact: BigRational) -> Result<Self, TextError> {
        in_range(&exact)?;
        if exact.is_zero() {
            return Err(TextError::ZeroRate);
        }
        // One token per second is 10^18 attotokens per 10^6 microseconds.
        let fixed = (&exact * ten_to(12) * BigInt::from(1 << 24)).ceil();
        let fixed = fixed.to_integer();
        Ok(Self { exact, fixed })
    }
}

/// Reads a whole number, 0 or more, as max_wait_ms is.
///
/// # Errors
///
/// When it is anything but 1 to 64 digits.
pub fn whole(text: &[u8]) -> Result<BigInt, TextError> {
    if text.is_empty() || text.len() > LONGEST || !text.iter().all(u8::is_ascii_digit) {
        return Err(TextError::Form);
    }
    BigInt::parse_bytes(text, 10).ok_or(TextError::Form)
}

/// The seconds in a period: an optional whole number from 1 to 1e28, then a unit.
fn seconds(text: &[u8]) -> Result<BigRational, TextError> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (count, unit) = text.split_at(digits);
    let count = match count {
        [] => BigInt::one(),
        digits => whole(digits)?,
    };
    if count.is_zero() || count > BigInt::from(10).pow(28_u32) {
        return Err(TextError::Form);
    }
    let ms: i64 = match unit {
        b"ms" => 1,
        b"s" => 1_000,
        b"m" => 60_000,
        b"h" => 3_600_000,
        b"d" => 86_400_000,
        _ => return Err(TextError::Form),
    };
    Ok(BigRational::new(count * ms, BigInt::from(1_000)))
}

/// Reads digits with an optional fraction and an optional exponent. A value that
/// is out of every range is refused here, before its power of ten is computed.
fn number(text: &[u8]) -> Result<BigRational, TextError> {
    if text.len() > LONGEST {
        return Err(TextError::Form);
    }
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], signed(&text[at + 1..])?),
        None => (text, BigInt::zero()),
    };
    let (before, after) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &b""[..]),
    };
    // `.5` and `5.` are numbers; `.` is not. The digits on both sides of the
    // point are one whole number, and the point is a power of ten.
    let digits = whole(&[before, after].concat())?;
    if digits.is_zero() {
        return Ok(BigRational::zero());
    }
    let exponent = exponent - BigInt::from(after.len());
    match exponent.to_i64() {
        Some(power) if power.abs() <= FAR => Ok(BigRational::from(digits) * ten_to(power)),
        _ if exponent.is_negative() => Err(TextError::TooSmall),
        _ => Err(TextError::TooLarge),
    }
}

/// Reads the digits of an exponent and the sign before them.
fn signed(text: &[u8]) -> Result<BigInt, TextError> {
    match text {
        [b'-', digits @ ..] => Ok(-whole(digits)?),
        [b'+', digits @ ..] => whole(digits),
        digits => whole(digits),
    }
}

fn ten_to(power: i64) -> BigRational {
    let size = BigInt::from(10).pow(power.unsigned_abs());
    if power < 0 {
        BigRational::new(BigInt::one(), size)
    } else {
        BigRational::from(size)
    }
}

/// 0, or from 1e-12 to 1e12.
fn in_range(value: &BigRational) -> Result<(), TextError> {
    if value.is_negative() {
        Err(TextError::Form)
    } else if *value > ten_to(12) {
        Err(TextError::TooLarge)
    } else if !value.is_zero() && *value < ten_to(-12) {
        Err(TextError::TooSmall)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pico(text: &str) -> Result<i128, TextError> {
        Amount::parse(text.as_bytes()).map(|amount| amount.pico.to_i128().unwrap())
    }

    fn fixed(text: &str) -> Result<i128, TextError> {
        Rate::parse(text.as_bytes()).map(|rate| rate.fixed.to_i128().unwrap())
    }

    const TOKEN: i128 = 1_000_000_000_000;

    #[test]
    fn reads_what_languages_print() {
        for (text, expected) in [
            ("0", 0),
            ("00", 0),
            ("0e99999999999999999999", 0),
            ("10", 10 * TOKEN),
            ("010", 10 * TOKEN),
            ("10.0", 10 * TOKEN),
            ("5.", 5 * TOKEN),
            (".5", TOKEN / 2),
            ("5.e0", 5 * TOKEN),
            ("1e-05", 10_000_000),
            ("1E+3", 1_000 * TOKEN),
            ("0.30000000000000004", 300_000_000_000),
            ("1e12", TOKEN * TOKEN),
            ("1e-12", 1),
            ("0.000000000001499", 1),
            ("0.0000000000015", 2),
            ("999999999999.9999999999999", TOKEN * TOKEN),
        ] {
            assert_eq!(pico(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "", ".", "e5", ".e5", "1e", "1e+", "1e-", "+5", "-5", "-0", " 5", "5 ", "5abc", "0x10",
            "1_000", "inf", "nan", "NaN", "1.2.3", "1e5e5", "1e5.0", "\u{ff15}", "5\0", "1/s",
        ] {
            assert_eq!(pico(text), Err(TextError::Form), "{text:?}");
        }
        assert_eq!(Amount::parse(b"\xff"), Err(TextError::Form));
        assert_eq!(pico(&"1".repeat(65)), Err(TextError::Form));
        assert_eq!(pico(&"1".repeat(64)), Err(TextError::TooLarge));
        assert_eq!(pico(&"0".repeat(64)), Ok(0));
    }

    #[test]
    fn judges_the_range_before_rounding() {
        for (text, error) in [
            ("1000000000000.0000000000000001", TextError::TooLarge),
            ("1e400", TextError::TooLarge),
            ("1e99999999999999999999", TextError::TooLarge),
            ("0.9999999999999e-12", TextError::TooSmall),
            ("1e-300", TextError::TooSmall),
            ("1e-99999999999999999999", TextError::TooSmall),
        ] {
            assert_eq!(pico(text), Err(error), "{text}");
        }
    }

    #[test]
    fn reads_rates() {
        let unit = TOKEN << 24;
        for (text, expected) in [
            ("1", unit),
            ("1/s", unit),
            ("1/1000ms", unit),
            ("1/0060s", unit / 60 + 1),
            ("60/m", unit),
            ("3600/h", unit),
            ("86400/d", unit),
            ("1/ms", unit * 1_000),
            ("1/3s", unit / 3 + 1),
            ("1/d", unit / 86_400 + 1),
            ("1e-12", 1 << 24),
            ("1e13/10s", unit * TOKEN),
            // Ten pico-units and a bit more: the bit counts.
            ("1.00000000000000000001e-12", (1 << 24) + 1),
        ] {
            assert_eq!(fixed(text), Ok(expected), "{text}");
        }
        for (text, error) in [
            ("0", TextError::ZeroRate),
            ("0/s", TextError::ZeroRate),
            ("1e12/ms", TextError::TooLarge),
            ("1e-12/d", TextError::TooSmall),
            ("1/", TextError::Form),
            ("/s", TextError::Form),
            ("1/0s", TextError::Form),
            ("1/10", TextError::Form),
            ("1/S", TextError::Form),
            ("1/1.5s", TextError::Form),
            ("1/-1s", TextError::Form),
            ("1/s/s", TextError::Form),
            ("1/ s", TextError::Form),
            ("1/us", TextError::Form),
        ] {
            assert_eq!(fixed(text), Err(error), "{text}");
        }
    }
}
