//! A worker of the tests: what `holdline` is by a hidden verb.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdline_torture::work(std::env::args_os().skip(1))
}
