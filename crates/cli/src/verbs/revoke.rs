//! `holdline revoke NAME`: takes a name away from its holder, or a waiter out of its queue.
//!
//! Polite unless `--now`: the holder is notified, its renewals are refused, and the verb waits for
//! the grace. A live grant lasts as long as its processes, so their group is signalled here too:
//! TERM at once, KILL after the grace. If a process still keeps the name then, the verb says so.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use clap::Args;
use holdline_core::{
    Escaped, FencingToken, HolderView, LockName, Operation, OperationReply, ShortLeaseId,
};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use serde_json::json;
use tokio::time::Instant;

use crate::console::{Console, Messages};
use crate::duration;
use crate::failure::{Failure, Outcome};
use crate::groups;
use crate::holder::{Holder, join_pids};
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};

/// The pause between two checks whether the name is released.
const POLL_PAUSE: Duration = Duration::from_millis(50);
/// How long a process may take to be gone after KILL.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Take NAME away from its holder
#[derive(Debug, Args)]
#[command(
    after_help = "`holdline who NAME` shows the token of the grant. Without --now the holder \
    is notified and its job stopped with TERM; with it the name is free at once, while the job may \
    still run.\n\nExample:\n  holdline revoke deploy --if-fencing-token 1048577 --reason \
    \"rollback\""
)]
pub(crate) struct RevokeArgs {
    /// The lock name
    name: LockName,
    #[command(flatten)]
    grant: Grant,
    /// Why, for the holder
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Free the name at once, even if its job still runs and can write
    #[arg(long)]
    now: bool,
    /// How long the holder may take to stop
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(default_value = "10s", value_parser = duration::any)]
    grace: Duration,
}

/// Describes `revoke`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("revoke", StoreUse::Changes(|verb, _| Err(not_held(verb))), run)
}

/// Which grant is meant, or which waiter: one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Grant {
    /// Only the grant with this token: a later holder is not affected
    #[arg(long, value_name = "N")]
    if_fencing_token: Option<FencingToken>,
    /// Only this holder, by the id that `who` shows, its whole value, or UUID:THREAD of a Redisson
    /// client: for grants without a token, with `dialect=plain` and `dialect=redisson` only
    #[arg(long, value_name = "ID", requires = "now")]
    if_holder: Option<String>,
    /// No grant: this waiter leaves the queue, by the id that `who` shows. Its attempt fails
    #[arg(long, value_name = "ID", conflicts_with = "now")]
    waiter: Option<ShortLeaseId>,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(token) = self.if_fencing_token {
            return write!(f, "token {token}");
        }
        write!(f, "the id {}", Escaped(self.if_holder.as_deref().unwrap_or_default()))
    }
}

/// Revokes the grant and waits until it is gone.
pub(crate) async fn run(arguments: &RevokeArgs, store: &OpenStore, console: &Console) -> Outcome {
    let RevokeArgs { name, grant, reason, now, grace } = arguments;
    if let Some(waiter) = grant.waiter {
        return remove(name, waiter, reason, store, console).await;
    }
    let notified = || {
        console.info(&format!("{name}: the holder is notified, waiting until it stops"));
    };
    let was_held = match (grant.if_fencing_token, &grant.if_holder) {
        (Some(token), _) => {
            let revocation = Revocation { name, token, reason, now: *now, grace: *grace };
            revocation.carry_out(store, notified, console).await?
        }
        (None, holder) => {
            let holder = holder.clone().unwrap_or_default();
            let name = name.clone();
            let reason = reason.clone();
            let operation = Operation::RevokeHolder { name, holder, reason };
            store.operate(&operation, console).await? != OperationReply::NothingThere
        }
    };
    if !was_held {
        return Err(not_held(arguments));
    }
    let token = grant.if_fencing_token;
    if *now {
        let unless = token.map(|token| format!(", unless its resource refuses token {token}"));
        console.warn(&format!(
            "{name}: freed at once; the job that had it may still run and write{}",
            unless.unwrap_or_default()
        ));
    }
    let object = json!({ "name": name, "fencing_token": token, "revoked": true });
    console.done(&object, &format!("{name}: revoked"))
}

/// Removes a waiter from the queue.
async fn remove(
    name: &LockName,
    waiter: ShortLeaseId,
    reason: &str,
    store: &OpenStore,
    console: &Console,
) -> Outcome {
    let operation =
        Operation::RemoveWaiter { name: name.clone(), waiter, reason: reason.to_owned() };
    if store.operate(&operation, console).await? == OperationReply::NothingThere {
        return Err(Failure::nothing(format_args!(
            "{name}: nobody waits for it with the id {waiter}"
        ))
        .fix(format_args!("see who waits for it: holdline who {name}")));
    }
    let object = json!({ "name": name, "waiter": waiter, "removed": true });
    console.done(&object, &format!("{name}: the waiter {waiter} is removed"))
}

/// Reports that there is no such grant.
pub(crate) fn not_held(arguments: &RevokeArgs) -> Failure {
    let RevokeArgs { name, grant, .. } = arguments;
    Failure::nothing(format_args!("{name}: nobody holds it with {grant}"))
        .fix(format_args!("see who holds it: holdline who {name}"))
}

