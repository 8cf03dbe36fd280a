//! A job once per slot, over the engine as it is: the library's layer, on clients of their own.

use std::time::{Duration, SystemTime};

use holdline::once::{Begun, OnceOptions, Slot};
use holdline::{Client, LockOptions, Once};
use holdline_core::{LockName, Moment};

use super::election::client;
use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure};

/// Longer than what a busy machine takes for a few commands, and shorter than any engine's longest
/// lease.
const SLOT: Duration = Duration::from_secs(8);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            P1,
            "a slot that is done is done for every client until it is over",
            [Detach, Metadata],
            done
        ),
        case!(
            P3,
            "a slot is free again after a failure and after its holder's lease",
            [Detach, Metadata],
            freed
        ),
    ]
}

/// Describes the job; a slot begins at `began`.
fn job(bench: &Bench, client: &Client, name: &LockName, began: Moment) -> Result<Once, Failure> {
    let time = bench.time().clone();
    let wall_clock = move || SystemTime::UNIX_EPOCH + SLOT * 1_000 + began.until(time.now());
    // What a client that dies leaves behind: nobody renews the lease.
    let lock = LockOptions::default()
        .with_wait(Duration::ZERO)
        .with_lease_duration(bench.lease().max(bench.capabilities().lease.min))
        .with_max_hold(bench.lease() / 2);
    let options = OnceOptions::default().with_lock(lock).with_wall_clock(wall_clock);
    Ok(client.once_with(name.as_str(), Slot::every(SLOT), options)?)
}

async fn is_done(job: &Once) -> Result<(), Failure> {
    match job.begin().await? {
        Begun::AlreadyRan(taken) => {
            let skew = taken.clock_skew();
            ensure!(skew.is_none(), "the clocks are one clock, and differ by {skew:?}");
            Ok(())
        }
        other => Err(Failure::new(format_args!("expected a slot that is done, got {other:?}"))),
    }
}

async fn done(bench: Bench) -> Verdict {
    let name = bench.name();
    let one = client(&bench).await?;
    let two = client(&bench).await?;
    let began = bench.time().now();
    let one = job(&bench, &one, &name, began)?;
    let two = job(&bench, &two, &name, began)?;
    let Begun::Run(run) = one.begin().await? else {
        return Err(Failure::new("a slot that nobody has is taken"));
    };
    let first = run.guard().fencing_token();
    run.finish().await?;
    is_done(&one).await?;
    is_done(&two).await?;
    bench.pass(SLOT / 2).await;
    is_done(&two).await?;
    bench.outlive(SLOT / 2).await;
    let Begun::Run(run) = two.begin().await? else {
        return Err(Failure::new("the next slot is taken"));
    };
    let second = run.guard().fencing_token();
    ensure!(!bench.capabilities().fencing || second > first, "{second} after {first}");
    run.finish().await?;
    is_done(&one).await?;
    Ok(Outcome::Ran)
}

async fn freed(bench: Bench) -> Verdict {
    let name = bench.name();
    let one = client(&bench).await?;
    let two = client(&bench).await?;
    let began = bench.time().now();
    let one = job(&bench, &one, &name, began)?;
    let two = job(&bench, &two, &name, began)?;
    let Begun::Run(fails) = one.begin().await? else {
        return Err(Failure::new("a slot that nobody has is taken"));
    };
    ensure!(matches!(two.begin().await?, Begun::RunningElsewhere(_)), "it runs elsewhere");
    fails.give_back().await;
    let Begun::Run(dies) = two.begin().await? else {
        return Err(Failure::new("a slot that was given back is taken"));
    };
    // As when the process dies: nothing is released.
    std::mem::forget(dies);
    // A renewal may have left before the limit of the hold.
    bench.outlive(bench.lease().max(bench.capabilities().lease.min) * 2).await;
    let Begun::Run(run) = one.begin().await? else {
        return Err(Failure::new("the slot of a holder whose lease is over is taken"));
    };
    run.finish().await?;
    is_done(&two).await?;
    Ok(Outcome::Ran)
}
