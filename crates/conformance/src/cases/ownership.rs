//! P4: only the lease id that was granted renews or releases.

use holdline_core::{Hold, Purpose, ReleaseReply, RenewReply};

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P4, "another's lease id releases nothing, which is reported", [], strange_release),
        case!(P4, "another's lease id renews nothing", [], strange_renewal),
        case!(P4, "a lease id that ran out frees nothing of its successor", [], late_release),
        case!(P4, "a second release reports that nothing was held", [], released_twice),
        case!(P4, "any client renews and releases with the right lease id", [], other_client),
        case!(P4, "one name's lease id means nothing on another", [], other_name),
        case!(P4, "a queued lease id releases its place only", [Queue], queued_release),
    ]
}

async fn strange_release(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    for client in 0..bench.clients().len() {
        let stranger = bench.contender_on(client, &name);
        ensure_matches!(stranger.release().await?, ReleaseReply::NotHeld { revoked: None });
        ensure_matches!(stranger.anew().give_up().await?, ReleaseReply::NotHeld { revoked: None });
    }
    bench.contender(&name).is_refused().await?;
    holder.let_go().await?;
    Ok(Outcome::Ran)
}

async fn strange_renewal(bench: Bench) -> Verdict {
    let name = bench.name();
    bench.contender(&name).for_lease(bench.lease()).take().await?;
    let stranger = bench.contender(&name);
    ensure_matches!(stranger.keep().await?, RenewReply::Unknown);
    ensure_matches!(stranger.beat().await?, RenewReply::Unknown);
    bench.outlive(bench.lease()).await;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn late_release(bench: Bench) -> Verdict {
    let name = bench.name();
    let late = bench.contender(&name).for_lease(bench.lease());
    late.take().await?;
    bench.outlive(bench.lease()).await;
    let successor = bench.contender(&name);
    successor.take().await?;
    ensure_matches!(late.keep().await?, RenewReply::Unknown);
    ensure_matches!(late.release().await?, ReleaseReply::NotHeld { revoked: None });
    bench.contender(&name).is_refused().await?;
    successor.let_go().await?;
    Ok(Outcome::Ran)
}

async fn released_twice(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    holder.let_go().await?;
    ensure_matches!(holder.release().await?, ReleaseReply::NotHeld { revoked: None });
    let successor = bench.contender(&name);
    successor.take().await?;
    ensure_matches!(holder.release().await?, ReleaseReply::NotHeld { revoked: None });
    successor.let_go().await?;
    Ok(Outcome::Ran)
}

async fn other_client(bench: Bench) -> Verdict {
    let name = bench.name();
    // A detached lease is tied to no client where there are such leases.
    let hold = if bench.capabilities().detach {
        Hold::Detached(bench.long_lease())
    } else {
        Hold::Leased(bench.long_lease())
    };
    let mut holder = bench.contender_on(0, &name).with_hold(hold);
    let id = holder.id();
    holder.take().await?;
    holder = bench.contender_on(1, &name).with_hold(hold);
    holder.request.lease_id = id;
    ensure_matches!(holder.renew(Purpose::Keep(hold)).await?, RenewReply::Renewed { .. });
    holder.let_go().await?;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn other_name(bench: Bench) -> Verdict {
    let name = bench.name();
    let other = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let mut astray = holder.clone();
    astray.request.name = other;
    ensure_matches!(astray.keep().await?, RenewReply::Unknown);
    ensure_matches!(astray.release().await?, ReleaseReply::NotHeld { revoked: None });
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn queued_release(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut leaving = bench.contender(&name);
    let mut staying = bench.contender(&name);
    holder.take().await?;
    leaving.queue().await?;
    staying.queue().await?;
    ensure_matches!(leaving.release().await?, ReleaseReply::Withdrawn);
    let snapshot = bench.inspect(&name).await?;
    let queue: Vec<_> = snapshot.queue.iter().map(|waiter| waiter.lease_id).collect();
    ensure!(queue == [staying.id().short()], "the queue is {queue:?}");
    bench.contender(&name).is_refused().await?;
    holder.let_go().await?;
    staying.is_handed().await?;
    Ok(Outcome::Ran)
}
