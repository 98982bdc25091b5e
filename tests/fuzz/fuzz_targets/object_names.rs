//! libFuzzer's way to the target `object_names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("object_names", bytes));
