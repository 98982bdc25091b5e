//! libFuzzer's way to the target `block_heads`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("block_heads", bytes));
