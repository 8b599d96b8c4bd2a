//! Texts of numbers.

use num_bigint::BigInt;
use tokenbucket_core::{parse_whole_number, Amount, NumberError, Rate};

use crate::model::{self, whole};

/// Any bytes are the same amount and the same whole number to the arithmetic and to
/// the model, or refused by both.
///
/// # Panics
///
/// When they are not.
pub fn numbers(data: &[u8]) {
    same_amount(data);
    let show = || data.escape_ascii().to_string();
    match (parse_whole_number(data), whole(data)) {
        // What does not fit is the largest.
        (Ok(ours), Ok(model)) => {
            assert_eq!(
                BigInt::from(ours),
                model.min(u128::MAX.into()),
                "{}",
                show()
            );
        }
        (Err(_), Err(_)) => {}
        (ours, model) => panic!("{}: {ours:?}, but the model says {model:?}", show()),
    }
}

/// Any bytes are the same rate to the arithmetic and to the model, or refused by both.
///
/// # Panics
///
/// When they are not.
pub fn rates(data: &[u8]) {
    same_rate(data);
}

/// A text is the same amount to both, or refused alike.
///
/// # Panics
///
/// When it is not.
pub fn same_amount(text: &[u8]) {
    let show = || text.escape_ascii().to_string();
    match (Amount::parse(text), model::Amount::parse(text)) {
        (Ok(ours), Ok(model)) => {
            assert_eq!(BigInt::from(ours.picotokens()), model.pico, "{}", show());
            assert_eq!(BigInt::from(ours.attotokens()), model.atto(), "{}", show());
        }
        (Err(ours), Err(model)) => assert_eq!(kind(ours), model, "{}", show()),
        (ours, model) => panic!("{}: {ours:?}, but the model says {model:?}", show()),
    }
}

/// A text is the same rate to both, or refused; and refused alike, unless both its
/// number and its period are wrong.
///
/// # Panics
///
/// When it is not.
pub fn same_rate(text: &[u8]) {
    let show = || text.escape_ascii().to_string();
    match (Rate::parse(text), model::Rate::parse(text)) {
        (Ok(ours), Ok(model)) => assert_eq!(BigInt::from(ours.fixed()), model.fixed, "{}", show()),
        (Err(ours), Err(model)) => {
            let slash = text.iter().position(|byte| *byte == b'/');
            let period = slash.map(|at| [b"1", &text[at..]].concat());
            if period.is_none_or(|period| model::Rate::parse(&period).is_ok()) {
                assert_eq!(kind(ours), model, "{}", show());
            }
        }
        (ours, model) => panic!("{}: {ours:?}, but the model says {model:?}", show()),
    }
}

fn kind(error: NumberError) -> model::TextError {
    match error {
        NumberError::Zero => model::TextError::ZeroRate,
        NumberError::TooSmall => model::TextError::TooSmall,
        NumberError::TooLarge => model::TextError::TooLarge,
        _ => model::TextError::Form,
    }
}
