//! Operators' commands: freeze, remove a waiter, inspect, list. Each is tested with the promise
//! that it concerns.

use std::time::Duration;

use holdline_core::operation::{MAX_FREEZE, MAX_REASON_BYTES};
use holdline_core::{
    ErrorKind, GrantState, Hint, HolderView, ListRequest, LockError, LockName, LostReason, Mode,
    Operation, OperationReply, RenewReply, ShortLeaseId, Snapshot,
};

use super::hang::one_of;
use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P1, "a freeze keeps everybody from a free name", [Freeze], freeze_free),
        case!(P1, "a freeze of a held name waits for its holder only", [Freeze], freeze_held),
        case!(
            P1,
            "a freeze comes before the queue, which goes on after it",
            [Freeze, Queue],
            freeze_queue
        ),
        case!(P3, "a freeze ends by its own time", [Freeze], freeze_ends),
        case!(P2, "a freeze has a token of its own in the order", [Freeze, Fencing], freeze_token),
        case!(P9, "a freeze on impossible terms is invalid", [Freeze], freeze_range),
        case!(
            P6,
            "a removed waiter leaves the queue and receives the reason",
            [RemoveWaiter],
            removed
        ),
        case!(
            P1,
            "the removal of a waiter hands over to those that it blocked",
            [RemoveWaiter, Shared],
            removed_writer
        ),
        case!(P9, "inspect shows holders and queue as they are", [Queue], inspect_shows),
        case!(P9, "a list has every name once, in order, page by page", [List], list_pages),
    ]
}

async fn freeze(bench: &Bench, name: &LockName, duration: Duration) -> Result<(), Failure> {
    let operation = Operation::Freeze { name: name.clone(), duration, reason: "why".into() };
    ensure_matches!(bench.operate(operation).await?, OperationReply::Done);
    Ok(())
}

