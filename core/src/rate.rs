//! A rate: tokens per second, as a fixed-point number of attotokens per
//! microsecond.

use crate::decimal::{parse_whole, power_of_ten, Decimal, NumberError, MAX_NUMBER_LEN};

/// Fractional bits of a rate.
const FRACTION_BITS: u32 = 24;
/// 1e-12 tokens per second, which is one attotoken per microsecond.
const MIN_FIXED: u128 = 1 << FRACTION_BITS;
/// 1e12 tokens per second.
const MAX_FIXED: u128 = 1_000_000_000_000_000_000_000_000 << FRACTION_BITS;
/// The longest period, in its own unit. Times 864, the seconds of the longest
/// unit, it has room for another decimal digit in a `u128`.
const MAX_PERIOD: u128 = 10_000_000_000_000_000_000_000_000_000;

/// Tokens that flow in per second, from 1e-12 to 1e12.
///
/// Held in attotokens per microsecond (which are picotokens per second) with 24
/// fractional bits, rounded up: decimals of up to 12 places are exact, and
/// fractions such as `1/3s` and `1/d` are right to 1 part in 1e14, so that they
/// answer 3000 ms and 86400000 ms, not one more or less.
///
/// ```
/// use tokenbucket_core::Rate;
///
/// assert_eq!(Rate::parse(b"100/m")?, Rate::parse(b"5/3s")?);
/// assert_eq!(Rate::parse(b"3600/h")?, Rate::parse(b"1")?);
/// # Ok::<(), tokenbucket_core::NumberError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    fixed: u128,
}

impl Rate {
    /// Reads a rate: a number of tokens per second (`0.5`, `1e3`), or a number
    /// and a period, which is an optional whole number and one of
    /// `ms s m h d` (`100/m`, `1/10s`, `5000/h`, `1/d`).
    ///
    /// What 24 fractional bits do not hold is rounded upwards.
    ///
    /// # Errors
    ///
    /// [`NumberError::TooLong`] and [`NumberError::NotANumber`] for the number,
    /// [`NumberError::NotAPeriod`] for what follows the slash,
    /// [`NumberError::Zero`] for no flow at all, [`NumberError::TooSmall`] below
    /// 1e-12 and [`NumberError::TooLarge`] above 1e12 tokens per second.
    pub fn parse(text: &[u8]) -> Result<Self, NumberError> {
        let mut parts = text.splitn(2, |&byte| byte == b'/');
        let number = Decimal::parse(parts.next().unwrap_or_default())?;
        let period = match parts.next() {
            Some(period) => Period::parse(period)?,
            None => Period::SECOND,
        };
        if number.mantissa == 0 {
            return Err(NumberError::Zero);
        }
        let (fixed, inexact) = divide(&number, &period)?;
        if fixed < MIN_FIXED {
            return Err(NumberError::TooSmall);
        }
        if fixed > MAX_FIXED || (fixed == MAX_FIXED && inexact) {
            return Err(NumberError::TooLarge);
        }
        Ok(Self {
            fixed: fixed.saturating_add(u128::from(inexact)),
        })
    }

    /// The rate of so many attotokens per microsecond times 2^24; `None` outside
    /// of 1e-12 to 1e12 tokens per second.
    #[must_use]
    pub fn from_fixed(fixed: u128) -> Option<Self> {
        (MIN_FIXED..=MAX_FIXED)
            .contains(&fixed)
            .then_some(Self { fixed })
    }

    /// Attotokens per microsecond times 2^24, from 2^24 to 1e24 * 2^24.
    #[must_use]
    pub const fn fixed(self) -> u128 {
        self.fixed
    }

    /// Attotokens that flow in during `micros` microseconds, rounded down;
    /// `None` where that is more than any bucket holds or owes.
    ///
    /// `floor(micros * rate / 2^24)`. The product overflows only from 2^104
    /// attotokens on, and from the lowest level to the largest capacity are
    /// fewer.
    pub(crate) fn flow(self, micros: u128) -> Option<i128> {
        let product = self.fixed.checked_mul(micros)?;
        i128::try_from(product >> FRACTION_BITS).ok()
    }

