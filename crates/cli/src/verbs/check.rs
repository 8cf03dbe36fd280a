//! `holdline check NAME`.

use std::time::Duration;

use clap::Args;
use holdline_core::{ErrorKind, LockName, Purpose, RenewReply, RenewRequest};
use serde_json::json;

use super::common::{self, LeaseIdArgs};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::view::millis;

/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What `check` takes.
#[derive(Debug, Args)]
#[command(after_help = "The answer is old when it arrives. In a job of `run` it tells about the \
    job's own lease.\n\nExample:\n  holdline check deploy --lease-id \"$lease_id\" || exit")]
pub(crate) struct CheckArgs {
    /// The lock name
    #[arg(value_parser = common::name)]
    name: LockName,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
}

/// Asks the store about the lease, and changes nothing.
pub(crate) async fn run(arguments: &CheckArgs, session: &Session, console: &Console) -> Outcome {
    let name = &arguments.name;
    let client = session.client();
    // The heartbeat of a queue never claims and never renews; for a grant it tells what is left.
    let line = RenewRequest {
        name: name.clone(),
        lease_id: arguments.lease_id.required()?,
        client: client.id(),
        purpose: Purpose::Wait,
    };
    let batch = [line];
    let answer = tokio::time::timeout(ANSWER, client.engine().renew(&batch)).await;
    let reply = match answer.ok().and_then(|replies| replies.into_iter().next()) {
        Some(reply) => reply?,
        None => {
            let message = format!("nothing for {ANSWER:?}");
            return Err(session.error(ErrorKind::Unavailable { message }).with_name(name).into());
        }
    };
    let (held, left) = match reply {
        RenewReply::Handed { claim_within } => (true, claim_within),
        RenewReply::Revoked { left, .. } => (left.is_none_or(|left| !left.is_zero()), left),
        _ => (false, None),
    };
    if !held {
        return Err(not_held(name));
    }
    if console.is_json() {
        let left = left.map(millis);
        console.object(&json!({ "name": name, "held": true, "left_ms": left }))?;
    }
    Ok(Exit::Success)
}

/// Finds that no lease is held where there is no store.
pub(crate) fn without_store(arguments: &CheckArgs) -> Outcome {
    arguments.lease_id.required()?;
    Err(not_held(&arguments.name))
}

fn not_held(name: &LockName) -> Failure {
    Failure::lost(format_args!("{name}: not held by this lease"))
}
