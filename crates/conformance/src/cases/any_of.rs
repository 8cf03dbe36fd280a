//! Any of several names: the library's layer over the engine as it is, on clients of its own.

use std::time::{Duration, Instant};

use holdline::LockOptions;
use holdline_core::LockName;

use super::election::{client, done};
use crate::bench::{Bench, SOON};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            P5,
            "of several names the one that becomes free is held, and no other queue is kept",
            [],
            alone
        ),
        case!(
            P5,
            "an attempt for any of several names that is dropped leaves nothing",
            [],
            dropped
        ),
    ]
}

/// Waits until the names have so many waiters together, where the engine has a queue.
async fn waiters(bench: &Bench, names: &[LockName], count: usize) -> Result<(), Failure> {
    let began = Instant::now();
    while bench.capabilities().queue {
        let mut found = 0;
        for name in names {
            found += bench.inspect(name).await?.queue_length;
        }
        if found == count {
            return Ok(());
        }
        ensure!(began.elapsed() < SOON, "{found} waiters of all names, not {count}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The names are free at once: nothing was left behind on any of them.
async fn are_free(bench: &Bench, names: &[LockName]) -> Result<(), Failure> {
    for name in names {
        let next = bench.contender(name);
        next.take().await?;
        next.let_go().await?;
    }
    Ok(())
}

async fn alone(bench: Bench) -> Verdict {
    let names = [bench.name(), bench.name(), bench.name()];
    let holders = names.each_ref().map(|name| bench.contender(name));
    for holder in &holders {
        holder.take().await?;
    }
    let one = client(&bench).await?;
    let options = LockOptions::default().with_lease_duration(bench.long_lease());
    let any = one.any_of_with(&names, &options)?;
    let refused = any.try_lock().await;
    ensure!(refused.as_ref().is_err_and(holdline::LockError::is_contended), "{refused:?}");
    let waiting = tokio::spawn(async move { any.lock().await });
    waiters(&bench, &names, 3).await?;
    holders[1].let_go().await?;
    let guard = done(&bench, waiting).await??;
    ensure!(*guard.name() == names[1], "it holds {}, which nobody released", guard.name());
    waiters(&bench, &names, 0).await?;
    bench.contender(&names[1]).is_refused().await?;
    holders[0].let_go().await?;
    holders[2].let_go().await?;
    are_free(&bench, &[names[0].clone(), names[2].clone()]).await?;
    ensure!(guard.release().await.is_released(), "the store does not confirm");
    are_free(&bench, &names).await?;
    Ok(Outcome::Ran)
}

async fn dropped(bench: Bench) -> Verdict {
    let names = [bench.name(), bench.name()];
    let holders = names.each_ref().map(|name| bench.contender(name));
    for holder in &holders {
        holder.take().await?;
    }
    let one = client(&bench).await?;
    let options = LockOptions::default().with_lease_duration(bench.long_lease());
    let any = one.any_of_with(&names, &options)?;
    let waiting = tokio::spawn(async move { any.lock().await.map(drop) });
    waiters(&bench, &names, 2).await?;
    waiting.abort();
    waiters(&bench, &names, 0).await?;
    let report = one.shutdown(SOON).await;
    ensure!(report.is_clean(), "{report:?}");
    for holder in &holders {
        holder.let_go().await?;
    }
    are_free(&bench, &names).await?;
    Ok(Outcome::Ran)
}
