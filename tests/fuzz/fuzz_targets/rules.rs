//! libFuzzer's way to the target `rules`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("rules", bytes));
