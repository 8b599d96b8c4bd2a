//! How many tokens a call wants.

use tokenbucket_core::Amount;

use crate::limit::parse_amount;
use crate::Error;

/// How many tokens a call wants, gives or takes: 0, or from 1e-12 to 1e12, in whole
/// picotokens (1e-12). What has more digits is rounded to the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(Amount);

const PICO_PER_TOKEN: u128 = 1_000_000_000_000;
#[cfg(feature = "tokio")]
const WHOLE: u64 = 1_000_000_000_000;

impl Cost {
    /// No tokens.
    pub const ZERO: Self = Self(Amount::ZERO);
    /// One token.
    pub const ONE: Self = Self(Amount::ONE);

    pub(crate) const fn of(amount: Amount) -> Self {
        Self(amount)
    }

    pub(crate) const fn amount(self) -> Amount {
        self.0
    }

    /// The whole tokens, where it is whole.
    #[cfg(feature = "tokio")]
    pub(crate) fn whole(self) -> Option<u64> {
        let pico = self.0.picotokens();
        // 64-bit division where it will do: up to 18 million tokens.
        if let Ok(pico) = u64::try_from(pico) {
            return pico.is_multiple_of(WHOLE).then_some(pico / WHOLE);
        }
        let whole = pico.is_multiple_of(PICO_PER_TOKEN);
        whole
            .then(|| u64::try_from(pico / PICO_PER_TOKEN).ok())
            .flatten()
    }

    /// As the server reads it; exact.
    pub(crate) fn text(self) -> String {
        let pico = self.0.picotokens();
        let (whole, rest) = (pico / PICO_PER_TOKEN, pico % PICO_PER_TOKEN);
        if rest == 0 {
            return whole.to_string();
        }
        let text = format!("{whole}.{rest:012}");
        text.trim_end_matches('0').to_string()
    }
}

/// What can be a [`Cost`]: whole numbers, and floats for fractions of a token.
pub trait IntoCost: sealed::Sealed {
    /// The cost.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for what is negative, not finite, above
    /// 1e12, or between 0 and 1e-12.
    fn into_cost(self) -> Result<Cost, Error>;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Cost {}
impl IntoCost for Cost {
    fn into_cost(self) -> Result<Cost, Error> {
        Ok(self)
    }
}

macro_rules! whole {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        impl IntoCost for $type {
            fn into_cost(self) -> Result<Cost, Error> {
                let tokens = u64::try_from(self)
                    .map_err(|_| Error::argument("cost must be from 0 to 1e12"))?;
                Amount::from_tokens(tokens)
                    .map(Cost)
                    .ok_or_else(|| Error::argument("cost must be at most 1e12"))
            }
        }
    )*};
}
whole!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl sealed::Sealed for f64 {}
impl IntoCost for f64 {
    fn into_cost(self) -> Result<Cost, Error> {
        parse_amount("cost", self).map(Cost)
    }
}

impl sealed::Sealed for f32 {}
impl IntoCost for f32 {
    fn into_cost(self) -> Result<Cost, Error> {
        f64::from(self).into_cost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_exact() {
        let text = |cost: f64| cost.into_cost().unwrap().text();
        assert_eq!(text(0.0), "0");
        assert_eq!(text(1.0), "1");
        assert_eq!(text(0.5), "0.5");
        assert_eq!(text(1e-12), "0.000000000001");
        assert_eq!(text(1e12), "1000000000000");
        assert_eq!(text(12.25), "12.25");
        assert_eq!(7_u8.into_cost().unwrap().text(), "7");
        for cost in [0.1, 1.0 / 3.0, 123_456.789] {
            let cost = cost.into_cost().unwrap();
            assert_eq!(Amount::parse(cost.text().as_bytes()), Ok(cost.amount()));
        }
    }

    /// C02, C04, C08: nothing that is no amount becomes one.
    #[test]
    fn what_is_no_amount_is_refused() {
        for cost in [f64::NAN, f64::INFINITY, -1.0, 1e-13, 1.1e12] {
            assert!(cost.into_cost().is_err(), "{cost}");
        }
        assert!((-1).into_cost().is_err());
        assert!(i64::MIN.into_cost().is_err());
        assert!(u128::MAX.into_cost().is_err());
        assert!(1_000_000_000_001_u64.into_cost().is_err());
        assert!(1_000_000_000_000_u64.into_cost().is_ok());
    }
}
