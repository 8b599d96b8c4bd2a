//! What is allowed: a capacity and a rate.

use std::time::Duration;

use tokenbucket_core::{Amount, Rate};

use crate::{Cost, Error};

/// A capacity, which is the most tokens that a bucket holds, and a rate at which tokens
/// flow in.
///
/// Capacity: 0, or from 1e-12 to 1e12 tokens. 0 blocks: every positive cost is denied for
/// ever. Rate: from 1e-12 to 1e12 tokens per second.
///
/// Over any stretch of t seconds a bucket lets through at most `capacity + rate * t`.
///
/// ```
/// use std::time::Duration;
/// use tokenbucket_client::Limit;
///
/// let a = Limit::per_second(50.0)?.burst(100.0)?;   // 100 at once, then 50 a second
/// let b = Limit::per_minute(700.0)?;                // 700 at once, then 700 a minute
/// let c = Limit::per(1.0, Duration::from_secs(10))?;
/// assert_eq!((a.capacity(), b.capacity(), c.capacity()), (100.0, 700.0, 1.0));
/// assert!(Limit::per_second(f64::NAN).is_err());
/// # Ok::<(), tokenbucket_client::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    exact: tokenbucket_core::Limit,
    capacity: f64,
    count: f64,
    period: Duration,
}

const SECOND: Duration = Duration::from_secs(1);

impl Limit {
    /// `count` tokens flow in during each `period`. The capacity is `count` as well, but
    /// at least 1, until [`burst`](Self::burst) says otherwise.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when `count` is not a finite number above
    /// 0, `period` is zero, or the rate is out of range.
    pub fn per(count: f64, period: Duration) -> Result<Self, Error> {
        let text = rate_text(count, period)?;
        let rate = Rate::parse(text.as_bytes()).map_err(|error| Error::number("rate", error))?;
        let exact = tokenbucket_core::Limit {
            capacity: Amount::ZERO,
            rate,
        };
        let limit = Self {
            exact,
            capacity: 0.0,
            count,
            period,
        };
        limit.burst(count.max(1.0))
    }

    /// `count` tokens per second; see [`per`](Self::per).
    ///
    /// # Errors
    ///
    /// As [`per`](Self::per).
    pub fn per_second(count: f64) -> Result<Self, Error> {
        Self::per(count, SECOND)
    }

    /// `count` tokens per minute; see [`per`](Self::per).
    ///
    /// # Errors
    ///
    /// As [`per`](Self::per).
    pub fn per_minute(count: f64) -> Result<Self, Error> {
        Self::per(count, Duration::from_secs(60))
    }

    /// `count` tokens per hour; see [`per`](Self::per).
    ///
    /// # Errors
    ///
    /// As [`per`](Self::per).
    pub fn per_hour(count: f64) -> Result<Self, Error> {
        Self::per(count, Duration::from_secs(3600))
    }

    /// `count` tokens per day of 24 hours; see [`per`](Self::per).
    ///
    /// # Errors
    ///
    /// As [`per`](Self::per).
    pub fn per_day(count: f64) -> Result<Self, Error> {
        Self::per(count, Duration::from_secs(86_400))
    }

    /// The same rate with a capacity of `capacity` tokens: the most that pass at once.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when it is not a finite number, negative,
    /// or out of range.
    pub fn burst(mut self, capacity: f64) -> Result<Self, Error> {
        self.exact.capacity = parse_amount("capacity", capacity)?;
        self.capacity = capacity;
        Ok(self)
    }

    /// The most tokens that the bucket holds.
    #[must_use]
    pub const fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Tokens that flow in per second.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.count / self.period.as_secs_f64()
    }

    /// The time in which an empty bucket fills: capacity / rate.
    #[must_use]
    pub fn time_to_fill(&self) -> Duration {
        Duration::try_from_secs_f64(self.capacity / self.rate_per_second()).unwrap_or(Duration::MAX)
    }

    pub(crate) const fn exact(&self) -> &tokenbucket_core::Limit {
        &self.exact
    }

    /// The capacity as the server reads it.
    pub(crate) fn capacity_text(&self) -> String {
        Cost::of(self.exact.capacity).text()
    }

    /// The rate as the server reads it.
    pub(crate) fn rate_text(&self) -> String {
        // It was possible once, when the limit was made.
        rate_text(self.count, self.period).unwrap_or_default()
    }
}

