//! The second scenario: the clock of one of five Redlock nodes jumps, and two clients hold.
//!
//! The rules are those of the engine ([`holdline_core::quorum`]); the nodes, their clocks and the
//! cut connections are simulated, since nobody should have to set the clock of a real server. The
//! tests of the engine do that:
//! `clocks::one_clock_breaks_a_bare_majority_and_the_resource_refuses_the_first_holder`.

use std::time::Duration;

use holdline::fence::{FenceError, Fenced, FencedCell, Proof};
use holdline_core::lease::DEFAULT_DRIFT_PPM;
use holdline_core::quorum::{Ballot, BallotOutcome, NameRegister, NoVote};
use holdline_core::validity::validity_time;
use holdline_core::{FencingToken, LeaseId, Moment};
use serde::Serialize;

use super::page::{Page, Side};
use crate::failure::Failure;

const NODES: usize = 5;
const LEASE: Duration = Duration::from_secs(10);
const JUMP: Duration = Duration::from_secs(60);

/// What became of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stepped {
    first_token: u64,
    second_token: u64,
    /// Both clients considered themselves the holder at once.
    two_holders: bool,
    /// The resource with tokens rejected the first one's late write.
    fenced_rejected: bool,
}

/// A node: its counter and holder of the name, and a clock of its own.
#[derive(Clone, Copy, Default)]
struct Node {
    register: NameRegister,
    ahead: Duration,
    expires: Option<Moment>,
}

impl Node {
    fn clock(&self, now: Moment) -> Moment {
        now.after(self.ahead)
    }

    /// The node's timer deletes a lease that is over by its own clock.
    fn expire(&mut self, now: Moment) {
        if self.expires.is_some_and(|end| end <= self.clock(now)) {
            self.register.expire();
            self.expires = None;
        }
    }
}

/// A client's result: its token, and until when it considers itself the holder.
struct Held {
    token: FencingToken,
    until: Moment,
}

/// Plays the scenario.
pub(super) fn run(page: &mut Page<'_>) -> Result<Stepped, Failure> {
    page.text(
        "2. The clock of a Redlock node jumps. The rules are those of the engine; the five nodes \
         and their\n   \
         clocks are simulated here. The tests of the engine set the clocks of real servers.",
    )?;
    page.heads("client A, which reaches nodes 1 2 3", "client B, which reaches nodes 3 4 5")?;
    let mut nodes = [Node::default(); NODES];
    let at = |millis| Moment::ORIGIN.after(Duration::from_millis(millis));
    let (asked_by_a, jumps, asked_by_b, looks) = (at(0), at(1_000), at(1_100), at(1_200));
    let time = |moment: Moment| moment.since(Moment::ORIGIN);

    // The clock by which B proposes its token is behind, too: the order depends on no clock.
    let a = acquire(&mut nodes, [0, 1, 2], LeaseId::from_bytes([1; 16]), 100, asked_by_a)?;
    page.event(
        time(asked_by_a),
        Side::Left,
        format_args!("holds, with token {}, for {} s", a.token, LEASE.as_secs()),
    )?;
    nodes[2].ahead = JUMP;
    page.event(
        time(jumps),
        Side::Right,
        format_args!("the clock of node 3 jumps by {} s", JUMP.as_secs()),
    )?;
    let b = acquire(&mut nodes, [2, 3, 4], LeaseId::from_bytes([2; 16]), 50, asked_by_b)?;
    page.event(
        time(asked_by_b),
        Side::Right,
        format_args!("proposes 50; node 3 has counted to {}", a.token),
    )?;
    page.event(
        time(asked_by_b),
        Side::Right,
        format_args!("holds, with token {}, for {} s", b.token, LEASE.as_secs()),
    )?;
    let two_holders = a.until > looks && b.until > looks;
    for (side, held) in [(Side::Left, &a), (Side::Right, &b)] {
        let left = held.until.since(looks).as_secs_f64();
        page.event(time(looks), side, format_args!("is its lease valid? yes, for {left:.1} s"))?;
    }

    let resource = FencedCell::new(());
    let write = |token| resource.check_and_write(&Proof::exclusive(token), |_| Ok(()));
    write(b.token).map_err(Failure::internal)?;
    page.event(time(looks), Side::Right, "writes with its token: accepted")?;
    let late = write(a.token);
    let rejected = matches!(late, Err(FenceError::Stale(_)));
    if !two_holders || !rejected {
        return Err(Failure::internal("it shows nothing"));
    }
    page.event(
        time(looks),
        Side::Left,
        format_args!("writes with its token: rejected, {} is newer", b.token),
    )?;
    page.text(
        "\n   \
         Both hold at once: a majority is worth no more than the clocks that end its votes.\n   \
         Tokens: node 3 voted for both, and its counter never falls. So the second token is\n   \
         larger, whatever the clocks say, and the data rejects the first client.",
    )?;
    let (first_token, second_token) = (a.token.get(), b.token.get());
    Ok(Stepped { first_token, second_token, two_holders, fenced_rejected: rejected })
}

/// One attempt over the nodes that the client reaches.
fn acquire(
    nodes: &mut [Node; NODES],
    reaches: [usize; 3],
    lease_id: LeaseId,
    proposed: u64,
    now: Moment,
) -> Result<Held, Failure> {
    let mut ballot = Ballot::new(NODES, validity_time(LEASE, DEFAULT_DRIFT_PPM));
    for (index, node) in nodes.iter_mut().enumerate() {
        ballot.asked(index, now);
        if !reaches.contains(&index) {
            ballot.refused(index, NoVote::Unreached);
            continue;
        }
        node.expire(now);
        let vote = node.register.acquire(lease_id, 0, proposed).map_err(Failure::internal)?;
        if node.register.holder() == Some(lease_id) {
            node.expires = Some(node.clock(now).after(LEASE));
        }
        ballot.voted(index, vote);
    }
    loop {
        match ballot.decide(now) {
            BallotOutcome::Won { token, valid_until } => {
                return Ok(Held { token, until: valid_until });
            }
            BallotOutcome::Lost => return Err(Failure::internal("a client has no majority")),
            BallotOutcome::Pending => {}
        }
        let requests = ballot.take_write_backs();
        if requests.is_empty() {
            return Err(Failure::internal("an attempt that nothing can decide"));
        }
        for request in requests {
            let reply = nodes[request.node].register.write_back(lease_id, request.token);
            ballot.written(request.node, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::{Color, Console};

    #[test]
    fn two_hold_and_the_second_token_is_larger() {
        let console = Console::new(true, false, false, Color::Never);
        let expected = Stepped {
            first_token: 100,
            second_token: 101,
            two_holders: true,
            fenced_rejected: true,
        };
        assert_eq!(run(&mut Page::new(&console)), Ok(expected));
    }

    /// Without the jump of the clock, node 3 is still held, and B has no majority.
    #[test]
    fn without_the_jump_the_second_client_holds_nothing() {
        let mut nodes = [Node::default(); NODES];
        let at = |seconds| Moment::ORIGIN.after(Duration::from_secs(seconds));
        let mut ask = |reaches, id, seconds| {
            acquire(&mut nodes, reaches, LeaseId::from_bytes([id; 16]), 50, at(seconds)).is_ok()
        };
        assert!(ask([0, 1, 2], 1, 0));
        assert!(!ask([2, 3, 4], 2, 9));
        assert!(ask([2, 3, 4], 3, 20), "the lease is over");
    }
}
