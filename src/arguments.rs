//! The texts of a call's arguments into what they mean.

use tokenbucket_core::{Amount, Limit, Rate};

use crate::error::{Argument, Error};
use crate::ffi::Call;

/// Position of the key among the arguments, the command's name being 0.
pub const KEY: usize = 1;
/// Position of the capacity.
const CAPACITY: usize = 2;
/// Position of the rate.
const RATE: usize = 3;
/// Position of the cost.
pub const COST: usize = 4;

/// The limit that the call brings: `capacity rate`.
///
/// # Errors
///
/// Names the argument that is wrong, the first of them.
pub fn limit(call: &Call<'_>) -> Result<Limit, Error> {
    Ok(Limit {
        capacity: amount(call, CAPACITY, Argument::Capacity)?,
        rate: Rate::parse(call.argument(RATE)?)
            .map_err(|error| Error::Argument(Argument::Rate, error))?,
    })
}

/// The tokens that the call wants.
///
/// # Errors
///
/// Says what is wrong with the cost.
pub fn cost(call: &Call<'_>) -> Result<Amount, Error> {
    amount(call, COST, Argument::Cost)
}

fn amount(call: &Call<'_>, position: usize, argument: Argument) -> Result<Amount, Error> {
    Amount::parse(call.argument(position)?).map_err(|error| Error::Argument(argument, error))
}
