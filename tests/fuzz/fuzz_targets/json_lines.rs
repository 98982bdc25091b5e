//! libFuzzer's way to the target `json_lines`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("json_lines", bytes));
