//! P3: a dead or silent client holds nothing for long.

use std::time::{Duration, Instant};

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{AcquireReply, ClientId, Hold, Mode, RenewReply};

use crate::asking::Random;
use crate::bench::{Bench, SOON};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P3, "a lease that is not renewed frees the name", [], lease_ends),
        case!(P3, "a shared lease that is not renewed frees the name", [Shared], shared_ends),
        case!(P3, "permits that are not renewed come back", [Permits], permits_come_back),
        case!(P3, "a detached lease ends by its own time", [Detach], detached_ends),
        case!(P3, "a lease turns detached and back by a renewal", [Detach], turns_detached),
        case!(P3, "a renewal never shortens a lease", [], never_shortened),
        case!(P3, "a renewal may make a lease longer", [], lengthened),
        case!(P3, "a silent contender leaves the queue", [Queue], silent_leaves),
        case!(
            P3,
            "a hand-off that nobody extends goes to the next contender",
            [Queue, Message],
            unextended_goes_on
        ),
        case!(P3, "a live grant ends when its last descriptor is closed", [Live], anchor_closed),
        case!(P3, "nothing is left of a name that is free", [], nothing_left),
    ]
}

async fn ends(bench: &Bench, mode: Mode, hold: Hold, lease: Duration) -> Verdict {
    let name = bench.name();
    bench.contender(&name).with_mode(mode).with_hold(hold).take().await?;
    bench.contender(&name).is_refused().await?;
    bench.outlive(lease).await;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn lease_ends(bench: Bench) -> Verdict {
    ends(&bench, Mode::Exclusive, Hold::Leased(bench.lease()), bench.lease()).await
}

async fn shared_ends(bench: Bench) -> Verdict {
    ends(&bench, Mode::Shared, Hold::Leased(bench.lease()), bench.lease()).await
}

async fn detached_ends(bench: Bench) -> Verdict {
    ends(&bench, Mode::Exclusive, Hold::Detached(bench.lease()), bench.lease()).await
}

async fn permits_come_back(bench: Bench) -> Verdict {
    let name = bench.name();
    let taker = |count| bench.contender(&name).with_mode(Mode::Permits { count, of: 2 });
    taker(1).for_lease(bench.lease()).take().await?;
    taker(1).take().await?;
    taker(1).is_refused().await?;
    bench.outlive(bench.lease()).await;
    taker(1).take().await?;
    taker(1).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn turns_detached(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    for hold in [Hold::Detached(bench.long_lease()), Hold::Leased(bench.long_lease())] {
        let reply = holder.renew(holdline_core::Purpose::Keep(hold)).await?;
        ensure_matches!(reply, RenewReply::Renewed { .. });
        let detached = bench.inspect(&name).await?.holders.first().map(|one| one.detached);
        let wanted = matches!(hold, Hold::Detached(_));
        ensure!(detached == Some(wanted), "renewed as {hold:?}, shown as detached: {detached:?}");
    }
    Ok(Outcome::Ran)
}

async fn never_shortened(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let reply = holder.renew(holdline_core::Purpose::Keep(Hold::Leased(bench.lease()))).await?;
    ensure_matches!(reply, RenewReply::Renewed { .. });
    bench.outlive(bench.lease()).await;
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn lengthened(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).for_lease(bench.lease());
    holder.take().await?;
    let longer = Hold::Leased(bench.long_lease());
    let reply = holder.renew(holdline_core::Purpose::Keep(longer)).await?;
    ensure_matches!(reply, RenewReply::Renewed { .. });
    bench.outlive(bench.lease()).await;
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn silent_leaves(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let lease = bench.lease();
    let silent = bench.contender(&name);
    let mut beating = bench.contender(&name);
    let mut silent = silent.for_lease(lease);
    holder.take().await?;
    silent.queue().await?;
    beating.queue().await?;
    bench.outlive_with(bench.silence(lease), &[&beating]).await?;
    ensure_matches!(silent.beat().await?, RenewReply::Unknown);
    ensure_matches!(beating.beat().await?, RenewReply::Queued { position: Some(0) | None, .. });
    Ok(Outcome::Ran)
}

async fn unextended_goes_on(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender_on(0, &name);
    let mut dead = bench.contender_on(1, &name).in_a_hurry();
    let mut next = bench.contender_on(2, &name);
    holder.take().await?;
    dead.queue().await?;
    next.queue().await?;
    holder.let_go().await?;
    ensure_matches!(next.beat().await?, RenewReply::Queued { .. });
    bench.outlive_with(MIN_HAND_OFF_LEASE, &[&next]).await?;
    next.is_handed().await?;
    next.take().await?;
    ensure_matches!(dead.beat().await?, RenewReply::Unknown);
    Ok(Outcome::Ran)
}

async fn anchor_closed(bench: Bench) -> Verdict {
    let name = bench.name();
    // The engine that granted it may keep a copy, to answer with when it is asked again.
    let engine = bench.factory().open().await?;
    let mut holder = bench.contender(&name).with_hold(Hold::Live);
    holder.request.client = ClientId::random(&mut Random);
    let reply = engine.try_acquire(&holder.request).await?;
    ensure_matches!(&reply, AcquireReply::Granted { anchor: Some(_), .. });
    drop(engine);
    bench.contender(&name).is_refused().await?;
    drop(reply);
    let started = Instant::now();
    loop {
        match bench.contender(&name).ask(false).await? {
            AcquireReply::Granted { .. } => return Ok(Outcome::Ran),
            _ if started.elapsed() < SOON => tokio::time::sleep(Duration::from_millis(5)).await,
            other => return Err(Failure::new(format_args!("closed, and still {other:?}"))),
        }
    }
}

async fn nothing_left(bench: Bench) -> Verdict {
    let name = bench.name();
    let free = holdline_core::Snapshot::free(name.clone());
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot == free, "never used: {snapshot:?}");
    let holder = bench.contender(&name);
    holder.take().await?;
    bench.contender(&name).is_refused().await?;
    holder.let_go().await?;
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot == free, "used and released: {snapshot:?}");
    Ok(Outcome::Ran)
}
