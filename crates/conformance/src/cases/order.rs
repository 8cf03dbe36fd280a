//! P8: grants follow the order in which the store queued the contenders, if the engine is `fair`.

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{AcquireReply, Mode, RenewReply};

use crate::bench::{Bench, BenchContender};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P8, "first queued, first granted, over all clients", [Queue, Fair], fifo),
        case!(P8, "a newcomer never passes a queue", [Queue, Fair], newcomer),
        case!(P8, "asking again keeps the place", [Queue, Fair], asking_again),
        case!(P8, "a waiting writer stops later readers", [Queue, Shared, Fair], no_starving),
        case!(
            P8,
            "readers at the head are admitted together, up to the next writer",
            [Queue, Shared, Fair],
            reader_batch
        ),
        case!(
            P8,
            "more readers than one batch are all admitted",
            [Queue, Shared, Fair, Message],
            reader_limit
        ),
        case!(
            P8,
            "a large request at the head stops smaller ones",
            [Queue, Permits, Fair],
            large_first
        ),
        case!(P8, "permits are handed to as many as fit", [Queue, Permits, Fair], permits_fit),
        case!(P8, "one whose hand-off ran out goes to the end", [Queue, Fair, Message], to_the_end),
    ]
}

/// Queues contenders of these modes behind a holder.
async fn queue_up(
    bench: &Bench,
    modes: impl IntoIterator<Item = Mode>,
) -> Result<(BenchContender, Vec<BenchContender>), Failure> {
    let name = bench.name();
    let modes: Vec<Mode> = modes.into_iter().collect();
    let mode = match modes.first().and_then(|mode| mode.permits_of()) {
        Some(of) => Mode::Permits { count: of, of },
        None => Mode::Exclusive,
    };
    let holder = bench.contender(&name).with_mode(mode);
    holder.take().await?;
    let mut waiting = Vec::new();
    for mode in modes {
        let mut contender = bench.contender(&name).with_mode(mode);
        let position = contender.queue().await?;
        let place = waiting.len();
        ensure!(position.is_none_or(|at| at == place), "{position:?} in place of {place}");
        waiting.push(contender);
    }
    Ok((holder, waiting))
}

async fn still_waits(contender: &BenchContender) -> Result<(), Failure> {
    ensure_matches!(contender.beat().await?, RenewReply::Queued { .. });
    Ok(())
}

pub(super) async fn fifo(bench: Bench) -> Verdict {
    let (mut holder, waiting) = queue_up(&bench, [Mode::Exclusive; 10]).await?;
    for place in 0..waiting.len() {
        holder.let_go().await?;
        waiting[place].is_handed().await?;
        for (ahead, later) in waiting[place + 1..].iter().enumerate() {
            match later.beat().await? {
                RenewReply::Queued { position, .. } => {
                    ensure!(
                        position.is_none_or(|at| at == ahead),
                        "{position:?} in place of {ahead}"
                    );
                }
                other => return Err(Failure::new(format_args!("expected queued, got {other:?}"))),
            }
        }
        holder = waiting[place].clone();
        holder.take().await?;
    }
    Ok(Outcome::Ran)
}

