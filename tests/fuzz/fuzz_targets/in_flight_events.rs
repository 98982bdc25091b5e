//! libFuzzer's way to the target `in_flight_events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("in_flight_events", bytes));
