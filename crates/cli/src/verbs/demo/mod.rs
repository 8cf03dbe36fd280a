//! `holdline demo`: what goes wrong with locks that expire, and what fencing tokens do about it.
//!
//! Read next: `paused`, the client that is paused past its lease; `broken_patterns`, a release that
//! does not compare; `page`, two columns of output.

#[cfg(feature = "redis")]
mod broken_patterns;
mod page;
mod paused;

use clap::{Args, Subcommand};

use crate::config::Address;
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::verb::{AtStake, EngineChoice, Verb};
use page::Page;

/// Show what goes wrong with locks that expire, and what fencing tokens do about it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline demo kleppmann")]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "Demonstrations")]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    demo: Demo,
}

/// Describes `demo`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("demo", EngineChoice::Demonstration, AtStake::Nothing, run)
}

#[derive(Debug, Subcommand)]
enum Demo {
    /// A client that is paused past its lease, with fencing tokens and without (M. Kleppmann, 2016)
    Kleppmann,
    /// A release by a bare DEL, which ends the lock of another client, and the same with Holdline
    #[cfg(feature = "redis")]
    BrokenPatterns,
    /// One of the two clients, as a process of its own
    #[command(hide = true)]
    Client(paused::ClientArgs),
}

/// Runs a demonstration.
pub(crate) async fn run(arguments: &DemoArgs, address: Address, console: &Console) -> Outcome {
    match &arguments.demo {
        Demo::Kleppmann => kleppmann(address, console).await,
        #[cfg(feature = "redis")]
        Demo::BrokenPatterns => {
            let shown = broken_patterns::run(&address, &Page::new(console)).await?;
            console.only_object(&serde_json::json!({ "broken_patterns": shown }))
        }
        Demo::Client(client) => client.run(address).await,
    }
}

async fn kleppmann(address: Address, console: &Console) -> Outcome {
    if address.url.starts_with("memory:") {
        let failure = Failure::config("memory: exists in one process, and the clients are two");
        return Err(failure.fix("leave --url away: local: needs no server"));
    }
    let paused = paused::run(&address, &mut Page::new(console)).await?;
    console.only_object(&serde_json::json!({ "paused": paused }))
}
