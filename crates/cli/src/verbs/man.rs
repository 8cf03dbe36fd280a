//! `holdline man`.

use clap::Args;

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// What `man` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline man | man -l -\n  holdline man run > holdline-run.1")]
pub(crate) struct ManArgs {
    /// The verb to describe, such as `run` or `fence check` [default: the whole program]
    verb: Vec<String>,
}

/// Prints the manual page.
pub(crate) fn run(arguments: &ManArgs, mut page: clap::Command, console: &Console) -> Outcome {
    page.build();
    for verb in &arguments.verb {
        page = page.find_subcommand(verb).cloned().ok_or_else(|| no_verb(&page, verb))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    console.data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Success)
}

fn no_verb(above: &clap::Command, verb: &str) -> Failure {
    let known = above.get_subcommands().map(clap::Command::get_name);
    let near = holdline_core::nearest(verb, known)
        .map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Failure::usage(format_args!("VERB: there is no verb {}{near}", holdline_core::Escaped(verb)))
}
