//! An amount of tokens: a capacity, a cost.

use crate::decimal::{power_of_ten, Decimal, NumberError};

/// Attotokens in one picotoken.
const ATTO_PER_PICO: u128 = 1_000_000;
/// Picotokens in one token.
const PICO_PER_TOKEN: u64 = 1_000_000_000_000;
/// 1e12 tokens in picotokens.
const MAX_PICO: u128 = 1_000_000_000_000_000_000_000_000;

/// An amount of tokens: 0, or from 1e-12 to 1e12, in whole picotokens (1e-12).
///
/// ```
/// use tokenbucket_core::Amount;
///
/// assert_eq!(Amount::parse(b"2.5")?.picotokens(), 2_500_000_000_000);
/// assert!(Amount::parse(b"1e13").is_err());
/// # Ok::<(), tokenbucket_core::NumberError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    // Attotokens rather than picotokens: every use is beside a level.
    atto: i128,
}

impl Amount {
    /// No tokens.
    pub const ZERO: Self = Self { atto: 0 };
    /// One token.
    pub const ONE: Self = Self {
        atto: crate::ATTO_PER_TOKEN,
    };
    /// 1e12 tokens, the most that a capacity or a cost can be.
    pub const MAX: Self = Self {
        atto: 1_000_000_000_000_000_000_000_000_000_000,
    };

    /// Reads an amount as any language prints a finite number: `10`, `0.1`,
    /// `.5`, `1e-05`. More than 12 decimals are rounded to the nearest
    /// picotoken, a half upwards.
    ///
    /// # Errors
    ///
    /// [`NumberError::TooLong`] and [`NumberError::NotANumber`] for the text,
    /// [`NumberError::TooSmall`] for a value between 0 and 1e-12,
    /// [`NumberError::TooLarge`] for one above 1e12. The range is that of the
    /// number as written, before rounding.
    pub fn parse(text: &[u8]) -> Result<Self, NumberError> {
        let number = Decimal::parse(text)?;
        if number.mantissa == 0 {
            return Ok(Self::ZERO);
        }
        let pico_exponent = number.exponent.saturating_add(12);
        let scale = power_of_ten(pico_exponent.unsigned_abs());
        let pico = if pico_exponent >= 0 {
            scale
                .and_then(|scale| number.mantissa.checked_mul(scale))
                .filter(|&pico| pico < MAX_PICO || (pico == MAX_PICO && !number.more))
                .ok_or(NumberError::TooLarge)?
        } else {
            // Where the scale does not fit, every mantissa is below one picotoken.
            let scale = scale.ok_or(NumberError::TooSmall)?;
            round_to_nearest(&number, scale)?
        };
        Self::from_picotokens(pico).ok_or(NumberError::TooLarge)
    }

    /// The amount of so many whole tokens; `None` above 1e12.
    #[must_use]
    pub fn from_tokens(tokens: u64) -> Option<Self> {
        u128::from(tokens)
            .checked_mul(u128::from(PICO_PER_TOKEN))
            .and_then(Self::from_picotokens)
    }

    /// The amount of so many picotokens (1e-12 token); `None` above 1e24, which
    /// are 1e12 tokens.
    #[must_use]
    pub fn from_picotokens(pico: u128) -> Option<Self> {
        if pico > MAX_PICO {
            return None;
        }
        let atto = i128::try_from(pico.checked_mul(ATTO_PER_PICO)?).ok()?;
        Some(Self { atto })
    }

    /// Picotokens, from 0 to 1e24.
    #[must_use]
    pub const fn picotokens(self) -> u128 {
        // Never negative.
        self.atto.unsigned_abs() / ATTO_PER_PICO
    }

    /// Attotokens (1e-18 token), from 0 to 1e30; always a multiple of 1e6.
    #[must_use]
    pub const fn attotokens(self) -> i128 {
        self.atto
    }

    /// Whether this is no tokens at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.atto == 0
    }
}

/// `number / scale` to the nearest whole number, a half upwards.
fn round_to_nearest(number: &Decimal, scale: u128) -> Result<u128, NumberError> {
    let (Some(whole), Some(rest)) = (
        number.mantissa.checked_div(scale),
        number.mantissa.checked_rem(scale),
    ) else {
        return Err(NumberError::NotANumber);
    };
    if whole == 0 {
        return Err(NumberError::TooSmall);
    }
    if whole > MAX_PICO || (whole == MAX_PICO && (rest != 0 || number.more)) {
        return Err(NumberError::TooLarge);
    }
    // The scale is even, so digits cut behind `rest` can't reach the half.
    let up = rest >= scale.saturating_sub(rest);
    Ok(whole.saturating_add(u128::from(up)))
}
