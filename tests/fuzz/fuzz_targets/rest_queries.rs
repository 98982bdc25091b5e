//! libFuzzer's way to the target `rest_queries`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("rest_queries", bytes));
