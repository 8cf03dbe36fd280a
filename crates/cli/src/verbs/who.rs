//! `holdline who NAME`.

use clap::Args;
use holdline_core::LockName;

use super::common;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::session::Session;
use crate::view;

/// What `who` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline who nightly-backup && echo busy")]
pub(crate) struct WhoArgs {
    /// The lock name
    #[arg(value_parser = common::name)]
    name: LockName,
}

/// Shows how the name stands.
pub(crate) async fn run(arguments: &WhoArgs, session: &Session, console: &Console) -> Outcome {
    let snapshot = session.inspect(&arguments.name).await?;
    if console.is_json() {
        console.object(&view::object(&snapshot))?;
    } else {
        console.data(&view::text(&snapshot, console))?;
    }
    Ok(if snapshot.is_held() { Exit::Success } else { Exit::Negative })
}
