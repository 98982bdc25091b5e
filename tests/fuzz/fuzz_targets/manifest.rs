//! libFuzzer's way to the target `manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("manifest", bytes));
