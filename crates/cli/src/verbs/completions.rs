//! `holdline completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use crate::cli;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Outcome;

/// What `completions` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline completions bash > ~/.local/share/bash-completion/\
    completions/holdline")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completion script.
pub(crate) fn run(arguments: &CompletionsArgs, console: &Console) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "holdline", &mut script);
    console.data(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
