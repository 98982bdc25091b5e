//! What the compiler says to mistakes that users make: `tests/ui/*/NAME.rs` must fail with `NAME.stderr`.
//!
//! `TRYBUILD=overwrite cargo test -p tidegate-tests ui` writes the messages anew; read the difference before keeping it.

#[test]
fn mistakes_get_messages_that_say_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/ui/*/*.rs");
}
