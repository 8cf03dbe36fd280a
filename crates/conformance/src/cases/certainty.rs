//! P9: every failure reports its certainty, and different failures are different values.

use std::time::Duration;

use holdline_core::contract::{MAX_HAND_OFF_LEASE, MIN_HAND_OFF_LEASE};
use holdline_core::lease::{MAX_LEASE, MIN_LEASE};
use holdline_core::{
    AcquireReply, Certainty, ErrorKind, Expiry, HandOff, Hold, LockError, Mode, Purpose,
    ReleaseReply, Snapshot,
};

use crate::bench::{Bench, BenchContender};
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

/// The number of attempts at the shortest lease.
const TRIES: usize = 50;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            P9,
            "a busy reply names the holder and the longest rest of its lease",
            [],
            busy_reports
        ),
        case!(P9, "a lease out of range is invalid and leaves nothing", [], lease_range),
        case!(P9, "a lease of a hand-off out of range is invalid", [], hand_off_range),
        case!(
            P9,
            "an id asked again on other terms is invalid and keeps what it has",
            [Repeat],
            other_terms
        ),
        case!(P9, "a queued id asked again on other terms is invalid", [Queue], other_terms_queued),
        case!(P9, "asking again gives the same grant and what is left of it", [Repeat], same_grant),
        case!(P9, "asking about a hand-off begins the whole lease", [Queue], whole_lease),
        case!(P9, "a release repeated after a lost reply is not an error", [], repeated_release),
        case!(
            P9,
            "a renewal on impossible terms is invalid and keeps the grant",
            [],
            renewal_range
        ),
        case!(P9, "a full queue is reported", [Queue], full_queue),
        case!(P9, "an error names engine and lock", [], error_names),
        case!(P9, "the stated capabilities are consistent", [], fits_together),
        case!(P9, "the holder's own words come back unharmed", [Metadata], metadata_kept),
    ]
}

fn is_invalid<T: std::fmt::Debug>(reply: &Result<T, LockError>, what: &str) -> Result<(), Failure> {
    let good = reply.as_ref().is_err_and(|error| {
        matches!(error.kind(), ErrorKind::Invalid { .. })
            && error.certainty() == Certainty::NotApplied
    });
    ensure!(good, "{what}: expected invalid and not applied, got {reply:?}");
    Ok(())
}

async fn busy_reports(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    match bench.contender(&name).ask(false).await? {
        AcquireReply::Busy { holder: reply, at_most, .. } => {
            let reply = reply.map(|reply| reply.lease_id);
            ensure!(reply == Some(holder.id().short()), "the holder is {reply:?}");
            let range = bench.capabilities();
            let limit = bench.long_lease() + range.lease.step + range.lag;
            ensure!(at_most.is_none_or(|at_most| at_most <= limit), "free in {at_most:?}");
        }
        other => return Err(Failure::new(format_args!("expected busy, got {other:?}"))),
    }
    Ok(Outcome::Ran)
}

async fn lease_range(bench: Bench) -> Verdict {
    let name = bench.name();
    let range = bench.capabilities().lease;
    let below = range.min.saturating_sub(Duration::from_nanos(1));
    for lease in [Duration::ZERO, below, range.max + Duration::from_nanos(1), Duration::MAX] {
        is_invalid(&bench.contender(&name).for_lease(lease).ask(false).await, "a lease")?;
    }
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot == Snapshot::free(name.clone()), "something is left: {snapshot:?}");
    let shortest = range.min.min(bench.long_lease());
    for _ in 0..TRIES {
        match bench.contender(&name).for_lease(shortest).ask(false).await {
            Ok(AcquireReply::Granted { .. }) => return Ok(Outcome::Ran),
            // On a slow machine the majority answers only once so short a lease is over.
            Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => {}
            other => return Err(Failure::new(format_args!("expected a grant, got {other:?}"))),
        }
    }
    Err(Failure::new(format_args!("no lease of {shortest:?} was granted in {TRIES} attempts")))
}

async fn hand_off_range(bench: Bench) -> Verdict {
    let name = bench.name();
    let grain = Duration::from_nanos(1);
    for lease in [Duration::ZERO, MIN_HAND_OFF_LEASE - grain, MAX_HAND_OFF_LEASE + grain] {
        let mut contender = bench.contender(&name);
        contender.request.hand_off_lease = lease;
        is_invalid(&contender.ask(false).await, "a lease of a hand-off")?;
    }
    Ok(Outcome::Ran)
}

/// Asks under the same id with another mode and with another hold.
async fn on_other_terms(bench: &Bench, contender: &BenchContender) -> Result<(), Failure> {
    let hold = Hold::Leased(bench.long_lease() / 2);
    let queue = contender.request.queue;
    is_invalid(&contender.clone().with_hold(hold).ask(queue).await, "another hold")?;
    if bench.capabilities().shared {
        let shared = contender.clone().with_mode(Mode::Shared);
        is_invalid(&shared.ask(queue).await, "another mode")?;
    }
    Ok(())
}

async fn other_terms(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let token = holder.take().await?.token;
    on_other_terms(&bench, &holder).await?;
    ensure!(holder.take().await?.token == token, "the grant was changed");
    bench.contender(&name).is_refused().await?;
    holder.let_go().await?;
    Ok(Outcome::Ran)
}

async fn other_terms_queued(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    let mut waiting = bench.contender(&name);
    waiting.queue().await?;
    on_other_terms(&bench, &waiting).await?;
    ensure!(waiting.queue().await?.is_none_or(|place| place == 0), "the place was changed");
    Ok(Outcome::Ran)
}

