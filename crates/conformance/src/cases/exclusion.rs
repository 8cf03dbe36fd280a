//! P1: at most one holder of an exclusive name.

use std::time::Duration;

use holdline_core::{AcquireReply, ErrorKind, Hold, LockName, Mode};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P1, "a held name is refused to every client", [], held_is_refused),
        case!(P1, "of many that ask at once exactly one is granted", [], one_of_many),
        case!(P1, "a renewed lease excludes past its first end", [], renewed_excludes),
        case!(P1, "a lease does not end early", [], not_early),
        case!(P1, "the rest that a repeated request reports is excluded", [Repeat], reported_left),
        case!(P1, "names that look alike are different names", [], alike_names),
        case!(P1, "a name of the greatest length is like any other", [], longest_name),
        case!(P1, "no grant starts longer than 30 s", [], first_lease),
        case!(P1, "readers hold together, a writer alone", [Shared], readers_and_writer),
        case!(P1, "of readers and writers that ask at once none overlap", [Shared], mixed_race),
        case!(P1, "permits held are never more than there are", [Permits], permits),
        case!(P1, "a semaphore's total is kept while it is in use", [Permits], permits_total),
        case!(P1, "a mutex and a semaphore do not share a name", [Permits], kinds_do_not_mix),
        case!(P1, "a detached lease excludes", [Detach], detached_excludes),
        case!(P1, "a live grant excludes and time does not end it", [Live], live_excludes),
    ]
}

