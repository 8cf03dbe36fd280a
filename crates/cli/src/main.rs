//! The `holdline` command line: hold a lock, run a program, release.
//!
//! Reading order: [`cli`] reads the command line, [`verb`] says what a verb is, [`verbs`] lists
//! them, [`verbs::run`] is the main verb, [`child`] runs a job, [`console`] prints, [`exit`] has
//! the exit codes. The rules about locks are in the library, none is here.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the command line needs Linux: when `holdline run` is killed, the kernel kills its job \
     (PR_SET_PDEATHSIG)"
);

mod address;
mod child;
mod cli;
mod config;
mod console;
mod descriptors;
mod duration;
mod exit;
mod failure;
mod global;
mod groups;
mod holder;
mod idle;
#[cfg(any(feature = "server", feature = "top"))]
mod named_urls;
mod open_store;
mod outer_locks;
mod record;
mod table;
mod user;
mod verb;
mod verbs;
mod view;

use std::process::ExitCode;

use cli::{Cli, Unparsed};
use console::Console;
use exit::Exit;
use failure::Outcome;
use verb::Invocation;

fn main() -> ExitCode {
    catch_panic(run)
}

/// Turns a panic into exit code 125. The standard library's 101 could be a job's own code. The
/// panic hook has printed the message, and unwinding has released the guards.
fn catch_panic(work: fn() -> ExitCode) -> ExitCode {
    std::panic::catch_unwind(work).unwrap_or_else(|_| ExitCode::from(Exit::Internal.code()))
}

fn run() -> ExitCode {
    if let Some(code) = child::hidden_verb() {
        return code;
    }
    #[cfg(feature = "torture")]
    if let Some(code) = verbs::torture::hidden_verb() {
        return code;
    }
    child::survive_file_size_limit();
    let words: Vec<_> = std::env::args_os().collect();
    let Cli { global, start } = match cli::parse(&words) {
        Ok(cli) => cli,
        Err(unparsed) => {
            let console = cli::plain(&words);
            return finish(print(unparsed, &console), &console).leave();
        }
    };
    let console = global.console();
    let invocation = Invocation { global, words, command: cli::command, console };
    finish(start(&invocation), &console).leave()
}

fn print(unparsed: Unparsed, console: &Console) -> Outcome {
    match unparsed {
        Unparsed::Shown(text) => console.data(&text).map(|()| Exit::Success),
        Unparsed::Wrong(failure) => Err(failure),
    }
}

fn finish(outcome: Outcome, console: &Console) -> Exit {
    outcome.unwrap_or_else(|failure| {
        console.failure(&failure);
        failure.exit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_as_our_own_failure() {
        assert_eq!(catch_panic(|| panic!("on purpose")), ExitCode::from(125));
        assert_eq!(catch_panic(|| ExitCode::from(3)), ExitCode::from(3));
    }
}
