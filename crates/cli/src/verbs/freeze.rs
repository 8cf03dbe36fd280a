//! `holdline freeze NAME` and `holdline unfreeze NAME`.

use std::time::Duration;

use clap::Args;
use holdline_core::{LockName, Operation, OperationReply};
use serde_json::json;

use crate::console::{Console, Messages};
use crate::duration;
use crate::failure::{Failure, Outcome};
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};

/// Let nobody acquire NAME for a while
#[derive(Debug, Args)]
#[command(after_help = "The present holder keeps NAME until it releases; then the freeze comes \
    before all waiters.\n\nExample:\n  holdline freeze deploy --for 2h --reason \
    \"moving the database\"")]
pub(crate) struct FreezeArgs {
    /// The lock name
    name: LockName,
    /// For how long, counted from now
    #[arg(long = "for", value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::positive)]
    duration: Duration,
    /// Why, for people who wait
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Describes `freeze`.
pub(crate) fn freeze_verb() -> Verb {
    Verb::on_store("freeze", StoreUse::Makes, freeze)
}

/// End a freeze
#[derive(Debug, Args)]
pub(crate) struct UnfreezeArgs {
    /// The lock name
    name: LockName,
}

/// Describes `unfreeze`.
pub(crate) fn unfreeze_verb() -> Verb {
    let without_store = |arguments: &UnfreezeArgs, _: &Console| Err(not_frozen(&arguments.name));
    Verb::on_store("unfreeze", StoreUse::Changes(without_store), unfreeze)
}

/// Freezes the name.
pub(crate) async fn freeze(
    arguments: &FreezeArgs,
    store: &OpenStore,
    console: &Console,
) -> Outcome {
    let FreezeArgs { name, duration, reason } = arguments;
    let active = set(store, name, *duration, reason, console).await?;
    let message = if active {
        format!("{name}: frozen for {}", duration::written(*duration))
    } else {
        format!("{name}: will be frozen when its holder is done")
    };
    console.done(&json!({ "name": name, "frozen": true, "active": active }), &message)
}

/// Freezes a name; returns whether that has begun.
pub(crate) async fn set(
    store: &OpenStore,
    name: &LockName,
    duration: Duration,
    reason: &str,
    messages: &dyn Messages,
) -> Result<bool, Failure> {
    let operation = Operation::Freeze { name: name.clone(), duration, reason: reason.to_owned() };
    store.operate(&operation, messages).await?;
    let snapshot = store.inspect(name).await?;
    Ok(snapshot.freeze.as_ref().is_some_and(|freeze| freeze.active))
}

/// Ends the freeze.
pub(crate) async fn unfreeze(
    arguments: &UnfreezeArgs,
    store: &OpenStore,
    console: &Console,
) -> Outcome {
    let name = &arguments.name;
    end(store, name, console).await?;
    let object = json!({ "name": name, "frozen": false, "active": false });
    console.done(&object, &format!("{name}: no longer frozen"))
}

/// Ends the freeze of a name.
///
/// # Errors
/// Among others: there is none.
pub(crate) async fn end(
    store: &OpenStore,
    name: &LockName,
    messages: &dyn Messages,
) -> Result<(), Failure> {
    match store.operate(&Operation::Unfreeze { name: name.clone() }, messages).await? {
        OperationReply::NothingThere => Err(not_frozen(name)),
        OperationReply::Done | OperationReply::Notified { .. } => Ok(()),
    }
}

fn not_frozen(name: &LockName) -> Failure {
    Failure::nothing(format_args!("{name}: is not frozen"))
}