    /// The fewest whole microseconds in which `atto` attotokens flow in:
    /// `ceil(atto * 2^24 / rate)`, the inverse of [`flow`](Self::flow).
    ///
    /// `atto` is below 2^104 (see [`crate::MIN_LEVEL`]); more saturates.
    pub(crate) fn micros_for(self, atto: u128) -> u128 {
        let scaled = atto.saturating_mul(1 << FRACTION_BITS);
        // The rate is never zero: the bound of its constructors is above it.
        scaled.div_ceil(self.fixed.max(MIN_FIXED))
    }
}

/// `count * seconds * 10^exponent` seconds. The power of ten is apart because
/// it cancels against the number's own.
struct Period {
    /// `count * seconds`, at most [`MAX_PERIOD`]` * 864`.
    count: u128,
    exponent: i32,
}

impl Period {
    const SECOND: Self = Self {
        count: 1,
        exponent: 0,
    };

    fn parse(text: &[u8]) -> Result<Self, NumberError> {
        if text.len() > MAX_NUMBER_LEN {
            return Err(NumberError::TooLong);
        }
        let (digits, seconds, exponent) = match text {
            [digits @ .., b'm', b's'] => (digits, 1, -3),
            [digits @ .., b's'] => (digits, 1, 0),
            [digits @ .., b'm'] => (digits, 6, 1),
            [digits @ .., b'h'] => (digits, 36, 2),
            [digits @ .., b'd'] => (digits, 864, 2),
            _ => return Err(NumberError::NotAPeriod),
        };
        let count = if digits.is_empty() {
            1
        } else {
            parse_whole(digits)
                .filter(|count| (1..=MAX_PERIOD).contains(count))
                .ok_or(NumberError::NotAPeriod)?
        };
        Ok(Self {
            count: count.saturating_mul(seconds),
            exponent,
        })
    }
}

/// `number / period` in attotokens per microsecond times 2^24: the whole part,
/// and whether there is more behind it.
///
/// Long division, so that no intermediate value leaves the 128 bits: first the
/// mantissa, then one decimal digit for each power of ten, then the 24 binary
/// digits. Where a step fits in one go, which it does for every number in
/// ordinary use, it is taken in one go.
fn divide(number: &Decimal, period: &Period) -> Result<(u128, bool), NumberError> {
    // Picotokens per second are attotokens per microsecond: 12 decimal places.
    let shift = number
        .exponent
        .saturating_add(12)
        .saturating_sub(period.exponent);
    let mut divisor = period.count;
    if shift < 0 {
        // A divisor above every mantissa: less than one picotoken per second.
        divisor = power_of_ten(shift.unsigned_abs())
            .and_then(|scale| divisor.checked_mul(scale))
            .filter(|&divisor| divisor <= number.mantissa)
            .ok_or(NumberError::TooSmall)?;
    }
    let step = |dividend: u128| {
        Some((
            dividend.checked_div(divisor)?,
            dividend.checked_rem(divisor)?,
        ))
    };
    let division = || {
        let mut quotient;
        let mut rest;
        let scaled = power_of_ten(shift.max(0).unsigned_abs())
            .and_then(|scale| number.mantissa.checked_mul(scale));
        if let Some(dividend) = scaled {
            (quotient, rest) = step(dividend)?;
        } else {
            (quotient, rest) = step(number.mantissa)?;
            for _ in 0..shift {
                let (digit, next) = step(rest.checked_mul(10)?)?;
                quotient = quotient.checked_mul(10)?.checked_add(digit)?;
                rest = next;
            }
        }
        let mut fraction = 0_u128;
        if let Some(dividend) = rest.checked_mul(1 << FRACTION_BITS) {
            (fraction, rest) = step(dividend)?;
        } else {
            for _ in 0..FRACTION_BITS {
                let (bit, next) = step(rest.checked_mul(2)?)?;
                fraction = fraction.checked_mul(2)?.checked_add(bit)?;
                rest = next;
            }
        }
        let fixed = quotient
            .checked_mul(1 << FRACTION_BITS)?
            .checked_add(fraction)?;
        Some((fixed, rest != 0 || number.more))
    };
    // `None`: the quotient left the 128 bits, far above the bound.
    division().ok_or(NumberError::TooLarge)
}
