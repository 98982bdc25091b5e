//! libFuzzer's way to the target `lines`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("lines", bytes));
