//! P6: the loss of a lease is reported, and a lost lease is never renewed.

use std::time::Duration;

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, Certainty, ErrorKind, GrantState, Hint, LostReason, Operation, OperationReply,
    ReleaseReply, RenewReply, Snapshot,
};

use super::hang::hint;
use crate::bench::{Bench, BenchContender};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P6, "a renewal that comes too late renews nothing", [], late_renewal),
        case!(P6, "a lease that ran out stays lost though the name is free", [], stays_lost),
        case!(
            P6,
            "a polite revoke refuses renewals and keeps the rest of the lease",
            [Revoke, PoliteRevoke],
            polite
        ),
        case!(P6, "a watch of the holder reports a revoke", [Revoke, PoliteRevoke], by_watch),
        case!(P6, "a watch reports an earlier revoke", [Revoke, PoliteRevoke], reported_late),
        case!(P6, "a forced revoke frees at once and its holder gets the reason", [Revoke], forced),
        case!(
            P6,
            "a repeated request of a revoked id gets the reason",
            [Revoke],
            revoked_asks_again
        ),
        case!(P6, "a revoke of another token changes nothing", [Revoke], other_token),
        case!(
            P6,
            "a revoked hand-off is not renewed",
            [Revoke, PoliteRevoke, Queue, Message],
            revoked_hand_off
        ),
        case!(P6, "a hand-off that ran out is reported", [Queue, Message], hand_off_ran_out),
        case!(P6, "an id whose grant is over is not granted anew unseen", [], not_anew),
        case!(P6, "an id that left the queue is not queued anew unseen", [Queue], not_queued_anew),
    ]
}

const WHY: &str = "the operator's words";

async fn revoke(
    bench: &Bench,
    holder: &BenchContender,
    now: bool,
) -> Result<OperationReply, Failure> {
    let name = holder.request.name.clone();
    let holders = bench.inspect(&name).await?.holders;
    let token = holders.first().and_then(|one| one.summary.token);
    let token = token.ok_or_else(|| Failure::new("a held name shows no token"))?;
    Ok(bench.operate(Operation::Revoke { name, token, reason: WHY.into(), now }).await?)
}

async fn late_renewal(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    bench.outlive(bench.lease()).await;
    ensure_matches!(holder.keep().await?, RenewReply::Unknown);
    bench.contender(&name).take().await?;
    ensure_matches!(holder.keep().await?, RenewReply::Unknown);
    Ok(Outcome::Ran)
}

async fn stays_lost(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    bench.outlive(bench.lease()).await;
    for _ in 0..3 {
        ensure_matches!(holder.keep().await?, RenewReply::Unknown);
    }
    let snapshot = bench.inspect(&name).await?;
    ensure!(!snapshot.is_held(), "a late renewal brought it back: {snapshot:?}");
    Ok(Outcome::Ran)
}

