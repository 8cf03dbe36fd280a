//! P10: foreign data is reported, is never overwritten, and never causes a crash.

use std::time::{Duration, Instant};

use holdline_core::{Certainty, ErrorKind, LockError, RenewReply};

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::factory::{Disturbance, Disturbed};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    let mut restart = case!(P1, "a restart of the store keeps what was granted", [], restart_keeps);
    restart.alone = true;
    vec![
        case!(P10, "what is not ours under a name is reported and left as it is", [], left_alone),
        restart,
    ]
}

/// Does it, or returns why that cannot be.
async fn disturb(bench: &Bench, what: Disturbance) -> Result<Option<&'static str>, Failure> {
    match bench.disturb(what).await {
        Disturbed::Done => Ok(None),
        Disturbed::Impossible(why) => Ok(Some(why)),
        Disturbed::Failed(message) => Err(Failure::new(message)),
    }
}

fn is_foreign<T: std::fmt::Debug>(reply: &Result<T, LockError>, verb: &str) -> Result<(), Failure> {
    let good = reply.as_ref().is_err_and(|error| {
        matches!(error.kind(), ErrorKind::Foreign { .. })
            && error.certainty() == Certainty::NotApplied
    });
    ensure!(good, "{verb}: expected foreign and not applied, got {reply:?}");
    Ok(())
}

async fn left_alone(bench: Bench) -> Verdict {
    let name = bench.name();
    if let Some(why) = disturb(&bench, Disturbance::PlantForeign(name.clone())).await? {
        return Ok(Outcome::Impossible(why));
    }
    let contender = bench.contender(&name);
    is_foreign(&contender.ask(false).await, "acquire")?;
    is_foreign(&contender.keep().await, "renew")?;
    is_foreign(&contender.release().await, "release")?;
    is_foreign(&contender.give_up().await, "give up")?;
    is_foreign(&bench.inspect(&name).await, "inspect")?;
    let unchecked = disturb(&bench, Disturbance::CheckForeign(name)).await?;
    ensure!(unchecked.is_none(), "it was planted, but cannot be checked: {unchecked:?}");
    Ok(Outcome::Ran)
}

/// How often a restart is tried that takes longer than the lease, on a machine with much to do.
const RESTARTS: usize = 3;

async fn restart_keeps(bench: Bench) -> Verdict {
    for _ in 0..RESTARTS {
        let name = bench.name();
        let holder = bench.contender(&name);
        let began = Instant::now();
        let token = holder.take().await?.token;
        if let Some(why) = disturb(&bench, Disturbance::Restart).await? {
            return Ok(Outcome::Impossible(why));
        }
        let refused = bench.contender(&name).is_refused().await;
        let lease = holder.request.hold.duration().unwrap_or(Duration::MAX);
        if began.elapsed() >= lease {
            // The lease may be over: nothing is proven.
            continue;
        }
        refused?;
        ensure_matches!(holder.keep().await?, RenewReply::Renewed { .. });
        holder.let_go().await?;
        let next = bench.contender(&name).take().await?.token;
        let in_order = next > token || !bench.capabilities().fencing;
        ensure!(in_order, "{token} came before the restart and {next} after it");
        return Ok(Outcome::Ran);
    }
    Err(Failure::new("each restart took longer than the lease"))
}
