//! libFuzzer's way to the target `prepared_parts`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("prepared_parts", bytes));