async fn polite(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    ensure_matches!(
        revoke(&bench, &holder, false).await?,
        OperationReply::Notified { left: Some(_) }
    );
    match holder.keep().await? {
        RenewReply::Revoked { reason, left: Some(left) } => {
            ensure!(reason == WHY && !left.is_zero(), "the reason is {reason:?}, {left:?} left");
        }
        other => return Err(Failure::new(format_args!("expected revoked, got {other:?}"))),
    }
    let state = bench.inspect(&name).await?.holders.first().map(|one| one.state.clone());
    ensure!(state == Some(GrantState::Revoked(WHY.into())), "shown as {state:?}");
    bench.contender(&name).is_refused().await?;
    ensure_matches!(holder.release().await?, ReleaseReply::Released { .. });
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn by_watch(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let mut watch = holder.engine().watch(&name, holder.id());
    revoke(&bench, &holder, false).await?;
    hint(&mut watch, Hint::CheckLease).await?;
    Ok(Outcome::Ran)
}

async fn reported_late(bench: Bench) -> Verdict {
    for now in [false, true] {
        let name = bench.name();
        let holder = bench.contender_on(0, &name);
        holder.take().await?;
        // Hints for other lease ids of this client come meanwhile; these must not be lost.
        let other = bench.name();
        bench.contender_on(0, &other).take().await?;
        let _subscribed = holder.engine().watch(&other, bench.contender_on(0, &other).id());
        revoke(&bench, &holder, now).await?;
        let mut watch = holder.engine().watch(&name, holder.id());
        hint(&mut watch, Hint::CheckLease).await?;
    }
    Ok(Outcome::Ran)
}

async fn forced(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    ensure_matches!(revoke(&bench, &holder, true).await?, OperationReply::Done);
    bench.contender(&name).take().await?;
    match holder.keep().await? {
        RenewReply::Revoked { reason, left } => {
            ensure!(reason == WHY && left == Some(Duration::ZERO), "{reason:?}, {left:?} left");
        }
        other => return Err(Failure::new(format_args!("expected revoked, got {other:?}"))),
    }
    match holder.release().await? {
        ReleaseReply::NotHeld { revoked } => {
            ensure!(revoked.as_deref() == Some(WHY), "the release returned {revoked:?}");
        }
        other => return Err(Failure::new(format_args!("expected not held, got {other:?}"))),
    }
    Ok(Outcome::Ran)
}

async fn revoked_asks_again(bench: Bench) -> Verdict {
    let holder = bench.contender(&bench.name());
    holder.take().await?;
    revoke(&bench, &holder, true).await?;
    let reply = holder.ask(false).await;
    let wanted = ErrorKind::Lost { reason: LostReason::Revoked(WHY.into()) };
    let good = reply
        .as_ref()
        .is_err_and(|error| *error.kind() == wanted && error.certainty() == Certainty::NotApplied);
    ensure!(good, "asked again after a revoke: {reply:?}");
    holder.anew().take().await?;
    Ok(Outcome::Ran)
}

async fn other_token(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let token = holder.take().await?.token;
    for token in [token.next().map_err(Failure::new)?, holdline_core::FencingToken::MAX] {
        let operation =
            Operation::Revoke { name: name.clone(), token, reason: WHY.into(), now: true };
        ensure_matches!(bench.operate(operation).await?, OperationReply::NothingThere);
    }
    ensure_matches!(holder.keep().await?, RenewReply::Renewed { .. });
    Ok(Outcome::Ran)
}

async fn revoked_hand_off(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut first = bench.contender(&name);
    let mut second = bench.contender(&name);
    holder.take().await?;
    first.queue().await?;
    second.queue().await?;
    holder.let_go().await?;
    first.is_handed().await?;
    ensure_matches!(revoke(&bench, &first, false).await?, OperationReply::Notified { .. });
    ensure_matches!(first.keep().await?, RenewReply::Revoked { .. });
    ensure_matches!(first.release().await?, ReleaseReply::Released { .. });
    second.is_handed().await?;
    ensure_matches!(second.ask(true).await?, AcquireReply::Granted { .. });
    Ok(Outcome::Ran)
}

async fn hand_off_ran_out(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut late = bench.contender(&name).in_a_hurry();
    holder.take().await?;
    late.queue().await?;
    holder.let_go().await?;
    late.is_handed().await?;
    bench.outlive(MIN_HAND_OFF_LEASE).await;
    ensure_matches!(late.beat().await?, RenewReply::Unknown);
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn not_anew(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    bench.outlive(bench.lease()).await;
    holder.ask_as_known();
    ensure_matches!(holder.ask(false).await?, AcquireReply::Unknown);
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot == Snapshot::free(name), "asking again brought it back: {snapshot:?}");
    Ok(Outcome::Ran)
}

pub(super) async fn not_queued_anew(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut silent = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    silent.queue().await?;
    bench.outlive_with(bench.silence(bench.lease()), &[]).await?;
    ensure_matches!(silent.ask(true).await?, AcquireReply::Unknown);
    let length = bench.inspect(&name).await?.queue_length;
    ensure!(length == 0, "asking again queued it anew: {length} wait");
    Ok(Outcome::Ran)
}
