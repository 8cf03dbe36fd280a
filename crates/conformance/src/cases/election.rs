//! Elections over the engine as it is: the library's layer, on clients of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::election::Leader;
use holdline::{Client, ClientOptions, Election, LockOptions};
use holdline_core::{Clock, LockName};

use crate::bench::{Bench, SOON};
use crate::case::{Case, case};
use crate::factory::Time;
use crate::failure::{Failure, Outcome, Verdict, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            P2,
            "observers see each leader of an election, its value, and growing terms",
            [Fencing, Metadata],
            leaders
        ),
        case!(
            P6,
            "a leader whose lease ends steps down before the next one leads",
            [Fencing, Metadata],
            steps_down
        ),
    ]
}

/// Opens a client of its own, whose leases count by the clock of the suite.
pub(super) async fn client(bench: &Bench) -> Result<Client, Failure> {
    let engine = bench.factory().open().await?;
    let clock: Arc<dyn Clock> = match bench.time() {
        Time::Manual(clock) => clock.clone(),
        Time::Real(clock) => clock.clone(),
    };
    Ok(Client::with_options(engine, ClientOptions::default().with_clock(clock))?)
}

fn election(bench: &Bench, client: &Client, name: &LockName) -> Result<Election, Failure> {
    let options = LockOptions::default().with_lease_duration(bench.long_lease());
    Ok(client.election_with(name.as_str(), &options)?)
}

async fn leader(election: &Election) -> Result<Leader, Failure> {
    let leader = election.leader().await?;
    leader.ok_or_else(|| Failure::new("nobody leads"))
}

/// Lets time pass until a task is done.
pub(super) async fn done<T>(bench: &Bench, task: tokio::task::JoinHandle<T>) -> Result<T, Failure> {
    let began = Instant::now();
    while !task.is_finished() {
        ensure!(began.elapsed() < SOON * 3, "the candidate waits for ever");
        bench.pass(Duration::from_millis(20)).await;
        tokio::task::yield_now().await;
    }
    task.await.map_err(Failure::new)
}

async fn leaders(bench: Bench) -> Verdict {
    let name = bench.name();
    let one = client(&bench).await?;
    let two = client(&bench).await?;
    let watcher = client(&bench).await?;
    let watcher = election(&bench, &watcher, &name)?;
    ensure!(watcher.leader().await?.is_none(), "somebody leads an election without candidates");
    let first = election(&bench, &one, &name)?.campaign("one").await?;
    let seen = leader(&watcher).await?;
    ensure!((seen.term(), seen.value()) == (first.term(), "one"), "{seen:?}");
    for value in ["a", "ö \"\\ \u{1f512}", ""] {
        first.proclaim(value).await?;
        let seen = leader(&watcher).await?;
        ensure!((seen.term(), seen.value()) == (first.term(), value), "{value:?}: {seen:?}");
    }
    let second = election(&bench, &two, &name)?;
    let second = tokio::spawn(async move { second.campaign("two").await });
    if bench.capabilities().queue {
        let began = Instant::now();
        while bench.inspect(&name).await?.queue_length == 0 {
            ensure!(began.elapsed() < SOON, "the candidate does not queue");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let term = first.term();
    ensure!(first.resign().await.is_released(), "the store does not confirm");
    let second = done(&bench, second).await??;
    ensure!(second.term() > term, "{} follows {term}", second.term());
    let seen = leader(&watcher).await?;
    ensure!((seen.term(), seen.value()) == (second.term(), "two"), "{seen:?}");
    ensure!(second.resign().await.is_released(), "the store does not confirm");
    ensure!(watcher.leader().await?.is_none(), "who resigned still leads");
    Ok(Outcome::Ran)
}

async fn steps_down(bench: Bench) -> Verdict {
    let name = bench.name();
    let one = client(&bench).await?;
    let two = client(&bench).await?;
    let options =
        LockOptions::default().with_lease_duration(bench.lease()).with_keep(holdline::Keep::Fixed);
    let first = one.election_with(name.as_str(), &options)?.campaign("one").await?;
    let held = first.held();
    let lost = tokio::spawn(async move { held.lost().await });
    let second = election(&bench, &two, &name)?;
    let second = tokio::spawn(async move { second.campaign("two").await });
    let second = done(&bench, second).await??;
    ensure!(!first.is_valid(), "two lead at once");
    ensure!(second.term() > first.term(), "{} follows {}", second.term(), first.term());
    done(&bench, lost).await?;
    let _ = second.resign().await;
    Ok(Outcome::Ran)
}