async fn same_grant(bench: Bench) -> Verdict {
    let name = bench.name();
    let lease = bench.lease() * 4;
    let holder = bench.contender(&name).for_lease(lease);
    let first = holder.take().await?;
    bench.pass(lease / 4).await;
    let again = holder.take().await?;
    ensure!(first.token == again.token, "{} became {}", first.token, again.token);
    let limit = lease - lease / 4 + bench.capabilities().lease.step + bench.capabilities().lag;
    ensure!(
        again.left.is_some_and(|left| left <= limit),
        "a quarter of {lease:?} has passed, and a repeated request reports {:?} left",
        again.left
    );
    Ok(Outcome::Ran)
}

async fn whole_lease(bench: Bench) -> Verdict {
    if bench.capabilities().expiry == Expiry::Session {
        return Ok(Outcome::Impossible("a session's keepalives extend the lease, not requests"));
    }
    let name = bench.name();
    let holder = bench.contender(&name);
    let lease = bench.lease();
    let mut next = bench.contender(&name).for_lease(lease).in_a_hurry();
    holder.take().await?;
    next.queue().await?;
    holder.let_go().await?;
    next.is_handed().await?;
    bench.pass(MIN_HAND_OFF_LEASE / 2).await;
    let grant = next.take().await?;
    ensure!(grant.left >= Some(lease), "{:?} is left of {lease:?}", grant.left);
    bench.pass(lease / 2).await;
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn repeated_release(bench: Bench) -> Verdict {
    let holder = bench.contender(&bench.name());
    holder.take().await?;
    // The first reply is lost: the holder cannot know, and sends it again.
    ensure_matches!(holder.release().await?, ReleaseReply::Released { .. });
    for _ in 0..2 {
        ensure_matches!(holder.release().await?, ReleaseReply::NotHeld { revoked: None });
    }
    Ok(Outcome::Ran)
}

async fn renewal_range(bench: Bench) -> Verdict {
    let holder = bench.contender(&bench.name());
    holder.take().await?;
    let past = bench.capabilities().lease.max + Duration::from_nanos(1);
    for lease in [Duration::ZERO, past, Duration::MAX] {
        is_invalid(&holder.renew(Purpose::Keep(Hold::Leased(lease))).await, "a renewal")?;
    }
    holder.let_go().await?;
    Ok(Outcome::Ran)
}

async fn full_queue(bench: Bench) -> Verdict {
    let limit = bench.capabilities().max_waiters;
    if limit > 1_000 {
        return Ok(Outcome::Impossible("this store's queue is too long to be filled here"));
    }
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    for _ in 0..limit {
        bench.contender(&name).queue().await?;
    }
    let reply = bench.contender(&name).ask(true).await;
    let good = reply.as_ref().is_err_and(|error| {
        *error.kind() == ErrorKind::TooManyWaiters { limit }
            && error.certainty() == Certainty::NotApplied
    });
    ensure!(good, "{limit} wait, and one more gets {reply:?}");
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn error_names(bench: Bench) -> Verdict {
    let name = bench.name();
    let reply = bench.contender(&name).for_lease(Duration::ZERO).ask(false).await;
    let Err(error) = reply else {
        return Err(Failure::new("a lease of nothing was granted"));
    };
    ensure!(error.engine() == bench.capabilities().engine, "engine {:?}", error.engine());
    ensure!(error.name() == Some(&name), "name {:?}", error.name());
    Ok(Outcome::Ran)
}

async fn metadata_kept(bench: Bench) -> Verdict {
    let name = bench.name();
    let fields = holdline_core::HolderFields {
        host: "host".into(),
        pid: Some(u32::MAX),
        program: "a program \"quoted\" 'twice'\n\u{1b}[31m".into(),
        reason: "\u{202e}\u{1f512} ключ \\ % {} ]]> --".into(),
        labels: [("k\0".to_owned(), "v\r\n".to_owned())].into(),
        ..holdline_core::HolderFields::default()
    };
    let mut holder = bench.contender(&name);
    holder.request.metadata = holdline_core::Metadata::new(&fields).map_err(Failure::new)?;
    holder.take().await?;
    let shown =
        bench.inspect(&name).await?.holders.first().map(|one| one.summary.metadata.fields());
    ensure!(shown.as_ref() == Some(&fields), "came back as {shown:?}");
    Ok(Outcome::Ran)
}

async fn fits_together(bench: Bench) -> Verdict {
    let what = bench.capabilities();
    let range = what.lease;
    ensure!(!what.engine.is_empty() && !what.identity.is_empty(), "without a name: {what:?}");
    ensure!(MIN_LEASE <= range.min && range.min <= range.max, "lease range: {range:?}");
    ensure!(range.max <= MAX_LEASE, "lease range: {range:?}");
    ensure!(!range.step.is_zero() && range.step <= range.min, "lease step: {range:?}");
    ensure!(bench.scale().lease >= range.min, "the suite's lease is too short here: {range:?}");
    ensure!(what.queue == (what.hand_off != HandOff::None), "queue and hand-off: {what:?}");
    ensure!(what.queue || !what.fair, "fair without a queue");
    ensure!(!what.queue || what.max_waiters > 0, "a queue without waiters");
    ensure!(what.max_batch > 0, "a batch of nothing");
    Ok(Outcome::Ran)
}
