//! `holdline latch NAME`: set, count down, wait for zero, or show the count.

use std::time::Duration;

use clap::Args;
use holdline::{Latch, LockError};
use holdline_core::LockName;
use serde_json::json;

use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{OpenStore, StoreOptions};
use crate::verb::{StoreUse, Verb};

/// Set the count-down latch NAME, count it down, wait for zero, or show its count
#[derive(Debug, Args)]
#[command(
    after_help = "Without a flag it prints the count. A latch that was never set is open: set it \
    before anybody waits.\n\nExamples:\n  holdline latch ready --set 3\n  \
    ./start && holdline latch ready --count-down\n  holdline latch ready --wait 5m && ./go"
)]
pub(crate) struct LatchArgs {
    /// Set the count to N, unless it is above zero: exit 0 if it was set, 1 if not
    #[arg(long, value_name = "N", group = "what", allow_hyphen_values = true)]
    #[arg(value_parser = count)]
    set: Option<u64>,
    /// Lower the count by N, at most to zero [default: 1]
    #[arg(long, value_name = "N", group = "what", num_args = 0..=1, default_missing_value = "1")]
    #[arg(require_equals = true, allow_hyphen_values = true, value_parser = count)]
    count_down: Option<u64>,
    /// Wait until the count is zero, at most DUR; then exit 75 [default: for ever]
    #[arg(long, value_name = "DUR", group = "what", num_args = 0..=1, allow_hyphen_values = true)]
    #[arg(value_parser = duration::positive, default_missing_value = "8784h")]
    wait: Option<Duration>,
    /// The name of the latch
    name: LockName,
}

/// Describes `latch`.
pub(crate) fn verb() -> Verb {
    Verb::new("latch", |arguments: LatchArgs, invocation| {
        let progress = arguments.wait.map(|_| &invocation.console);
        let options = StoreOptions { wait: arguments.wait, progress, ..StoreOptions::default() };
        invocation.on_store(&arguments, options, &StoreUse::Makes, run)
    })
}

fn count(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err("must not be negative".into());
    }
    let most = holdline::Latch::MAX_COUNT;
    let count = text.parse::<u64>().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
}

/// Does what the flags say.
pub(crate) async fn run(arguments: &LatchArgs, store: &OpenStore, console: &Console) -> Outcome {
    let latch = store.client().latch(arguments.name.as_str())?;
    if let Some(count) = arguments.set {
        if latch.try_set(count).await? {
            return show(&latch, count, console);
        }
        let left = latch.count().await?;
        let message = format_args!("{}: is set already, and its count is {left}", latch.name());
        return Err(Failure::nothing(message).fix("count it down first, or choose another name"));
    }
    if let Some(by) = arguments.count_down {
        return show(&latch, latch.count_down(by).await?, console);
    }
    if let Some(wait) = arguments.wait {
        return wait_for(&latch, store.remaining_wait(wait), console).await;
    }
    show(&latch, latch.count().await?, console)
}

async fn wait_for(latch: &Latch, wait: Duration, console: &Console) -> Outcome {
    let count = latch.count().await?;
    if count > 0 {
        console.info(&format!("waiting for {}: its count is {count}", latch.name()));
    }
    if latch.wait_for(wait).await? {
        return if console.is_json() { show(latch, 0, console) } else { Ok(Exit::Success) };
    }
    let left: Result<u64, LockError> = latch.count().await;
    let message = format_args!("{}: its count is still {}", latch.name(), left?);
    Err(Failure::busy(message).kind("timed_out"))
}

fn show(latch: &Latch, count: u64, console: &Console) -> Outcome {
    console.print(&json!({ "name": latch.name(), "count": count }), &format!("{count}\n"))?;
    Ok(Exit::Success)
}
