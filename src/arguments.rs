//! The texts of a call's arguments into what they mean.

use tokenbucket_core::{parse_whole_number, Amount, Limit, Rate};

use crate::error::{Argument, Error};
use crate::ffi::Call;

/// Position of the key among the arguments, the command's name being 0.
pub const KEY: usize = 1;
/// Position of the capacity; the rate follows it.
pub const CAPACITY: usize = 2;
/// Position of the cost, or of the amount given or taken.
pub const AMOUNT: usize = 4;
/// Position of the longest wait.
const MAX_WAIT_MS: usize = 5;

/// The limit that the call brings: `capacity rate`, from `position` on.
///
/// # Errors
///
/// Names the argument that is wrong, the first of them.
pub fn limit(call: &Call<'_>, position: usize) -> Result<Limit, Error> {
    let capacity = amount(call, position, Argument::Capacity)?;
    let rate = Rate::parse(call.argument(position.saturating_add(1))?)
        .map_err(|error| Error::Argument(Argument::Rate, error))?;
    Ok(Limit { capacity, rate })
}

/// The tokens at `position`.
///
/// # Errors
///
/// Says what is wrong with it, under the name of `argument`.
pub fn amount(call: &Call<'_>, position: usize, argument: Argument) -> Result<Amount, Error> {
    Amount::parse(call.argument(position)?).map_err(|error| Error::Argument(argument, error))
}

/// The longest wait that a reservation may name, in milliseconds.
///
/// # Errors
///
/// Says what is wrong with it.
pub fn max_wait_ms(call: &Call<'_>) -> Result<u128, Error> {
    parse_whole_number(call.argument(MAX_WAIT_MS)?)
        .map_err(|error| Error::Argument(Argument::MaxWait, error))
}
