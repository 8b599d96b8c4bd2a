#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tokenbucket_testkit::fuzz::rates(data));