pub(super) async fn newcomer(bench: Bench) -> Verdict {
    let (holder, waiting) = queue_up(&bench, [Mode::Exclusive; 2]).await?;
    let newcomer = || bench.contender(&holder.request.name);
    newcomer().is_refused().await?;
    holder.let_go().await?;
    newcomer().is_refused().await?;
    let place = newcomer().queue().await?;
    ensure!(place.is_none_or(|at| at == 1), "a newcomer passed the queue: {place:?}");
    waiting[0].is_handed().await?;
    newcomer().is_refused().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn asking_again(bench: Bench) -> Verdict {
    let (_holder, waiting) = queue_up(&bench, [Mode::Exclusive; 3]).await?;
    for (place, contender) in waiting.iter().enumerate().rev() {
        match contender.ask(true).await? {
            AcquireReply::Queued { position, .. } => {
                ensure!(position.is_none_or(|at| at == place), "{place} became {position:?}");
            }
            other => return Err(Failure::new(format_args!("expected queued, got {other:?}"))),
        }
    }
    let length = bench.inspect(&waiting[0].request.name).await?.queue_length;
    ensure!(length == 3, "three wait, {length} are shown");
    Ok(Outcome::Ran)
}

async fn no_starving(bench: Bench) -> Verdict {
    let name = bench.name();
    let reader = || bench.contender(&name).with_mode(Mode::Shared);
    let first = reader();
    let mut writer = bench.contender(&name);
    let mut later = reader();
    first.take().await?;
    writer.queue().await?;
    reader().is_refused().await?;
    later.queue().await?;
    first.let_go().await?;
    writer.is_handed().await?;
    writer.take().await?;
    still_waits(&later).await?;
    writer.let_go().await?;
    later.is_handed().await?;
    Ok(Outcome::Ran)
}

async fn reader_batch(bench: Bench) -> Verdict {
    use Mode::{Exclusive, Shared};
    let modes = [Shared, Shared, Shared, Exclusive, Shared];
    let (holder, waiting) = queue_up(&bench, modes).await?;
    holder.let_go().await?;
    for reader in &waiting[..3] {
        reader.is_handed().await?;
        reader.take().await?;
    }
    still_waits(&waiting[3]).await?;
    still_waits(&waiting[4]).await?;
    for reader in &waiting[..3] {
        reader.let_go().await?;
    }
    waiting[3].is_handed().await?;
    still_waits(&waiting[4]).await?;
    Ok(Outcome::Ran)
}

async fn reader_limit(bench: Bench) -> Verdict {
    let limit = holdline_core::contract::HAND_OVER_BATCH;
    if bench.capabilities().max_waiters <= limit {
        return Ok(Outcome::Impossible("no queue is that long"));
    }
    let (holder, waiting) = queue_up(&bench, vec![Mode::Shared; limit + 1]).await?;
    holder.let_go().await?;
    // The release admits the batch, and the next command the rest.
    let snapshot = bench.inspect(&holder.request.name).await?;
    ensure!(snapshot.holder_count >= limit, "{} were admitted", snapshot.holder_count);
    for reader in &waiting {
        reader.is_handed().await?;
    }
    Ok(Outcome::Ran)
}

fn permits(count: u32) -> Mode {
    Mode::Permits { count, of: 4 }
}

async fn large_first(bench: Bench) -> Verdict {
    let name = bench.name();
    let taker = |count| bench.contender(&name).with_mode(permits(count));
    let one = taker(2);
    let two = taker(1);
    one.take().await?;
    two.take().await?;
    let mut large = taker(3);
    let mut small = taker(1);
    large.queue().await?;
    taker(1).is_refused().await?;
    small.queue().await?;
    two.let_go().await?;
    still_waits(&large).await?;
    still_waits(&small).await?;
    one.let_go().await?;
    large.is_handed().await?;
    small.is_handed().await?;
    Ok(Outcome::Ran)
}

async fn permits_fit(bench: Bench) -> Verdict {
    let (holder, waiting) = queue_up(&bench, [1, 2, 2, 1].map(permits)).await?;
    holder.let_go().await?;
    for fits in &waiting[..2] {
        fits.is_handed().await?;
        fits.take().await?;
    }
    still_waits(&waiting[2]).await?;
    still_waits(&waiting[3]).await?;
    waiting[0].let_go().await?;
    waiting[2].is_handed().await?;
    still_waits(&waiting[3]).await?;
    Ok(Outcome::Ran)
}

async fn to_the_end(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender_on(0, &name);
    let mut late = bench.contender_on(1, &name).in_a_hurry();
    let mut next = bench.contender_on(2, &name);
    holder.take().await?;
    late.queue().await?;
    next.queue().await?;
    holder.let_go().await?;
    late.is_handed().await?;
    bench.outlive_with(MIN_HAND_OFF_LEASE, &[&next]).await?;
    let mut again = late.anew();
    again.queue().await?;
    next.is_handed().await?;
    next.take().await?;
    still_waits(&again).await?;
    next.let_go().await?;
    again.is_handed().await?;
    Ok(Outcome::Ran)
}
