//! Count-down latches, where an engine has them: equal to the rules in core.

use holdline_core::{LatchCommand, LatchReply, LockName};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P9, "a latch answers as the rules do", [Latch], answers),
        case!(P9, "of many that count down at once each counts once", [Latch], counts_once),
        case!(P9, "a lock and a latch of one name know nothing of each other", [Latch], apart),
    ]
}

async fn ask(
    bench: &Bench,
    client: usize,
    name: &LockName,
    command: LatchCommand,
) -> Result<LatchReply, Failure> {
    let client = &bench.clients()[client % bench.clients().len()];
    Ok(client.engine.latch(name, command).await?)
}

async fn answers(bench: Bench) -> Verdict {
    use LatchCommand::{Count, CountDown, Set};
    let name = bench.name();
    let mut count = 0;
    let commands = [
        Count,
        CountDown(1),
        Set(3),
        Set(7),
        Count,
        CountDown(1),
        CountDown(5),
        Count,
        Set(1_000_000_000),
        CountDown(999_999_999),
        CountDown(1),
        Count,
    ];
    for (client, command) in commands.into_iter().enumerate() {
        let reply = ask(&bench, client, &name, command).await?;
        let wanted = command.apply(count);
        ensure!(reply == wanted, "{command:?} of {count}: {reply:?}");
        count = wanted.count;
    }
    Ok(Outcome::Ran)
}

async fn counts_once(bench: Bench) -> Verdict {
    let name = bench.name();
    ask(&bench, 0, &name, LatchCommand::Set(40)).await?;
    let mut counting = JoinSet::new();
    for client in 0..40 {
        let bench = bench.clone();
        let name = name.clone();
        counting.spawn(async move { ask(&bench, client, &name, LatchCommand::CountDown(1)).await });
    }
    let mut seen = Vec::new();
    while let Some(reply) = counting.join_next().await {
        seen.push(reply.map_err(Failure::new)??.count);
    }
    seen.sort_unstable();
    ensure!(seen.iter().copied().eq(0..40), "not each count was seen once: {seen:?}");
    Ok(Outcome::Ran)
}

async fn apart(bench: Bench) -> Verdict {
    let name = bench.name();
    ask(&bench, 0, &name, LatchCommand::Set(2)).await?;
    let holder = bench.contender(&name);
    holder.take().await?;
    let reply = ask(&bench, 1, &name, LatchCommand::CountDown(1)).await?;
    ensure!(reply.count == 1, "the count is {}", reply.count);
    holder.let_go().await?;
    let snapshot = bench.inspect(&name).await?;
    ensure!(!snapshot.is_held(), "the latch is shown as a lock: {snapshot:?}");
    let reply = ask(&bench, 2, &name, LatchCommand::CountDown(1)).await?;
    ensure!(reply == LatchReply { count: 0, changed: true }, "{reply:?}");
    Ok(Outcome::Ran)
}
