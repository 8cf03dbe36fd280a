//! `holdline release NAME`.

use clap::Args;
use holdline::ReleaseOutcome;
use holdline_core::{LockError, LockName};
use serde_json::json;

use super::common::{self, LeaseIdArgs};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};
use crate::view::millis;

/// Release a lease of `acquire`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline release deploy --lease-id \"$lease_id\"")]
pub(crate) struct ReleaseArgs {
    /// The lock name
    name: LockName,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
}

/// Describes `release`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("release", StoreUse::Changes(without_store), run)
}

/// Releases the lease.
pub(crate) async fn run(arguments: &ReleaseArgs, store: &OpenStore, console: &Console) -> Outcome {
    let name = &arguments.name;
    let lease_id = arguments.lease_id.of_acquire("releases")?;
    match store.release_by_id(name, lease_id).await.map_err(unconfirmed)? {
        ReleaseOutcome::Released { held_for, .. } => {
            let held_ms = millis(held_for);
            console.only_object(&json!({ "name": name, "held_ms": held_ms, "confirmed": true }))
        }
        ReleaseOutcome::Lost { reason } => {
            Err(Failure::lost(format_args!("{name}: not held by this lease: {reason}")))
        }
        _ => Err(Failure::internal(format_args!("{name}: an unexpected outcome"))),
    }
}

/// Explains the effect of a release that was not confirmed.
fn unconfirmed(error: LockError) -> Failure {
    let failure = Failure::from(error);
    match failure.exit {
        Exit::Unavailable => {
            failure.fix("release it again, or wait: the end of the lease frees the name")
        }
        _ => failure,
    }
}

/// Reports that no lease is held, because there is no store.
fn without_store(arguments: &ReleaseArgs, _: &Console) -> Outcome {
    arguments.lease_id.of_acquire("releases")?;
    Err(common::not_held(&arguments.name))
}
