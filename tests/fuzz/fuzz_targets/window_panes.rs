//! libFuzzer's way to the target `window_panes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("window_panes", bytes));