/// What is revoked, and how.
pub(crate) struct Revocation<'a> {
    /// The lock name.
    pub(crate) name: &'a LockName,
    /// The token of the grant; no other grant is affected.
    pub(crate) token: FencingToken,
    /// Why, for the holder.
    pub(crate) reason: &'a str,
    /// Free the name at once.
    pub(crate) now: bool,
    /// How long the holder may take to stop.
    pub(crate) grace: Duration,
}

impl Revocation<'_> {
    /// Revokes the grant and waits until it is gone; false if there is no such grant. `notified` is
    /// called when the wait begins.
    pub(crate) async fn carry_out(
        &self,
        store: &OpenStore,
        notified: impl FnOnce(),
        messages: &dyn Messages,
    ) -> Result<bool, Failure> {
        let Revocation { name, token, reason, now, .. } = *self;
        let operation =
            Operation::Revoke { name: name.clone(), token, reason: reason.to_owned(), now };
        let left = match store.operate(&operation, messages).await? {
            OperationReply::NothingThere => return Ok(false),
            OperationReply::Done => return Ok(true),
            OperationReply::Notified { left } => left,
        };
        notified();
        let grace = Instant::now() + self.grace;
        let end = match left {
            // The lease ends by itself: refused renewals make that certain.
            Some(left) => Instant::now() + left.min(self.grace) + store.capabilities().lag,
            None => grace + KILL_LIMIT,
        };
        let mut signalled = Signalled::default();
        loop {
            let Some(holder) = self.holder(store).await? else { return Ok(true) };
            if Instant::now() >= end {
                return Err(self.still_held(&holder));
            }
            if holder.live {
                let is_over = Instant::now() >= grace;
                signalled.signal(&holder, if is_over { Signal::KILL } else { Signal::TERM });
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }

    async fn holder(&self, store: &OpenStore) -> Result<Option<HolderView>, Failure> {
        let snapshot = store.inspect(self.name).await?;
        let ours = |holder: &HolderView| holder.summary.token == Some(self.token);
        Ok(snapshot.holders.into_iter().find(ours))
    }

    fn still_held(&self, holder: &HolderView) -> Failure {
        let name = self.name;
        let who = match (holder.pids.is_empty(), holder.summary.left) {
            (false, _) => format!("processes {} keep it", join_pids(&holder.pids)),
            (true, Some(left)) => {
                format!("it ends in {} at the latest", holdline_core::snapshot::coarse(left))
            }
            (true, None) => "its processes cannot be seen from here".into(),
        };
        let message =
            format!("{name}: revoked, but still held by {}: {who}", Holder::inspected(holder));
        Failure::busy(message).fix("wait for it, or free it with --now at the risk of two at work")
    }
}

/// The processes that were signalled, and with which signal: each only once.
#[derive(Debug, Default)]
struct Signalled(BTreeSet<(i32, i32)>);

impl Signalled {
    /// Signals the processes that keep a live grant. The holder itself passes signals on and
    /// releases when its job is gone, so it is signalled only when no other process is left.
    fn signal(&mut self, holder: &HolderView, signal: Signal) {
        for target in targets(holder) {
            if !self.0.insert((target.raw(), signal.as_raw())) {
                continue;
            }
            // If a signal cannot be sent, the next check finds the process still there.
            let _ = target.send(signal);
            // A process that is stopped, by `^Z` for example, handles TERM only after a CONT.
            let _ = target.send(Signal::CONT);
        }
    }
}

/// The receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Group(Pid),
    Process(Pid),
}

impl Target {
    fn send(self, signal: Signal) -> rustix::io::Result<()> {
        match self {
            Target::Group(group) => kill_process_group(group, signal),
            Target::Process(process) => kill_process(process, signal),
        }
    }

    /// Negative for a group, as `kill` counts.
    fn raw(self) -> i32 {
        match self {
            Target::Group(group) => -group.as_raw_nonzero().get(),
            Target::Process(process) => process.as_raw_nonzero().get(),
        }
    }
}

fn targets(holder: &HolderView) -> Vec<Target> {
    let pid = |pid: u32| i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let wrapper = holder.summary.metadata.fields().pid.and_then(pid);
    let keeping: Vec<Pid> = holder.pids.iter().filter_map(|&number| pid(number)).collect();
    let jobs: Vec<Pid> =
        keeping.iter().copied().filter(|&p| Some(p) != wrapper && p != getpid()).collect();
    if jobs.is_empty() {
        return keeping.into_iter().filter(|&p| p != getpid()).map(Target::Process).collect();
    }
    let group_of = |process| groups::of(process).ok().flatten();
    let not_the_jobs_alone = [wrapper.and_then(group_of), groups::own()];
    let target = |job: Pid| match group_of(job) {
        // A group with processes outside the job is never signalled as a whole.
        Some(group) if !not_the_jobs_alone.contains(&Some(group)) => Target::Group(group),
        _ => Target::Process(job),
    };
    let mut targets: Vec<Target> = jobs.into_iter().map(target).collect();
    targets.sort_unstable_by_key(|target| target.raw());
    targets.dedup();
    targets
}