async fn held_is_refused(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    holder.take().await?;
    for client in 0..bench.clients().len() {
        bench.contender_on(client, &name).is_refused().await?;
    }
    holder.let_go().await?;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn one_of_many(bench: Bench) -> Verdict {
    for _ in 0..5 {
        let name = bench.name();
        let mut asking = JoinSet::new();
        for _ in 0..12 {
            let contender = bench.contender(&name);
            asking.spawn(async move { contender.ask(false).await });
        }
        let mut granted = 0;
        while let Some(reply) = asking.join_next().await {
            match reply.map_err(Failure::new)?? {
                AcquireReply::Granted { .. } => granted += 1,
                AcquireReply::Busy { .. } => {}
                other => return Err(Failure::new(format_args!("granted or busy, not {other:?}"))),
            }
        }
        if bench.capabilities().splits && granted == 0 {
            comes_alone(&bench, &name).await?;
            granted = 1;
        }
        ensure!(granted == 1, "{granted} of 12 were granted");
    }
    Ok(Outcome::Ran)
}

/// After a split vote, a contender that retries alone gets the name soon: nothing is left of the
/// others.
async fn comes_alone(bench: &Bench, name: &LockName) -> Result<(), Failure> {
    for _ in 0..50 {
        match bench.contender(name).ask(false).await? {
            AcquireReply::Granted { .. } => return Ok(()),
            AcquireReply::Busy { next_look, .. } => bench.pass(next_look).await,
            other => return Err(Failure::new(format_args!("granted or busy, not {other:?}"))),
        }
    }
    Err(Failure::new("a lone contender was refused 50 times"))
}

async fn renewed_excludes(bench: Bench) -> Verdict {
    let name = bench.name();
    let lease = bench.lease() * 2;
    let holder = bench.contender(&name).for_lease(lease);
    holder.take().await?;
    for _ in 0..4 {
        bench.pass(lease / 2).await;
        ensure_matches!(holder.keep().await?, holdline_core::RenewReply::Renewed { .. });
        bench.contender(&name).is_refused().await?;
    }
    holder.let_go().await?;
    Ok(Outcome::Ran)
}

async fn not_early(bench: Bench) -> Verdict {
    let name = bench.name();
    let lease = bench.lease() * 4;
    bench.contender(&name).for_lease(lease).take().await?;
    bench.pass(lease / 2).await;
    bench.contender(&name).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn reported_left(bench: Bench) -> Verdict {
    let name = bench.name();
    // No other case has leases this long, so no other case renews this session.
    let lease = bench.lease() * 4 + Duration::from_millis(7);
    let holder = bench.contender(&name).for_lease(lease);
    holder.take().await?;
    bench.pass(lease / 10 * 9).await;
    let asked = bench.time().now();
    // It may have expired by now; then nothing is left.
    let Ok(AcquireReply::Granted { left: Some(left), .. }) = holder.ask(false).await else {
        return Ok(Outcome::Ran);
    };
    let end = asked.after(left);
    loop {
        let reply = bench.contender(&name).ask(false).await?;
        let now = bench.time().now();
        let granted = matches!(reply, AcquireReply::Granted { .. });
        ensure!(
            now >= end || !granted,
            "{left:?} were left, and another was granted {:?} before their end",
            now.until(end)
        );
        if granted || now >= end {
            return Ok(Outcome::Ran);
        }
        bench.pass(lease / 20).await;
    }
}

async fn alike_names(bench: Bench) -> Verdict {
    let ends = [
        "a",
        "A",
        "a ",
        " a",
        "a/",
        "/a",
        "a//b",
        "a/b",
        "a:b",
        "a::b",
        "a.b",
        "a%2Fb",
        "a%b",
        "{a}",
        "{a}:b",
        "a}b{c",
        "{}",
        "*",
        "a*",
        "?",
        "[a]",
        "'a'",
        "\"a\"",
        "a;b",
        "--",
        "..",
        ".",
        "\u{e9}",
        "e\u{301}",
        "\u{202e}a",
        "\u{1f512}",
        "\u{fff0}",
        "a\\b",
        "$a",
        "a\u{a0}b",
    ];
    let mut taken = Vec::new();
    for end in ends {
        let contender = bench.contender(&bench.named(end));
        match contender.ask(contender.request.queue).await {
            Ok(AcquireReply::Granted { .. }) => taken.push(end),
            // A name that is refused is confused with none.
            Err(error) if matches!(error.kind(), ErrorKind::Invalid { field: "name", .. }) => {}
            other => return Err(Failure::new(format_args!("{end:?}: {other:?}"))),
        }
    }
    ensure!(taken.len() > ends.len() / 2, "only these are names: {taken:?}");
    for end in taken {
        let name = bench.named(end);
        bench.contender(&name).is_refused().await?;
        let snapshot = bench.inspect(&name).await?;
        ensure!(snapshot.name == name, "{end:?} came back as {:?}", snapshot.name.as_str());
    }
    Ok(Outcome::Ran)
}

async fn longest_name(bench: Bench) -> Verdict {
    let free = holdline_core::name::MAX_NAME_BYTES - bench.named("x").as_str().len() + 1;
    let longest = |last: char| -> Result<LockName, Failure> {
        let mut end = "\u{43a}".repeat((free - 1) / 2);
        end.extend(std::iter::repeat_n('k', free - 1 - end.len()));
        end.push(last);
        Ok(bench.named(&end))
    };
    let one = longest('1')?;
    let other = longest('2')?;
    ensure!(one.as_str().len() == 512, "the suite's name has {} bytes", one.as_str().len());
    bench.contender(&one).take().await?;
    bench.contender(&other).take().await?;
    bench.contender(&one).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn first_lease(bench: Bench) -> Verdict {
    let name = bench.name();
    let too_long = Duration::from_secs(31);
    if too_long <= bench.capabilities().lease.max {
        let reply = bench.contender(&name).for_lease(too_long).ask(false).await.err();
        let kind = reply.as_ref().map(|error| error.kind());
        ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "31 s gave {reply:?}");
    }
    let longest = bench.long_lease();
    let grant = bench.contender(&name).for_lease(longest).take().await?;
    let range = bench.capabilities().lease;
    ensure!(
        grant.left.is_some_and(|left| !left.is_zero() && left <= longest + range.step),
        "{longest:?} gave {:?}",
        grant.left
    );
    Ok(Outcome::Ran)
}

async fn readers_and_writer(bench: Bench) -> Verdict {
    let name = bench.name();
    let reader = || bench.contender(&name).with_mode(Mode::Shared);
    let writer = bench.contender(&name);
    let one = reader();
    let two = reader();
    one.take().await?;
    two.take().await?;
    writer.is_refused().await?;
    one.let_go().await?;
    writer.anew().is_refused().await?;
    two.let_go().await?;
    let writer = writer.anew();
    writer.take().await?;
    reader().is_refused().await?;
    writer.let_go().await?;
    reader().take().await?;
    Ok(Outcome::Ran)
}

async fn mixed_race(bench: Bench) -> Verdict {
    for _ in 0..5 {
        let name = bench.name();
        let mut asking = JoinSet::new();
        for turn in 0..12 {
            let mode = if turn % 3 == 0 { Mode::Exclusive } else { Mode::Shared };
            let contender = bench.contender(&name).with_mode(mode);
            asking.spawn(async move { (mode, contender.ask(false).await) });
        }
        let mut readers = 0;
        let mut writers = 0;
        while let Some(reply) = asking.join_next().await {
            let (mode, reply) = reply.map_err(Failure::new)?;
            if let AcquireReply::Granted { .. } = reply? {
                *(if mode == Mode::Shared { &mut readers } else { &mut writers }) += 1;
            }
        }
        let good = (writers == 1 && readers == 0) || (writers == 0 && readers > 0);
        ensure!(good, "{writers} writers and {readers} readers hold at once");
    }
    Ok(Outcome::Ran)
}

async fn permits(bench: Bench) -> Verdict {
    let name = bench.name();
    let taker = |count| bench.contender(&name).with_mode(Mode::Permits { count, of: 5 });
    let two = taker(2);
    two.take().await?;
    taker(3).take().await?;
    taker(1).is_refused().await?;
    two.let_go().await?;
    taker(3).is_refused().await?;
    taker(2).take().await?;
    taker(1).is_refused().await?;
    Ok(Outcome::Ran)
}

async fn permits_total(bench: Bench) -> Verdict {
    let name = bench.name();
    let taker = |count, of| bench.contender(&name).with_mode(Mode::Permits { count, of });
    let holder = taker(1, 3);
    holder.take().await?;
    let reply = taker(1, 4).ask(false).await.err();
    let kind = reply.as_ref().map(|error| error.kind());
    ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "another total gave {reply:?}");
    holder.let_go().await?;
    if bench.scale().kinds_stay {
        let reply = taker(1, 4).ask(false).await.err();
        let kind = reply.as_ref().map(|error| error.kind());
        ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "another total gave {reply:?}");
        return Ok(Outcome::Ran);
    }
    taker(1, 4).take().await?;
    for (count, of) in [(0, 3), (4, 3), (1, 0)] {
        let reply = taker(count, of).ask(false).await.err();
        let kind = reply.as_ref().map(|error| error.kind());
        ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "{count}/{of} gave {reply:?}");
    }
    Ok(Outcome::Ran)
}

