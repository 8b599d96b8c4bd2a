//! Every text of a number means what the contract's grammar says, to the last
//! digit: compared with a reading in fractions that are never rounded.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use num_bigint::BigInt;
use proptest::prelude::*;
use tokenbucket_core::{Amount, Rate};
use tokenbucket_testkit::fuzz::{same_amount, same_rate};
use tokenbucket_testkit::model;

/// Digits, mostly few, sometimes as many as fit.
fn digits() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[0-9]{1,6}",
        2 => "[0-9]{7,25}",
        1 => "[09]{1,40}",
        1 => "[0-9]{26,64}",
    ]
}

/// Texts that are numbers, at and around every bound.
fn number() -> impl Strategy<Value = String> {
    let plain = prop_oneof![
        digits(),
        (digits(), digits()).prop_map(|(whole, fraction)| format!("{whole}.{fraction}")),
        digits().prop_map(|fraction| format!(".{fraction}")),
        digits().prop_map(|whole| format!("{whole}.")),
        (0_usize..30).prop_map(|zeros| format!("0.{}1", "0".repeat(zeros))),
        prop_oneof![
            Just("1000000000000"),
            Just("999999999999.9999999999995"),
            Just("999999999999.9999999999994"),
            Just("1000000000000.0000000000000000000001"),
            Just("0.000000000001"),
            Just("0.0000000000009999999999999999999"),
            Just("0.30000000000000004"),
        ]
        .prop_map(str::to_string),
    ];
    let exponent = prop_oneof![
        4 => Just(String::new()),
        4 => (prop_oneof![Just("e"), Just("E")], prop_oneof![Just(""), Just("+"), Just("-")], 0_u32..40)
            .prop_map(|(e, sign, n)| format!("{e}{sign}{n}")),
        1 => (prop_oneof![Just("e"), Just("e-")], "[0-9]{1,20}").prop_map(|(e, n)| format!("{e}{n}")),
    ];
    (plain, exponent).prop_map(|(plain, exponent)| format!("{plain}{exponent}"))
}

fn rate() -> impl Strategy<Value = String> {
    let period = prop_oneof![
        Just(String::new()),
        (
            prop_oneof![3 => Just(String::new()), 3 => "0{0,2}[1-9][0-9]{0,4}", 1 => "[1-9][0-9]{5,27}"],
            "(ms|s|m|h|d)"
        )
            .prop_map(|(count, unit)| format!("/{count}{unit}")),
    ];
    (number(), period).prop_map(|(number, period)| format!("{number}{period}"))
}

/// Texts that may be anything, near numbers and far from them.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..70),
        "[0-9.eE+/smhd -]{0,12}".prop_map(String::into_bytes),
        "[0-9._x'a-f]{1,8}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn amounts_mean_what_they_say(text in number()) {
        same_amount(text.as_bytes());
    }

    #[test]
    fn rates_mean_what_they_say(text in rate()) {
        same_rate(text.as_bytes());
    }

    #[test]
    fn everything_else_is_refused_alike(text in anything()) {
        same_amount(&text);
        same_rate(&text);
    }

    /// What is printed of an amount is read as that amount.
    #[test]
    fn printed_and_read_again(pico in 0_u128..=1_000_000_000_000_000_000_000_000) {
        let unit = 1_000_000_000_000;
        let text = format!("{}.{:012}", pico / unit, pico % unit);
        prop_assert_eq!(Amount::parse(text.as_bytes()).unwrap().picotokens(), pico);
        prop_assert_eq!(Amount::from_picotokens(pico), Amount::parse(text.as_bytes()).ok());
        if pico > 0 {
            let rate = Rate::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(rate.fixed(), pico << 24);
            prop_assert_eq!(Rate::from_fixed(pico << 24), Some(rate));
        }
    }

    /// A floating-point number, as Rust prints it, is read without losing more
    /// than the rounding to a picotoken.
    #[test]
    fn floats_are_read(value in 1e-6_f64..1e9) {
        for text in [format!("{value}"), format!("{value:e}"), format!("{value:E}")] {
            let pico = Amount::parse(text.as_bytes()).unwrap().picotokens();
            let exact = model::Amount::parse(text.as_bytes()).unwrap().pico;
            prop_assert_eq!(BigInt::from(pico), exact);
        }
    }
}

#[test]
fn out_of_range_values_are_not_made() {
    assert_eq!(
        Amount::from_picotokens(1_000_000_000_000_000_000_000_001),
        None
    );
    assert_eq!(Amount::from_tokens(1_000_000_000_001), None);
    assert_eq!(Amount::from_tokens(1_000_000_000_000), Some(Amount::MAX));
    assert_eq!(Amount::from_tokens(1), Some(Amount::ONE));
    assert_eq!(Amount::from_tokens(0), Some(Amount::ZERO));
    assert_eq!(Rate::from_fixed((1 << 24) - 1), None);
    assert_eq!(
        Rate::from_fixed((1_000_000_000_000_000_000_000_000 << 24) + 1),
        None
    );
    assert_eq!(Rate::from_fixed(1 << 24), Rate::parse(b"1e-12").ok());
}