/// Reads a float through its shortest decimal form, as any language prints it, so that
/// 0.1 is a tenth.
pub(crate) fn parse_amount(name: &str, value: f64) -> Result<Amount, Error> {
    Amount::parse(number_text(value).as_bytes()).map_err(|error| Error::number(name, error))
}

fn number_text(value: f64) -> String {
    // Written out where that is short; the exponent keeps the others below the bound of
    // 64 bytes. `+ 0.0` makes a negative zero positive.
    if value == 0.0 || (1e-6..1e16).contains(&value) {
        format!("{}", value + 0.0)
    } else {
        format!("{value:e}")
    }
}

/// `count` per `period` as the server reads it: `50`, `100/60s`, `3/1500ms`.
fn rate_text(count: f64, period: Duration) -> Result<String, Error> {
    if period.is_zero() {
        return Err(Error::argument("period must be above 0"));
    }
    let count_text = number_text(count);
    if period == SECOND {
        return Ok(count_text);
    }
    if period.subsec_nanos() == 0 {
        return Ok(format!("{count_text}/{}s", period.as_secs()));
    }
    if period.subsec_nanos().is_multiple_of(1_000_000) {
        return Ok(format!("{count_text}/{}ms", period.as_millis()));
    }
    // The server counts whole milliseconds. Nanoseconds written as seconds, and the count
    // multiplied by as much.
    let scientific = format!("{count:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, ""));
    let exponent = exponent
        .parse()
        .map(|exponent: i32| exponent.saturating_add(9));
    match exponent {
        Ok(exponent) => Ok(format!("{digits}e{exponent}/{}s", period.as_nanos())),
        Err(_) => Err(Error::argument("rate must be a finite number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_the_server_reads_them() {
        let text = |count, period| rate_text(count, period).unwrap();
        assert_eq!(text(50.0, SECOND), "50");
        assert_eq!(text(0.1, SECOND), "0.1");
        assert_eq!(text(1e-9, SECOND), "1e-9");
        assert_eq!(text(100.0, Duration::from_secs(60)), "100/60s");
        assert_eq!(text(3.0, Duration::from_millis(1500)), "3/1500ms");
        assert_eq!(text(2.5, Duration::from_micros(1500)), "2.5e9/1500000s");
    }

    #[test]
    fn a_period_below_a_millisecond_is_exact() {
        let limit = Limit::per(3.0, Duration::from_micros(1500)).unwrap();
        assert_eq!(limit.exact().rate, Rate::parse(b"2000").unwrap());
    }

    /// A07: more than 60,000 per minute is a limit like any other.
    #[test]
    fn rates_are_right() {
        let rate = |text: &[u8]| Rate::parse(text).unwrap();
        let minute = Limit::per_minute(120_000.0).unwrap();
        assert_eq!(minute.exact().rate, rate(b"2000"));
        let day = Limit::per_day(1.0).unwrap();
        assert_eq!(day.exact().rate, rate(b"1/d"));
        assert_eq!(day.time_to_fill(), Duration::from_secs(86_400));
    }

    #[test]
    fn no_reachable_value_panics() {
        let values = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            -0.0,
            0.0,
            f64::MIN_POSITIVE,
            5e-324,
            1e-12,
            1e-13,
            1e12,
            1.000_000_1e12,
            1e300,
            f64::MAX,
        ];
        let periods = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(1),
            Duration::from_millis(1),
            SECOND,
            Duration::from_secs(u64::MAX),
            Duration::MAX,
        ];
        let mut made = 0;
        for count in values {
            for period in periods {
                let Ok(limit) = Limit::per(count, period) else {
                    continue;
                };
                made += 1;
                for capacity in values {
                    let Ok(limit) = limit.burst(capacity) else {
                        assert!(
                            !(0.0..=1e12).contains(&capacity)
                                || (capacity > 0.0 && capacity < 1e-12),
                            "{capacity}"
                        );
                        continue;
                    };
                    assert!(limit.time_to_fill() <= Duration::MAX);
                    assert_eq!(
                        Rate::parse(limit.rate_text().as_bytes()),
                        Ok(limit.exact().rate)
                    );
                    assert_eq!(
                        Amount::parse(limit.capacity_text().as_bytes()),
                        Ok(limit.exact().capacity)
                    );
                }
            }
        }
        assert!(made > 0);
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, -0.0, 1e13] {
            assert!(Limit::per_second(value).is_err(), "{value}");
        }
    }
}
