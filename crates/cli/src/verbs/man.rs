//! `holdline man`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use clap_complete::Shell;

use super::completions;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::verb::Verb;

/// Where shells look for completions, below a directory such as `~/.local/share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/holdline"),
    (Shell::Zsh, "zsh/site-functions/_holdline"),
    (Shell::Fish, "fish/vendor_completions.d/holdline.fish"),
];

/// Print the manual page
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  holdline man | man -l -\n  holdline man run > holdline-run.1\n  \
    holdline man --all ~/.local/share"
)]
pub(crate) struct ManArgs {
    /// The verb to describe, such as `run` or `fence check` [default: the whole program]
    verb: Vec<String>,
    /// Write all manual pages and completion scripts below DIR, where man and the shells look for
    /// them if DIR is ~/.local/share or /usr/local/share
    #[arg(long, value_name = "DIR", conflicts_with = "verb", value_hint = ValueHint::DirPath)]
    all: Option<PathBuf>,
}

/// Describes `man`.
pub(crate) fn verb() -> Verb {
    Verb::new("man", |arguments: ManArgs, invocation| {
        run(&arguments, (invocation.command)(), &invocation.console)
    })
}

/// Prints the manual page.
pub(crate) fn run(arguments: &ManArgs, mut page: clap::Command, console: &Console) -> Outcome {
    if let Some(directory) = &arguments.all {
        return write_all(directory, &page, console);
    }
    page.build();
    for verb in &arguments.verb {
        page = page.find_subcommand(verb).cloned().ok_or_else(|| no_verb(&page, verb))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    console.data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Success)
}

fn write_all(directory: &Path, command: &clap::Command, console: &Console) -> Outcome {
    let failed = |error: std::io::Error| {
        let place = holdline_core::Escaped(&directory.to_string_lossy()).to_string();
        Failure::config(format_args!("--all {place}: {error}"))
    };
    let pages = directory.join("man/man1");
    fs::create_dir_all(&pages).map_err(failed)?;
    clap_mangen::generate_to(command.clone(), &pages).map_err(failed)?;
    for (shell, path) in COMPLETIONS {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(directory)).map_err(failed)?;
        fs::write(&path, completions::script(shell, command.clone())).map_err(failed)?;
    }
    let shown = directory.to_string_lossy();
    console.info(&format!("wrote pages and completions below {}", holdline_core::Escaped(&shown)));
    Ok(Exit::Success)
}

fn no_verb(above: &clap::Command, verb: &str) -> Failure {
    let known = above.get_subcommands().map(clap::Command::get_name);
    let near = holdline_core::nearest(verb, known)
        .map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Failure::usage(format_args!("VERB: there is no verb {}{near}", holdline_core::Escaped(verb)))
}
