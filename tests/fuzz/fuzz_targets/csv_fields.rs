//! libFuzzer's way to the target `csv_fields`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("csv_fields", bytes));
