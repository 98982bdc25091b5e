//! libFuzzer's way to the target `state_tables`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("state_tables", bytes));
