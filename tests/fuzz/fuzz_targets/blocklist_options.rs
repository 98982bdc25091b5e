//! libFuzzer's way to the target `blocklist_options`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_tests::fuzz::run("blocklist_options", bytes));
