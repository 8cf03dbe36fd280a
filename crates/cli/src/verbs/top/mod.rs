//! `holdline top [PATTERN]`: what is held and waited for, who blocks whom, on one screen.
//!
//! Reading order: `app` is the state machine, `rows` and `blocking` compute what it shows, `draw`
//! and `detail` draw it, `store` asks the store, `screen` has the terminal. `once` is the same
//! without a screen. The rounds are the library's ([`holdline::watch`]).

mod app;
mod blocking;
mod detail;
mod draw;
mod form;
mod once;
mod rows;
#[cfg(test)]
mod samples;
mod screen;
mod store;

use std::io::{self, IsTerminal as _};

use clap::Args;

use super::common::RoundArgs;
use crate::config::Address;
use crate::console::Console;
use crate::failure::{Failure, Outcome};

/// What `top` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "It lists the store in rounds and shows the last one. What begins and ends \
    between two rounds is not seen. `?` shows the keys.\n\nExamples:\n  holdline top 'deploy/*'\n  \
    holdline top --once --json"
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    rounds: RoundArgs,
    /// Print one table, or with --json one object, and end
    #[arg(long)]
    once: bool,
}

/// Shows the screen until it is left, or prints one round.
pub(crate) fn run(arguments: &TopArgs, address: Address, console: &Console) -> Outcome {
    let (pattern, options) = arguments.rounds.checked()?;
    let interval = options.interval();
    let url = holdline::redact_url(&address.url);
    let task = store::Task { address, pattern, options };
    if arguments.once {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(Box::pin(once::run(task, console)));
    }
    if console.is_json() {
        let failure = Failure::usage("top: the screen has no JSON");
        return Err(failure.fix("add --once for one object, or use `holdline watch --json`"));
    }
    if !io::stdout().is_terminal() {
        let failure = Failure::usage("top: standard output is no terminal");
        return Err(failure.fix("add --once for one table, or --once --json for scripts"));
    }
    let theme = draw::Theme { color: console.colors(&io::stdout()) };
    let url = draw::plain(&url, 200);
    screen::run(app::App::new(url, interval), task, theme)
}
