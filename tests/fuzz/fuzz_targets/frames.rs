//! libFuzzer's way to the target `frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("frames", bytes));
