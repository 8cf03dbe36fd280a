//! `holdline completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::verb::Verb;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline completions bash > ~/.local/share/bash-completion/\
    completions/holdline")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Describes `completions`.
pub(crate) fn verb() -> Verb {
    Verb::new("completions", |arguments: CompletionsArgs, invocation| {
        invocation.console.data(&script(arguments.shell, (invocation.command)()))?;
        Ok(Exit::Success)
    })
}

/// Returns the completion script.
pub(super) fn script(shell: Shell, mut command: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "holdline", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        script += &names_for_fish(&command);
    }
    script
}

/// Returns what the generator lacks for fish: it knows flags and verbs, and offers files for NAME.
fn names_for_fish(command: &clap::Command) -> String {
    let run = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let takes_value =
        |argument: &&clap::Arg| !argument.is_positional() && argument.get_action().takes_values();
    let written = |argument: &clap::Arg| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short)
    };
    // Flags that all verbs take are listed at the top only.
    let all = run.chain(command.get_arguments()).filter(takes_value).flat_map(written);
    include_str!("completions.fish").replace("@VALUES@", &all.collect::<Vec<_>>().join(" "))
}
