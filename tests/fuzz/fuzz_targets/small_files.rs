//! libFuzzer's way to the target `small_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("small_files", bytes));
