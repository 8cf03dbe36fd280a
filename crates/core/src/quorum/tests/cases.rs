//! Tables of votes and their outcomes.

use std::time::Duration;

use super::set::run;
use super::{id, token};
use crate::Moment;
use crate::quorum::{
    Ballot, BallotOutcome, Configuration, NameRegister, NoVote, NodeCommand, NodeId, QuorumNode,
    Vote, WriteBack, WriteBackReply, end_of_majority, majority, proven,
};
use crate::validity::{MARGIN, validity_time};

const LEASE: Duration = Duration::from_secs(10);
const NOW: Moment = Moment::ORIGIN;

fn at(ms: u64) -> Moment {
    NOW.after(Duration::from_millis(ms))
}

/// A ballot whose nodes are asked a millisecond after each other.
fn asked(nodes: usize) -> Ballot {
    let mut ballot = Ballot::new(nodes, LEASE);
    for (node, ms) in (0..nodes).zip(0..) {
        ballot.asked(node, at(ms));
    }
    ballot
}

fn granted(last: u64) -> Vote {
    Vote::Granted { last: token(last) }
}

fn won(number: u64, sent_ms: u64) -> BallotOutcome {
    let valid_until = at(sent_ms).after(validity_time(LEASE, 0));
    BallotOutcome::Won { token: token(number), valid_until }
}

fn writes(ballot: &mut Ballot) -> Vec<(usize, u64)> {
    let commands = ballot.take_write_backs().into_iter();
    commands.map(|WriteBack { node, token }| (node, token.get())).collect()
}

#[test]
fn a_majority_is_more_than_half() {
    for (nodes, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
        assert_eq!(majority(nodes), needed);
    }
}

#[test]
fn a_majority_ends_with_its_earliest_end() {
    for (ends, nodes, end) in [
        (vec![], 1, None),
        (vec![5], 1, Some(5)),
        (vec![5], 3, None),
        (vec![5, 3], 3, Some(3)),
        (vec![3, 5, 4], 3, Some(4)),
        (vec![9, 1, 8], 5, Some(1)),
        (vec![9, 1, 8, 7], 5, Some(7)),
    ] {
        assert_eq!(end_of_majority(ends.clone(), nodes), end, "{ends:?} of {nodes}");
    }
}

#[test]
fn a_recorded_token_is_proven_by_a_majority_of_all_nodes() {
    for (tokens, nodes, found) in [
        (vec![], 1, None),
        (vec![7], 1, Some(7)),
        (vec![7], 3, None),
        (vec![7, 9], 3, None),
        (vec![7, 9, 9], 3, Some(9)),
        (vec![7, 7, 9, 9], 5, None),
        (vec![9, 7, 9, 7, 7], 5, Some(7)),
    ] {
        let recorded: Vec<_> = tokens.iter().copied().map(token).collect();
        assert_eq!(proven(&recorded, nodes), found.map(token), "{tokens:?} of {nodes}");
    }
}

#[test]
fn equal_answers_of_a_majority_win_in_one_round() {
    let mut ballot = asked(5);
    for node in [4, 0] {
        ballot.voted(node, granted(7));
        assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending);
    }
    ballot.voted(2, granted(7));
    // Counted from the vote that was asked for first: without it the rest is no majority.
    assert_eq!(ballot.decide(at(5)), won(7, 0));
    assert!(writes(&mut ballot).is_empty());
}

#[test]
fn the_lease_is_valid_while_a_majority_of_the_evidence_is() {
    let mut ballot = asked(3);
    for node in 0..3 {
        ballot.voted(node, granted(7));
    }
    assert_eq!(ballot.decide(at(5)), won(7, 1), "the vote of the first node is not needed");
}

