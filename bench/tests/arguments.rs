//! Command lines from anywhere: an error says what is wrong with them, and none makes the runner panic.

use mutate::{Dice, mutate};
use tidegate_bench::args::{Args, Command};
use tidegate_bench::{flights, w1, w2, w3, w6b, wordcount};

#[path = "../../tests/src/fuzz/mutate.rs"]
#[allow(unreachable_pub, reason = "the file belongs to another package, whose tests see it")]
mod mutate;

const COMMANDS: &[Command] =
    &[flights::COMMAND, wordcount::COMMAND, w1::COMMAND, w2::COMMAND, w3::COMMAND, w6b::COMMAND];

/// Command lines, a word a line.
const SEEDS: &[&str] = &[
    "flights\nrows=1000\n--parallelism=2",
    "w2\nkeys=1000\nrows=10\nworkers=2",
    "wordcount\n--checkpoint.interval\n1 s",
    "checkpoint.interval=500 ms\nbuffer.segment-bytes=32 KiB",
    "--help",
    "w6b\nmode=unaligned\nsink_rate=1000",
    "nothing",
];

/// Words as they are shown; variables begin with `TIDEGATE_`.
fn parse(line: &str) -> bool {
    let (variables, words): (Vec<&str>, Vec<&str>) =
        line.split('\n').partition(|word| word.starts_with("TIDEGATE_"));
    // A file is read: that is not what this is about.
    let words = words.into_iter().filter(|word| !word.contains("config"));
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    match Args::parse(COMMANDS, words.map(str::to_owned), variables) {
        Ok(_) => true,
        Err(failure) => {
            assert!(!failure.to_string().is_empty(), "{line:?}");
            false
        }
    }
}

#[test]
fn no_command_line_makes_the_runner_panic() {
    let corpus: Vec<_> = SEEDS.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let mut taken = 0;
    for seed in 0..5000 {
        let bytes = mutate(&corpus, &mut Dice::new(seed));
        taken += u32::from(parse(&String::from_utf8_lossy(&bytes)));
    }
    assert!(taken > 25, "only {taken} were right");
}
