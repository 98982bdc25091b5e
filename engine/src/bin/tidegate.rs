//! The program `tidegate`: see `tidegate::cli`.

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tidegate::cli::run(std::env::args_os(), &mut stdout(), &mut stderr()))
}