#[test]
fn different_answers_take_a_second_round() {
    let mut ballot = asked(3);
    ballot.voted(0, granted(4));
    ballot.voted(1, granted(9));
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending);
    assert_eq!(writes(&mut ballot), [(0, 9)]);
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending, "no answer arrived since");
    assert!(writes(&mut ballot).is_empty(), "and nothing is written twice");
    ballot.written(0, WriteBackReply::Counter(token(9)));
    assert_eq!(ballot.decide(at(6)), won(9, 0));
}

#[test]
fn a_counter_that_stood_higher_raises_the_token() {
    let mut ballot = asked(3);
    ballot.refused(2, NoVote::Unreached);
    ballot.voted(0, granted(4));
    ballot.voted(1, granted(9));
    ballot.decide(at(5));
    assert_eq!(writes(&mut ballot), [(0, 9)]);
    ballot.written(0, WriteBackReply::Counter(token(12)));
    assert_eq!(ballot.decide(at(6)), BallotOutcome::Pending, "higher is no proof");
    assert_eq!(writes(&mut ballot), [(1, 12)]);
    ballot.written(1, WriteBackReply::Counter(token(12)));
    assert_eq!(ballot.decide(at(7)), won(12, 0));
}

#[test]
fn a_late_vote_does_not_raise_what_is_nearly_proven() {
    let mut ballot = asked(5);
    for (node, last) in [(0, 4), (1, 4), (2, 6)] {
        ballot.voted(node, granted(last));
    }
    ballot.decide(at(5));
    assert_eq!(writes(&mut ballot), [(0, 6), (1, 6)]);
    ballot.voted(3, granted(99));
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending);
    assert!(writes(&mut ballot).is_empty());
    ballot.written(0, WriteBackReply::Counter(token(6)));
    ballot.decide(at(6));
    ballot.written(1, WriteBackReply::Counter(token(6)));
    assert_eq!(ballot.decide(at(6)), won(6, 0));
}

#[test]
fn a_name_that_passed_to_another_lease_proves_nothing() {
    let mut ballot = asked(3);
    ballot.refused(2, NoVote::Busy);
    ballot.voted(0, granted(4));
    ballot.voted(1, granted(9));
    ballot.decide(at(5));
    ballot.written(0, WriteBackReply::NotHeld);
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Lost);
    assert_eq!(ballot.to_undo().collect::<Vec<_>>(), [1]);
}

#[test]
fn an_attempt_is_lost_as_soon_as_no_majority_is_possible() {
    let mut ballot = asked(5);
    ballot.voted(0, granted(4));
    for (node, why) in [(1, NoVote::Busy), (2, NoVote::Abstained)] {
        ballot.refused(node, why);
        assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending);
    }
    ballot.unanswered(3);
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Lost);
    // One granted it, one may have granted it, and one has not answered yet.
    assert_eq!(ballot.to_undo().collect::<Vec<_>>(), [0, 3, 4]);
}

#[test]
fn skipped_nodes_do_not_vote_and_need_no_undo() {
    let mut ballot = Ballot::new(3, LEASE);
    ballot.asked(0, at(0));
    ballot.voted(0, granted(1));
    assert_eq!(ballot.decide(at(1)), BallotOutcome::Lost);
    assert_eq!(ballot.to_undo().collect::<Vec<_>>(), [0]);
    let mut one = asked(1);
    one.voted(0, granted(1));
    assert_eq!(one.decide(at(1)), won(1, 0));
}

#[test]
fn expired_votes_do_not_count() {
    let mut ballot = asked(3);
    ballot.voted(0, granted(7));
    ballot.voted(1, granted(7));
    let end = NOW.after(LEASE).before(MARGIN);
    assert_eq!(ballot.decide(end), BallotOutcome::Pending, "the third may still vote");
    ballot.refused(2, NoVote::Busy);
    assert_eq!(ballot.decide(end), BallotOutcome::Lost);
}

