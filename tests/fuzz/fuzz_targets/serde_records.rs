//! libFuzzer's way to the target `serde_records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("serde_records", bytes));
