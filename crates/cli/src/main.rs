//! Under construction.

mod child;

use std::process::ExitCode;

fn main() -> ExitCode {
    child::hidden_verb().unwrap_or_default()
}