#[test]
fn a_write_back_that_is_not_answered_is_no_proof() {
    let mut ballot = asked(3);
    ballot.refused(2, NoVote::Unreached);
    ballot.voted(0, granted(4));
    ballot.voted(1, granted(9));
    ballot.decide(at(5));
    ballot.unanswered(0);
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Lost);
    assert_eq!(ballot.to_undo().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn pending_votes_and_pending_write_backs_are_awaited() {
    let awaited = |ballot: &Ballot| ballot.awaited().collect::<Vec<_>>();
    let mut ballot = asked(5);
    assert_eq!(awaited(&ballot), [0, 1, 2, 3, 4]);
    ballot.voted(0, granted(9));
    ballot.voted(1, granted(4));
    ballot.refused(3, NoVote::Busy);
    ballot.unanswered(4);
    assert_eq!(awaited(&ballot), [2]);
    // The deadline of a request that was answered in time.
    ballot.unanswered(1);
    ballot.voted(2, granted(9));
    assert_eq!(ballot.decide(at(5)), BallotOutcome::Pending);
    assert_eq!((writes(&mut ballot), awaited(&ballot)), (vec![(1, 9)], vec![1]));
    ballot.written(1, WriteBackReply::Counter(token(9)));
    assert!(awaited(&ballot).is_empty());
    assert_eq!(ballot.decide(at(5)), won(9, 0));
}

#[test]
fn evidence_that_ends_now_does_not_win() {
    let mut ballot = asked(3);
    ballot.voted(0, granted(7));
    ballot.voted(1, granted(4));
    ballot.decide(at(5));
    assert_eq!(writes(&mut ballot), [(1, 7)]);
    ballot.written(1, WriteBackReply::Counter(token(7)));
    ballot.voted(2, granted(5));
    // Of the majority that reported 7, the first vote ends now. The other two votes are valid.
    let now = NOW.after(validity_time(LEASE, 0));
    assert_eq!(ballot.decide(now), BallotOutcome::Pending);
    assert_eq!(writes(&mut ballot), [(2, 7)]);
    ballot.written(2, WriteBackReply::Counter(token(7)));
    assert_eq!(ballot.decide(now), won(7, 1));
}

#[test]
fn a_decision_is_final() {
    let mut ballot = asked(3);
    ballot.voted(0, granted(7));
    ballot.voted(1, granted(7));
    let outcome = ballot.decide(at(5));
    assert_eq!(outcome, won(7, 0));
    ballot.voted(2, granted(8));
    assert_eq!(ballot.decide(at(90_000)), outcome);
    assert!(writes(&mut ballot).is_empty());
    // A late vote must be undone all the same.
    assert_eq!(ballot.to_undo().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn unsolicited_answers_change_nothing() {
    let mut ballot = Ballot::new(3, LEASE);
    let fresh = ballot.clone();
    ballot.voted(0, granted(7));
    ballot.voted(7, granted(7));
    ballot.asked(7, NOW);
    ballot.written(1, WriteBackReply::Counter(token(9)));
    ballot.refused(2, NoVote::Busy);
    ballot.unanswered(2);
    assert_eq!(ballot, fresh);
}

#[test]
fn a_register_raises_its_counter_with_each_grant_and_never_lowers_it() {
    let mut register = NameRegister::default();
    let grant = |register: &mut NameRegister, number, floor, proposed| {
        register.acquire(id(number), floor, proposed).expect("in range")
    };
    assert_eq!(grant(&mut register, 1, 0, 0), granted(1));
    assert_eq!(
        grant(&mut register, 1, 50, 90),
        granted(1),
        "a repeated request gets the same answer"
    );
    assert_eq!(grant(&mut register, 2, 0, 0), Vote::Busy);
    assert!(!register.release(id(2)) && register.release(id(1)));
    assert_eq!(grant(&mut register, 2, 0, 90), granted(90), "as proposed");
    register.expire();
    assert_eq!(grant(&mut register, 3, 0, 40), granted(91), "a proposal lowers nothing");
    register.expire();
    assert_eq!(grant(&mut register, 4, 200, 0), granted(201), "above what the node knows of");
    assert_eq!(register.write_back(id(3), token(300)), WriteBackReply::NotHeld);
    assert_eq!(register.write_back(id(4), token(300)), WriteBackReply::Counter(token(300)));
    assert_eq!(register.write_back(id(4), token(250)), WriteBackReply::Counter(token(300)));
    assert!(!register.heal(id(5), 0, token(400)), "it is held");
    register.expire();
    register.acquire(id(5), u64::MAX, 0).expect_err("the counter is exhausted");
    assert_eq!((register.last(), register.holder()), (300, None));
    assert!(
        register.heal(id(5), 0, token(250)),
        "healing raises the counter no higher than its token"
    );
    assert_eq!((register.last(), register.holder()), (300, Some(id(5))));
    register.expire();
    assert!(register.heal(id(5), 320, token(310)) && register.last() == 320);
}

#[test]
fn a_healed_record_is_no_vote_and_no_evidence() {
    let mut register = NameRegister::default();
    assert_eq!((register.recorded(id(1)), register.evidence(id(1))), (None, None));
    register.acquire(id(1), 0, 7).expect("in range");
    assert_eq!(register.recorded(id(1)), Some(token(7)));
    assert_eq!(register.evidence(id(1)), Some(token(7)));
    assert_eq!((register.recorded(id(2)), register.evidence(id(2))), (None, None));
    register.expire();
    assert_eq!((register.recorded(id(1)), register.evidence(id(1))), (None, None));
    // It is healed with its own token, where the counter stands higher.
    assert!(register.heal(id(1), 9, token(7)));
    assert_eq!((register.recorded(id(1)), register.evidence(id(1))), (Some(token(7)), None));
    assert_eq!((register.recorded(id(2)), register.evidence(id(2))), (None, None));
    assert_eq!(register.acquire(id(1), 0, 0), Ok(Vote::Healed));
    assert_eq!(register.acquire(id(2), 0, 0), Ok(Vote::Busy));
    assert_eq!(register.write_back(id(1), token(12)), WriteBackReply::NotHeld);
    assert_eq!(register.last(), 9);
}

#[test]
fn a_node_uses_its_floor_beside_a_counter_and_its_largest_token_without_one() {
    let mut node = QuorumNode::blank("first".to_owned(), NodeId::from_bytes([1; 16]));
    node.raise(9);
    assert_eq!((node.floor(0), node.floor(5)), (9, 0));
    node.raise_floor(7);
    assert_eq!((node.floor(0), node.floor(5)), (9, 7));
    node.raise_floor(11);
    assert!(
        node.handshake(&run("second"), NodeId::from_bytes([2; 16])),
        "it belongs to no set yet"
    );
    assert_eq!(
        (node.floor(0), node.floor(5)),
        (11, 11),
        "a floor raised by an operator survives that"
    );
}

#[test]
fn a_floor_from_a_clock_is_above_tokens_ahead_of_that_clock() {
    const INITIALISED: u64 = 1_000_000_000;
    let id = NodeId::from_bytes([1; 16]);
    let configuration = Configuration::initial(&[(id, "a")], LEASE);
    let stamp = configuration.stamp();
    let mut node = QuorumNode::blank("first".to_owned(), id);
    let mut apply = |command, now| assert!(node.apply("first", command, now));
    apply(NodeCommand::Propose { from: None, configuration }, INITIALISED);
    apply(NodeCommand::Activate { stamp, quarantine: LEASE }, INITIALISED);
    // An operator ends the quarantine, so no time passes between the old grants and the new.
    let mut apply = |command, now| assert!(node.apply("first", command, now));
    apply(NodeCommand::Vouch { episode: id }, INITIALISED + 5);
    assert_eq!(node.floor(1), INITIALISED + 1_000_005);
}
