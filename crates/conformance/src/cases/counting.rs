//! Counting semaphores, where an engine has them: equal to the rules in core.

use std::time::Duration;

use holdline_core::counting::MAX_PERMITS;
use holdline_core::{Certainty, CountingCommand, CountingReply, ErrorKind, LockError, LockName};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P9, "a counting semaphore answers as the rules do", [Counting], answers),
        case!(P1, "permits without leases are never over the total", [Counting], never_over),
        case!(P7, "a release ends the wait for permits", [Counting], wakes),
    ]
}

async fn ask(
    bench: &Bench,
    client: usize,
    name: &LockName,
    command: CountingCommand,
) -> Result<CountingReply, LockError> {
    let client = &bench.clients()[client % bench.clients().len()];
    client.engine.counting(name, command).await
}

async fn answers(bench: Bench) -> Verdict {
    use CountingCommand::{Acquire, Available, Drain, Release, Set};
    let name = bench.name();
    let mut stored = None;
    let commands = [
        Available,
        Acquire(1),
        Drain,
        Set(3),
        Set(7),
        Acquire(2),
        Acquire(2),
        Available,
        Acquire(1),
        Set(9),
        Release(4),
        Drain,
        Release(MAX_PERMITS),
        Release(1),
        Acquire(MAX_PERMITS),
        Available,
    ];
    for (client, command) in commands.into_iter().enumerate() {
        let reply = ask(&bench, client, &name, command).await;
        match command.apply(stored) {
            Some(wanted) => {
                ensure!(
                    reply.as_ref().ok() == Some(&wanted),
                    "{command:?} of {stored:?}: {reply:?}"
                );
                stored =
                    stored.map(|_| wanted.after).or(wanted.is_changed().then_some(wanted.after));
            }
            None => {
                let refused = reply.as_ref().err().is_some_and(|error| {
                    matches!(error.kind(), ErrorKind::Invalid { .. })
                        && error.certainty() == Certainty::NotApplied
                });
                ensure!(refused, "{command:?} of {stored:?}: {reply:?}");
            }
        }
    }
    Ok(Outcome::Ran)
}

async fn never_over(bench: Bench) -> Verdict {
    let name = bench.name();
    ask(&bench, 0, &name, CountingCommand::Set(5)).await?;
    let mut taking = JoinSet::new();
    for client in 0..40 {
        let bench = bench.clone();
        let name = name.clone();
        taking.spawn(async move { ask(&bench, client, &name, CountingCommand::Acquire(1)).await });
    }
    let mut taken = Vec::new();
    while let Some(reply) = taking.join_next().await {
        let reply = reply.map_err(Failure::new)??;
        taken.extend(reply.is_changed().then_some(reply.after));
    }
    taken.sort_unstable();
    ensure!(taken == [0, 1, 2, 3, 4], "not five permits, each once: {taken:?}");
    Ok(Outcome::Ran)
}

/// The answer comes because of the release: the engine was allowed to wait for longer than the case
/// may take to fail.
async fn wakes(bench: Bench) -> Verdict {
    let name = bench.name();
    ask(&bench, 0, &name, CountingCommand::Set(1)).await?;
    ask(&bench, 0, &name, CountingCommand::Acquire(1)).await?;
    let await_one = CountingCommand::Await { permits: 1, at_most: Duration::from_secs(10) };
    let waiting = {
        let bench = bench.clone();
        let name = name.clone();
        tokio::spawn(async move { ask(&bench, 1, &name, await_one).await })
    };
    ask(&bench, 2, &name, CountingCommand::Release(1)).await?;
    waiting.await.map_err(Failure::new)??;
    let reply = ask(&bench, 1, &name, CountingCommand::Acquire(1)).await?;
    ensure!(reply == CountingReply { before: 1, after: 0 }, "{reply:?}");
    Ok(Outcome::Ran)
}
