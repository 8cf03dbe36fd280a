//! P7: every wait ends by event, by heartbeat, or by its limit.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    AcquireReply, ErrorKind, Hint, Hints, Hold, Mode, Operation, Purpose, RenewReply,
};

use crate::bench::{Bench, BenchContender, SOON};
use crate::case::{Case, Feature, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P7, "a release notifies the watch of the next contender", [Queue], release_notifies),
        case!(P7, "a watch reports an earlier hand-off", [Queue], reported_late),
        case!(
            P7,
            "giving up, withdrawing and unfreezing notify the next contender",
            [Queue, Freeze],
            others_report
        ),
        case!(P7, "heartbeats alone find a name that was released", [Queue], heartbeat_finds),
        case!(P7, "heartbeats alone find a name whose lease ran out", [Queue], heartbeat_outlives),
        case!(P7, "the next look is never later than the next heartbeat", [Queue], bounded_look),
        case!(P7, "the head looks when the holder's lease ends", [Queue], head_looks_at_end),
        case!(P7, "a heartbeat extends no grant", [Queue, Message], heartbeat_extends_nothing),
        case!(P7, "a batch has one reply for each renewal, whatever is wrong with one", [], batch),
        case!(P7, "a batch as long as may be is answered", [], full_batch),
        case!(P7, "many watches on one name do not disturb each other", [Queue], many_watches),
        case!(P7, "two watches of one lease id both report", [Queue], watched_twice),
        case!(P7, "waiting readers are all notified at once", [Queue, Shared], readers_notified),
    ]
}

/// Waits for a hint, which must come soon by itself; others may come before it.
pub(super) async fn hint(hints: &mut Hints, wanted: Hint) -> Result<(), Failure> {
    one_of(hints, &[wanted]).await
}

/// Waits for one of these hints.
pub(super) async fn one_of(hints: &mut Hints, wanted: &[Hint]) -> Result<(), Failure> {
    next_of(hints, &format!("{wanted:?}"), |hint| wanted.contains(&hint).then_some(())).await
}

/// Waits for the first hint from which `pick` takes something.
async fn next_of<T>(
    hints: &mut Hints,
    wanted: &str,
    pick: impl Fn(Hint) -> Option<T>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + SOON;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let next = poll_fn(|context| hints.as_mut().poll_next(context));
        match tokio::time::timeout(left, next).await {
            Ok(Some(hint)) => {
                if let Some(picked) = pick(hint) {
                    return Ok(picked);
                }
            }
            Ok(None) => return Err(Failure::new("the watch ended by itself")),
            Err(_) => {
                return Err(Failure::new(format_args!("no {wanted} within {SOON:?}")));
            }
        }
    }
}

/// Waits for the notification of a hand-off, which is the grant if the engine's messages are that.
async fn notified(hints: &mut Hints, contender: &BenchContender) -> Result<(), Failure> {
    if !Feature::Message.is_in(contender.engine().capabilities()) {
        return hint(hints, Hint::LookAgain).await;
    }
    contender.is_handed().await?;
    // The message comes without a request.
    let said = next_of(hints, "Granted", |hint| match hint {
        Hint::Granted { token } => Some(token),
        _ => None,
    });
    let said = said.await?;
    match contender.ask(true).await? {
        AcquireReply::Granted { token, .. } => {
            ensure!(token == said, "the message has token {said}, the reply {token}");
            Ok(())
        }
        other => Err(Failure::new(format_args!("expected a grant, got {other:?}"))),
    }
}

pub(super) async fn release_notifies(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut holder = bench.contender_on(0, &name);
    holder.take().await?;
    for turn in 1..6 {
        let mut next = bench.contender_on(turn, &name);
        next.queue().await?;
        let mut watch = next.engine().watch(&name, next.id());
        holder.let_go().await?;
        notified(&mut watch, &next).await?;
        next.take().await?;
        holder = next;
    }
    Ok(Outcome::Ran)
}

pub(super) async fn reported_late(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut next = bench.contender(&name);
    holder.take().await?;
    next.queue().await?;
    holder.let_go().await?;
    let mut watch = next.engine().watch(&name, next.id());
    notified(&mut watch, &next).await?;
    next.take().await?;
    Ok(Outcome::Ran)
}

async fn watched_twice(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut next = bench.contender(&name);
    holder.take().await?;
    next.queue().await?;
    let mut watches = [(); 2].map(|()| next.engine().watch(&name, next.id()));
    holder.let_go().await?;
    for watch in &mut watches {
        notified(watch, &next).await?;
    }
    next.take().await?;
    Ok(Outcome::Ran)
}