async fn kinds_do_not_mix(bench: Bench) -> Verdict {
    let permit = Mode::Permits { count: 1, of: 2 };
    for (first, second) in [(Mode::Exclusive, permit), (permit, Mode::Exclusive)] {
        let name = bench.name();
        bench.contender(&name).with_mode(first).take().await?;
        let reply = bench.contender(&name).with_mode(second).ask(false).await.err();
        let kind = reply.as_ref().map(|error| error.kind());
        let good = if bench.scale().kinds_stay {
            matches!(kind, Some(ErrorKind::Foreign { .. }))
        } else {
            matches!(kind, Some(ErrorKind::Invalid { .. }))
        };
        ensure!(good, "{second} gave {reply:?}");
    }
    Ok(Outcome::Ran)
}

async fn detached_excludes(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).with_hold(Hold::Detached(bench.long_lease()));
    holder.take().await?;
    bench.contender(&name).is_refused().await?;
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot.holders.iter().all(|holder| holder.detached), "not shown as detached");
    holder.let_go().await?;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}

async fn live_excludes(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name).with_hold(Hold::Live);
    let grant = holder.take().await?;
    ensure!(grant.left.is_none(), "a live grant said {:?}", grant.left);
    ensure!(grant.anchor.is_some(), "a live grant came without an anchor");
    bench.outlive(bench.lease() * 2).await;
    bench.contender(&name).is_refused().await?;
    let snapshot = bench.inspect(&name).await?;
    ensure!(snapshot.holders.iter().all(|holder| holder.live), "not shown as live");
    holder.let_go().await?;
    bench.contender(&name).take().await?;
    Ok(Outcome::Ran)
}
