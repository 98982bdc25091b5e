//! Runs Tidegate's workloads; see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_bench::main()
}
