//! A worker process for the tests; the command line runs the same code by a hidden verb.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdline_torture::work(std::env::args_os().skip(1))
}
