//! `holdline who NAME`.

use clap::Args;
use holdline_core::{LockName, Snapshot};

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};
use crate::view;

/// Show who holds NAME and who waits for it: exit 0 if held, 1 if free
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline who nightly-backup && echo busy")]
pub(crate) struct WhoArgs {
    /// The lock name
    name: LockName,
}

/// Describes `who`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("who", StoreUse::Reads(without_store), run)
}

/// Shows the holders and the queue of the name.
pub(crate) async fn run(arguments: &WhoArgs, store: &OpenStore, console: &Console) -> Outcome {
    show(&store.inspect(&arguments.name).await?, console)
}

/// Shows that nobody holds the name.
pub(crate) fn without_store(arguments: &WhoArgs, console: &Console) -> Outcome {
    show(&Snapshot::free(arguments.name.clone()), console)
}

fn show(snapshot: &Snapshot, console: &Console) -> Outcome {
    console.print(&view::object(snapshot), &view::text(snapshot, console))?;
    Ok(if snapshot.is_held() { Exit::Success } else { Exit::Negative })
}
