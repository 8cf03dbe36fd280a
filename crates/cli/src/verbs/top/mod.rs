//! `holdline top [PATTERN]`: what is held and waited for, who blocks whom, on one screen.
//!
//! Reading order: `app` is the state machine, `stores` has what each store does and has shown,
//! `rows` and `blocking` compute what is on a page, `draw`, `head` and `detail` draw it with the
//! styles of `theme`, `store` asks one store, `screen` has the terminal. `once` is the same without
//! a screen. The rounds are the library's ([`holdline::watch`]).

mod app;
mod blocking;
mod detail;
mod draw;
mod form;
mod head;
mod once;
mod rows;
#[cfg(test)]
mod samples;
mod screen;
mod store;
mod stores;
mod theme;

use std::io::{self, IsTerminal as _};

use clap::Args;

use super::common::RoundArgs;
use crate::config::{Address, Source};
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::named_urls;
use crate::verb::{EngineChoice, Verb};

/// Show what is held and waited for, who blocks whom, and what changes, on one screen
#[derive(Debug, Args)]
#[command(
    after_help = "It lists the store in rounds and shows the last one. What begins and ends \
    between two rounds is not seen. `?` shows the keys. Several stores have names: repeat --url as \
    NAME=URL; the one without a name is `default`.\n\nExamples:\n  holdline top 'deploy/*'\n  \
    holdline top --url eu=redis://eu.example --url billing=postgres://app@db/billing\n  holdline \
    top --once --json"
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    rounds: RoundArgs,
    /// Print one table, or with --json one object, and end
    #[arg(long)]
    once: bool,
}

/// Describes `top`.
pub(crate) fn verb() -> Verb {
    Verb::new("top", |arguments: TopArgs, invocation| {
        // The screen is this thread's, so that no store can block a key.
        let address = invocation.address(EngineChoice::DefaultOfSeveral, &invocation.console)?;
        run(&arguments, &invocation.global.url, address, &invocation.console)
    })
}

/// The name of the store without one, as `serve` calls it.
const DEFAULT_STORE: &str = "default";

/// Shows the screen until it is left, or prints one round. `address` is the default store.
pub(crate) fn run(
    arguments: &TopArgs,
    urls: &[String],
    address: Address,
    console: &Console,
) -> Outcome {
    let tasks = tasks(arguments, urls, address)?;
    if arguments.once {
        return once::run(tasks, console);
    }
    if console.is_json() {
        let failure = Failure::usage("top: the screen has no JSON");
        return Err(failure.fix("add --once for one object, or use `holdline watch --json`"));
    }
    if !io::stdout().is_terminal() {
        let failure = Failure::usage("top: standard output is no terminal");
        return Err(failure.fix("add --once for one table, or --once --json for scripts"));
    }
    let theme = theme::Theme { color: console.colors(&io::stdout()) };
    let view = |task: &store::Task| {
        stores::StoreView::new(task.name.clone(), theme::plain(&task.url(), 200))
    };
    let stores = stores::Stores(tasks.iter().map(view).collect());
    screen::run(app::App::new(stores, arguments.rounds.interval()), tasks, theme)
}

/// Returns what each store is asked for, in the order of the command line.
fn tasks(
    arguments: &TopArgs,
    urls: &[String],
    address: Address,
) -> Result<Vec<store::Task>, Failure> {
    named_urls::check(urls, "name the password with ?password_file= or ?password_env= instead")?;
    let (pattern, options) = arguments.rounds.checked()?;
    let task = |name: &str, address: Address| store::Task {
        name: name.to_owned(),
        address,
        pattern: pattern.clone(),
        options: options.clone(),
    };
    if urls.len() < 2 {
        return Ok(vec![task(DEFAULT_STORE, address)]);
    }
    let mut tasks: Vec<store::Task> = Vec::new();
    for url in urls {
        let (name, address) = match named_urls::split(url) {
            Some((name, url)) => (name, Address { url: url.to_owned(), source: Source::Flag }),
            None => (DEFAULT_STORE, address.clone()),
        };
        if tasks.iter().any(|task| task.name == name) {
            return Err(Failure::usage(format_args!("--url: there are two stores `{name}`")));
        }
        tasks.push(task(name, address));
    }
    Ok(tasks)
}