async fn others_report(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut waiting: Vec<_> = (0..3).map(|_| bench.contender(&name)).collect();
    holder.take().await?;
    let mut watches = Vec::new();
    for contender in &mut waiting {
        contender.queue().await?;
        watches.push(contender.engine().watch(&name, contender.id()));
    }
    holder.give_up().await?;
    notified(&mut watches[0], &waiting[0]).await?;
    waiting[0].release().await?;
    notified(&mut watches[1], &waiting[1]).await?;
    let duration = Duration::from_secs(60);
    let freeze = Operation::Freeze { name: name.clone(), duration, reason: String::new() };
    bench.operate(freeze).await?;
    waiting[1].let_go().await?;
    ensure_matches!(waiting[2].beat().await?, RenewReply::Queued { .. });
    bench.operate(Operation::Unfreeze { name: name.clone() }).await?;
    notified(&mut watches[2], &waiting[2]).await?;
    waiting[2].take().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn heartbeat_finds(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut next = bench.contender(&name);
    holder.take().await?;
    next.queue().await?;
    ensure_matches!(next.beat().await?, RenewReply::Queued { .. });
    holder.let_go().await?;
    next.is_handed().await?;
    next.take().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn heartbeat_outlives(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut next = bench.contender(&name);
    bench.contender(&name).for_lease(bench.lease()).take().await?;
    next.queue().await?;
    bench.outlive_with(bench.lease(), &[&next]).await?;
    next.is_handed().await?;
    next.take().await?;
    Ok(Outcome::Ran)
}

pub(super) async fn bounded_look(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    for _ in 0..3 {
        let mut contender = bench.contender(&name);
        contender.request.queue = true;
        match contender.ask(true).await? {
            AcquireReply::Queued { next_look, .. } => {
                ensure!(next_look <= QUEUE_HEARTBEAT, "queued: look in {next_look:?}");
            }
            other => return Err(Failure::new(format_args!("expected queued, got {other:?}"))),
        }
        match contender.beat().await? {
            RenewReply::Queued { next_look, .. } => {
                ensure!(next_look <= QUEUE_HEARTBEAT, "the next look is in {next_look:?}");
            }
            other => return Err(Failure::new(format_args!("expected queued, got {other:?}"))),
        }
    }
    Ok(Outcome::Ran)
}

async fn head_looks_at_end(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut head = bench.contender(&name);
    let lease = bench.capabilities().lease.min.max(bench.lease());
    bench.contender(&name).for_lease(lease).take().await?;
    head.queue().await?;
    let limit = lease + bench.capabilities().lease.step + bench.capabilities().lag;
    match head.beat().await? {
        RenewReply::Queued { next_look, .. } => {
            ensure!(next_look <= limit, "{lease:?} are left, and the head looks in {next_look:?}");
        }
        other => return Err(Failure::new(format_args!("expected queued, got {other:?}"))),
    }
    Ok(Outcome::Ran)
}

async fn heartbeat_extends_nothing(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let mut next = bench.contender(&name).in_a_hurry();
    holder.take().await?;
    next.queue().await?;
    holder.let_go().await?;
    next.is_handed().await?;
    bench.outlive_with(holdline_core::contract::MIN_HAND_OFF_LEASE, &[&next]).await?;
    ensure_matches!(next.beat().await?, RenewReply::Unknown);
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn batch(bench: Bench) -> Verdict {
    let held = bench.contender_on(0, &bench.name());
    let other = bench.contender_on(0, &bench.name());
    held.take().await?;
    other.take().await?;
    let renewals = [
        held.renewal(Purpose::Keep(held.request.hold)),
        held.anew().renewal(Purpose::Keep(held.request.hold)),
        held.renewal(Purpose::Keep(Hold::Leased(Duration::ZERO))),
        held.renewal(Purpose::Keep(held.request.hold)),
        other.renewal(Purpose::Keep(other.request.hold)),
    ];
    let replies = held.engine().renew(&renewals).await;
    let sent = renewals.len();
    ensure!(replies.len() == sent, "{sent} renewals, {} replies", replies.len());
    for good in [0, 3, 4] {
        ensure!(matches!(replies[good], Ok(RenewReply::Renewed { .. })), "{:?}", replies[good]);
    }
    ensure!(matches!(replies[1], Ok(RenewReply::Unknown)), "a stranger: {:?}", replies[1]);
    let kind = replies[2].as_ref().err().map(|error| error.kind());
    ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "no lease: {:?}", replies[2]);
    ensure!(held.engine().renew(&[]).await.is_empty(), "an empty batch was answered");
    Ok(Outcome::Ran)
}

async fn full_batch(bench: Bench) -> Verdict {
    let mut held = Vec::new();
    let longest = bench.capabilities().max_batch.min(128);
    for _ in 0..longest / 2 {
        let contender = bench.contender_on(0, &bench.name());
        contender.take().await?;
        held.push(contender);
    }
    let keep = |one: &crate::bench::BenchContender| one.renewal(Purpose::Keep(one.request.hold));
    let renewals: Vec<_> = held.iter().flat_map(|one| [keep(one), keep(&one.anew())]).collect();
    let replies = held[0].engine().renew(&renewals).await;
    let sent = renewals.len();
    ensure!(replies.len() == sent, "{sent} renewals, {} replies", replies.len());
    for (place, reply) in replies.iter().enumerate() {
        let good = match (place % 2, reply) {
            (0, Ok(RenewReply::Renewed { left })) => left.is_some_and(|left| !left.is_zero()),
            (1, Ok(RenewReply::Unknown)) => true,
            _ => false,
        };
        ensure!(good, "renewal {place}: {reply:?}");
    }
    Ok(Outcome::Ran)
}

pub(super) async fn many_watches(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut holder = bench.contender(&name);
    holder.take().await?;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut contender = bench.contender(&name);
        contender.queue().await?;
        let watch = contender.engine().watch(&name, contender.id());
        waiting.push((contender, watch));
    }
    // Half of the watches go; those contenders look by themselves.
    for (place, (contender, watch)) in waiting.into_iter().enumerate() {
        holder.let_go().await?;
        let mut watch = Some(watch).filter(|_| place % 2 == 0);
        if let Some(watch) = &mut watch {
            notified(watch, &contender).await?;
        }
        contender.is_handed().await?;
        contender.take().await?;
        holder = contender;
    }
    Ok(Outcome::Ran)
}

async fn readers_notified(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let mut readers = Vec::new();
    for _ in 0..5 {
        let mut reader = bench.contender(&name).with_mode(Mode::Shared);
        reader.queue().await?;
        let watch = reader.engine().watch(&name, reader.id());
        readers.push((reader, watch));
    }
    holder.let_go().await?;
    for (reader, watch) in &mut readers {
        notified(watch, reader).await?;
        reader.take().await?;
    }
    Ok(Outcome::Ran)
}
