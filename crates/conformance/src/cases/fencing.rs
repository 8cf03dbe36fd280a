//! P2: tokens of exclusive grants are distinct and grow in the order of the requests.

use std::collections::BTreeSet;

use holdline_core::{ErrorKind, FencingToken, Mode, Operation, OperationReply, RenewReply};

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure, ensure_matches};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P2, "tokens grow from release to grant, over all clients", [Fencing], over_release),
        case!(P2, "tokens grow past a lease that ran out", [Fencing], over_expiry),
        case!(P2, "tokens grow past a hand-off", [Fencing, Queue], over_hand_off),
        case!(P2, "tokens grow past a grant that was given up", [Fencing], over_give_up),
        case!(P2, "a token is constant for the life of its grant", [Fencing], constant),
        case!(P2, "shared grants have distinct numbers", [Fencing, Shared], shared_distinct),
        case!(P2, "permits have distinct numbers", [Fencing, Permits], permits_distinct),
        case!(P2, "a raised fence is below all later tokens", [Fencing], raised),
    ]
}

fn larger(tokens: &[FencingToken]) -> Result<(), Failure> {
    ensure!(tokens.is_sorted_by(|one, next| one < next), "tokens do not grow: {tokens:?}");
    Ok(())
}

async fn over_release(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut tokens = Vec::new();
    for _ in 0..3 * bench.clients().len() {
        let contender = bench.contender(&name);
        tokens.push(contender.take().await?.token);
        contender.let_go().await?;
    }
    larger(&tokens)?;
    Ok(Outcome::Ran)
}

async fn over_expiry(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        tokens.push(bench.contender(&name).for_lease(bench.lease()).take().await?.token);
        bench.outlive(bench.lease()).await;
    }
    larger(&tokens)?;
    Ok(Outcome::Ran)
}

async fn over_hand_off(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut holder = bench.contender(&name);
    let mut tokens = vec![holder.take().await?.token];
    for _ in 0..4 {
        let mut next = bench.contender(&name);
        next.queue().await?;
        holder.let_go().await?;
        next.is_handed().await?;
        tokens.push(next.take().await?.token);
        holder = next;
    }
    holder.let_go().await?;
    tokens.push(bench.contender(&name).take().await?.token);
    larger(&tokens)?;
    Ok(Outcome::Ran)
}

async fn over_give_up(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let contender = bench.contender(&name);
        tokens.push(contender.take().await?.token);
        contender.give_up().await?;
    }
    larger(&tokens)?;
    Ok(Outcome::Ran)
}

async fn constant(bench: Bench) -> Verdict {
    let name = bench.name();
    let holder = bench.contender(&name);
    let token = holder.take().await?.token;
    for _ in 0..3 {
        ensure_matches!(holder.keep().await?, RenewReply::Renewed { .. });
        let shown = bench.inspect(&name).await?.holders.first().and_then(|one| one.summary.token);
        ensure!(shown == Some(token), "shown as {shown:?}, granted as {token}");
    }
    Ok(Outcome::Ran)
}

async fn distinct(bench: &Bench, mode: Mode) -> Verdict {
    let name = bench.name();
    let mut tokens = BTreeSet::new();
    for _ in 0..6 {
        let token = bench.contender(&name).with_mode(mode).take().await?.token;
        ensure!(tokens.insert(token), "{token} was given twice");
    }
    Ok(Outcome::Ran)
}

async fn shared_distinct(bench: Bench) -> Verdict {
    distinct(&bench, Mode::Shared).await
}

async fn permits_distinct(bench: Bench) -> Verdict {
    distinct(&bench, Mode::Permits { count: 1, of: 10 }).await
}

async fn raised(bench: Bench) -> Verdict {
    let name = bench.name();
    let contender = bench.contender(&name);
    let before = contender.take().await?.token;
    contender.let_go().await?;
    let to = FencingToken::new(before.get() + 1_000).map_err(Failure::new)?;
    match bench.operate(Operation::RaiseFence { to }).await {
        Ok(reply) => ensure_matches!(reply, OperationReply::Done),
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
            return Ok(Outcome::Impossible("the store's own order makes the tokens"));
        }
        Err(error) => return Err(error.into()),
    }
    let after = contender.anew().take().await?.token;
    ensure!(after > to, "the fence was raised to {to}, and {after} came");
    Ok(Outcome::Ran)
}
