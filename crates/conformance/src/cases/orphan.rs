//! P5: an acquisition that did not return a guard leaves nothing behind.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use holdline_core::{AcquireReply, Certainty, ErrorKind, ReleaseReply, RenewReply, Snapshot};

use crate::bench::{Bench, BenchContender};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P5, "a refused request leaves nothing", [], refused_leaves_nothing),
        case!(
            P5,
            "an id that was given up is refused when its request comes late",
            [],
            undone_first
        ),
        case!(P5, "an id that was given up while held is refused afterwards", [], given_up_held),
        case!(P5, "giving up again and again changes nothing", [], given_up_twice),
        case!(P5, "a request that was dropped half-way can be given up", [], dropped_request),
        case!(P5, "giving up a place in the queue leaves nothing", [Queue], given_up_queued),
        case!(P5, "giving up a hand-off hands the name on", [Queue], given_up_handed),
        case!(
            P5,
            "a request that was dropped while it queues can be given up",
            [Queue],
            dropped_queued
        ),
    ]
}

async fn is_free(bench: &Bench, contender: &BenchContender) -> Result<(), Failure> {
    let name = &contender.request.name;
    let snapshot = bench.inspect(name).await?;
    ensure!(snapshot == Snapshot::free(name.clone()), "something is left: {snapshot:?}");
    Ok(())
}

/// Asks under an id that was given up; it must be refused, and stay without effect.
async fn is_dead(contender: &BenchContender) -> Result<(), Failure> {
    match contender.ask(contender.request.queue).await {
        Err(error)
            if *error.kind() == ErrorKind::Cancelled
                && error.certainty() == Certainty::NotApplied =>
        {
            Ok(())
        }
        other => Err(Failure::new(format_args!("given up, and asking gave {other:?}"))),
    }
}

async fn refused_leaves_nothing(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let refused = bench.contender(&name);
    refused.is_refused().await?;
    ensure_matches!(refused.beat().await?, RenewReply::Unknown);
    ensure_matches!(refused.release().await?, ReleaseReply::NotHeld { revoked: None });
    holder.let_go().await?;
    is_free(&bench, &holder).await?;
    Ok(Outcome::Ran)
}

async fn undone_first(bench: Bench) -> Verdict {
    let contender = bench.contender(&bench.name());
    ensure_matches!(contender.give_up().await?, ReleaseReply::NotHeld { revoked: None });
    is_dead(&contender).await?;
    is_free(&bench, &contender).await?;
    contender.anew().take().await?;
    Ok(Outcome::Ran)
}

async fn given_up_held(bench: Bench) -> Verdict {
    let contender = bench.contender(&bench.name());
    contender.take().await?;
    ensure_matches!(contender.give_up().await?, ReleaseReply::Released { .. });
    is_dead(&contender).await?;
    ensure_matches!(contender.keep().await?, RenewReply::Unknown);
    is_free(&bench, &contender).await?;
    contender.anew().take().await?;
    Ok(Outcome::Ran)
}

async fn given_up_twice(bench: Bench) -> Verdict {
    let contender = bench.contender(&bench.name());
    contender.take().await?;
    contender.give_up().await?;
    let successor = contender.anew();
    successor.take().await?;
    for _ in 0..3 {
        ensure_matches!(contender.give_up().await?, ReleaseReply::NotHeld { revoked: None });
    }
    bench.contender(&contender.request.name).is_refused().await?;
    successor.let_go().await?;
    Ok(Outcome::Ran)
}

/// Sends a request and drops its future after one look at it.
fn drop_half_way(contender: &BenchContender) {
    let request = contender.request.clone();
    let mut asking = pin!(contender.engine().try_acquire(&request));
    let _ = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

async fn dropped_request(bench: Bench) -> Verdict {
    for _ in 0..10 {
        let contender = bench.contender(&bench.name());
        drop_half_way(&contender);
        contender.give_up().await?;
        is_dead(&contender).await?;
        is_free(&bench, &contender).await?;
        contender.anew().take().await?;
    }
    Ok(Outcome::Ran)
}

async fn dropped_queued(bench: Bench) -> Verdict {
    for _ in 0..10 {
        let holder = bench.contender(&bench.name());
        holder.take().await?;
        let mut contender = bench.contender(&holder.request.name);
        contender.request.queue = true;
        drop_half_way(&contender);
        contender.give_up().await?;
        is_dead(&contender).await?;
        holder.let_go().await?;
        is_free(&bench, &holder).await?;
    }
    Ok(Outcome::Ran)
}

pub(super) async fn given_up_queued(bench: Bench) -> Verdict {
    let holder = bench.contender(&bench.name());
    holder.take().await?;
    let mut contender = bench.contender(&holder.request.name);
    contender.queue().await?;
    ensure_matches!(contender.give_up().await?, ReleaseReply::Withdrawn);
    is_dead(&contender).await?;
    holder.let_go().await?;
    is_free(&bench, &holder).await?;
    Ok(Outcome::Ran)
}

pub(super) async fn given_up_handed(bench: Bench) -> Verdict {
    let holder = bench.contender(&bench.name());
    holder.take().await?;
    let mut first = bench.contender(&holder.request.name);
    let mut second = bench.contender(&holder.request.name);
    first.queue().await?;
    second.queue().await?;
    holder.let_go().await?;
    first.is_handed().await?;
    ensure_matches!(first.give_up().await?, ReleaseReply::Released { .. });
    is_dead(&first).await?;
    second.is_handed().await?;
    ensure_matches!(second.ask(true).await?, AcquireReply::Granted { .. });
    Ok(Outcome::Ran)
}