async fn unfreeze(bench: &Bench, name: &LockName) -> Result<OperationReply, Failure> {
    Ok(bench.operate(Operation::Unfreeze { name: name.clone() }).await?)
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn remove_waiter(
    bench: &Bench,
    name: &LockName,
    waiter: ShortLeaseId,
) -> Result<OperationReply, Failure> {
    let operation = Operation::RemoveWaiter { name: name.clone(), waiter, reason: "why".into() };
    Ok(bench.operate(operation).await?)
}

async fn removed(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut first = bench.contender(&name);
    let mut second = bench.contender(&name);
    holder.take().await?;
    for nobody in [holder.id(), first.id()] {
        let reply = remove_waiter(&bench, &name, nobody.short()).await?;
        ensure_matches!(reply, OperationReply::NothingThere);
    }
    first.queue().await?;
    second.queue().await?;
    let mut watch = first.engine().watch(&name, first.id());
    ensure_matches!(remove_waiter(&bench, &name, first.id().short()).await?, OperationReply::Done);
    // A watch that opens after the removal begins with a hint to check the lease.
    one_of(&mut watch, &[Hint::LookAgain, Hint::CheckLease]).await?;
    let length = bench.inspect(&name).await?.queue_length;
    ensure!(length == 1, "{length} wait, and one of two was removed");
    ensure_matches!(second.beat().await?, RenewReply::Queued { .. });
    ensure_matches!(holder.keep().await?, RenewReply::Renewed { .. });
    let expected = "removed from the queue: why";
    match first.beat().await? {
        RenewReply::Revoked { reason, .. } => {
            ensure!(reason == expected, "the reason is {reason:?}");
        }
        other => return Err(Failure::new(format!("a removed waiter: {other:?}"))),
    }
    let error = first.ask(true).await.err();
    let kind = error.as_ref().map(LockError::kind);
    let lost = ErrorKind::Lost { reason: LostReason::Revoked(expected.to_owned()) };
    ensure!(kind == Some(&lost), "a removed waiter gets {error:?}");
    holder.let_go().await?;
    second.is_handed().await?;
    Ok(Outcome::Ran)
}

async fn removed_writer(bench: Bench) -> Verdict {
    let name = bench.name();
    let reader = bench.contender(&name).with_mode(Mode::Shared);
    let mut writer = bench.contender(&name);
    let mut behind = bench.contender(&name).with_mode(Mode::Shared);
    reader.take().await?;
    writer.queue().await?;
    behind.queue().await?;
    ensure_matches!(remove_waiter(&bench, &name, writer.id().short()).await?, OperationReply::Done);
    behind.is_handed().await?;
    Ok(Outcome::Ran)
}

async fn freeze_free(bench: Bench) -> Verdict {
    let name = bench.name();
    freeze(&bench, &name, HOUR).await?;
    bench.contender(&name).is_refused().await?;
    if bench.capabilities().shared {
        bench.contender(&name).with_mode(Mode::Shared).is_refused().await?;
    }
    let snapshot = bench.inspect(&name).await?;
    let shown = snapshot.freeze.as_ref().map(|freeze| (freeze.active, freeze.reason.as_str()));
    ensure!(shown == Some((true, "why")), "shown as {shown:?}");
    ensure!(snapshot.is_held(), "a frozen name is shown as free");
    ensure_matches!(unfreeze(&bench, &name).await?, OperationReply::Done);
    ensure_matches!(unfreeze(&bench, &name).await?, OperationReply::NothingThere);
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn freeze_held(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    freeze(&bench, &name, HOUR).await?;
    let active = bench.inspect(&name).await?.freeze.map(|freeze| freeze.active);
    ensure!(active == Some(false), "the name is held, and the freeze is {active:?}");
    ensure_matches!(holder.keep().await?, RenewReply::Renewed { .. });
    holder.let_go().await?;
    let active = bench.inspect(&name).await?.freeze.map(|freeze| freeze.active);
    ensure!(active == Some(true), "the holder is gone, and the freeze is {active:?}");
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn freeze_queue(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut waiting = bench.contender(&name);
    holder.take().await?;
    waiting.queue().await?;
    freeze(&bench, &name, HOUR).await?;
    holder.let_go().await?;
    ensure_matches!(waiting.beat().await?, RenewReply::Queued { .. });
    let place = bench.contender(&name).queue().await?;
    ensure!(place.is_none_or(|at| at == 1), "the queue moved: {place:?}");
    ensure_matches!(unfreeze(&bench, &name).await?, OperationReply::Done);
    waiting.is_handed().await?;
    waiting.take().await?;
    Ok(Outcome::Ran)
}

async fn freeze_ends(bench: Bench) -> Verdict {
    let name = bench.name();
    freeze(&bench, &name, bench.lease()).await?;
    bench.contender(&name).is_refused().await?;
    bench.outlive(bench.lease()).await;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn freeze_token(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let before = holder.take().await?.token;
    holder.let_go().await?;
    freeze(&bench, &name, HOUR).await?;
    let frozen = bench.inspect(&name).await?.freeze.and_then(|freeze| freeze.token);
    unfreeze(&bench, &name).await?;
    let after = holder.anew().take().await?.token;
    ensure!(
        frozen.is_some_and(|frozen| before < frozen && frozen < after),
        "{before}, then a freeze with {frozen:?}, then {after}"
    );
    Ok(Outcome::Ran)
}

async fn freeze_range(bench: Bench) -> Verdict {
    let name = bench.name();
    let long = "x".repeat(MAX_REASON_BYTES + 1);
    let second = Duration::from_secs(1);
    for (duration, reason) in [
        (Duration::ZERO, ""),
        (MAX_FREEZE + second, ""),
        (Duration::MAX, ""),
        (second, long.as_str()),
    ] {
        let operation =
            Operation::Freeze { name: name.clone(), duration, reason: reason.to_owned() };
        let reply = bench.operate(operation).await;
        let kind = reply.as_ref().err().map(|error| error.kind());
        ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "{duration:?} gave {reply:?}");
    }
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn inspect_shows(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let token = holder.take().await?.token;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut contender = bench.contender(&name);
        contender.queue().await?;
        waiting.push(contender.id().short());
    }
    for client in bench.clients() {
        let snapshot = client.engine.inspect(&name).await?;
        let Snapshot { holders, holder_count: 1, queue, queue_length: 3, .. } = &snapshot else {
            return Err(Failure::new(format_args!("one holds and three wait: {snapshot:?}")));
        };
        ensure_matches!(holders.as_slice(), [HolderView { state: GrantState::Held, .. }]);
        let shown = (holders[0].summary.lease_id, holders[0].summary.token);
        ensure!(shown == (holder.id().short(), Some(token)), "the holder is {shown:?}");
        let queue: Vec<_> = queue.iter().map(|waiter| waiter.lease_id).collect();
        ensure!(queue == waiting || !bench.capabilities().fair, "the queue is {queue:?}");
    }
    Ok(Outcome::Ran)
}

async fn list_pages(bench: Bench) -> Verdict {
    let mut names: Vec<LockName> = (0..23).map(|n| bench.named(&format!("list/{n:02}"))).collect();
    names.push(bench.named("list/%"));
    names.push(bench.named("list/_"));
    names.sort_unstable();
    for name in &names {
        bench.contender(name).take().await?;
    }
    bench.contender(&bench.named("lisu")).take().await?;
    let mut request = ListRequest { prefix: bench.named("list/").into(), after: None, limit: 10 };
    let mut seen = Vec::new();
    for _ in 0..names.len() {
        let page = bench.clients()[0].engine.list(&request).await?;
        ensure!(page.names.len() <= 10, "a page of 10 has {}", page.names.len());
        seen.extend(page.names.into_iter().map(|snapshot| snapshot.name));
        match page.after {
            Some(after) => request.after = Some(after),
            None => break,
        }
    }
    ensure!(seen == names, "listed {seen:?}");
    Ok(Outcome::Ran)
}
