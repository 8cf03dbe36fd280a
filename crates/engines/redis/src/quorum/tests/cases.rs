//! Each reply once, and the keys that remain.

use std::time::Duration;

use holdline_core::quorum::node::Run;
use holdline_core::quorum::{Configuration, MemberState, NodeCommand, VoteRefusal, WriteBackReply};
use holdline_core::{GrantState, Hold, OperationReply, ReleaseReply};
use holdline_services::{Flavour, Reply};

use super::test_node::{
    COUNTER, HOLD, LOCK, MARKER, NODE, TestNode, configuration, keep, lease_id, name, node_id,
    request, token, why,
};
use crate::quorum::replies::EpochProof;
use crate::quorum::replies::{NodeRenewal, VoteReply};
use crate::quorum::requests::AcquireKind;

/// A token too far ahead of every clock in a test.
const FAR: u64 = 9_000_000_000_000_000;

#[tokio::test]
async fn a_set_is_initialised_and_votes() {
    for flavour in Flavour::ALL {
        let (node, proof) = TestNode::voting(flavour).await;
        let reply = node.handshake(MARKER, 9).await.expect("ours");
        assert!(reply.accepted);
        assert_eq!((reply.report.id, reply.report.state), (node_id(1), MemberState::Voting));
        assert_eq!(reply.report.configuration, Some(configuration()));
        let initial_floor = reply.report.largest;
        let ahead = reply.time_us + 1_000_000;
        assert!(
            initial_floor > 0 && initial_floor <= ahead,
            "the clock is the first floor, and a second"
        );
        // A proposed token is used if it is larger than every granted token.
        let wanted = ahead;
        assert_eq!(node.take(&proof, 1, wanted).await, wanted, "{flavour:?}");
        let again = node.acquire(&proof, &request(1), wanted + 5, AcquireKind::First).await;
        let Ok(VoteReply::Held { last, left }) = again else { panic!("{again:?}") };
        assert_eq!(last, token(wanted), "the same token again");
        assert!(Some(left) <= HOLD.duration(), "at most the time left");
        assert!(matches!(
            node.release(1, None).await.expect("released"),
            ReleaseReply::Released { .. }
        ));
        assert_eq!(node.take(&proof, 2, 7).await, wanted + 1, "otherwise one more");
        assert_eq!(node.keys().await, [NODE, LOCK, COUNTER]);
    }
}

#[tokio::test]
async fn a_token_is_not_further_ahead_than_the_skew_allows() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let before = node.handshake(MARKER, 9).await.expect("ours").time_us;
    let given = node.take(&proof, 1, FAR).await;
    let after = node.handshake(MARKER, 9).await.expect("ours").time_us;
    assert!((before + 1_000_000..=after + 1_000_000).contains(&given), "{given}");
    // A counter further ahead is incremented.
    assert_eq!(node.raise(FAR).await.expect("raised"), OperationReply::Done);
    node.release(1, None).await.expect("released");
    assert_eq!(node.take(&proof, 2, given).await, FAR + 1);
}

#[tokio::test]
async fn a_refused_client_learns_the_holder_and_is_notified() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let given = node.take(&proof, 1, 1).await;
    let asked = node.acquire(&proof, &request(2), 1, AcquireKind::First).await.expect("an answer");
    let VoteReply::Busy { holder: Some(holder), left: Some(left) } = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((holder.lease_id, holder.token), (lease_id(1).short(), Some(token(given))));
    assert!(left > Duration::ZERO && Some(left) <= HOLD.duration());
    assert_eq!(node.text(&["GETRANGE", LOCK, "33", "33"]).await.as_deref(), Some("w"));
    let channel = node.context.layout.wake(&name("a"));
    let mut subscriber = node.server().raw();
    subscriber.send(&[b"SUBSCRIBE", &channel[..]]).expect("subscribed");
    let released = node.release(1, None).await.expect("released");
    assert!(matches!(released, ReleaseReply::Released { held_for: Some(_) }), "{released:?}");
    let message = subscriber.read().expect("a message");
    let words: Vec<String> =
        message.items().expect("a message").iter().filter_map(Reply::text).collect();
    assert_eq!(words, ["message", "holdline:wake:holdline:{a}", ""]);
}

#[tokio::test]
async fn a_request_without_the_proof_is_rejected() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let stamp = configuration().stamp();
    let (other, later) = (EpochProof::new("run-2", stamp), configuration().successor(&[]));
    let old = EpochProof::new(MARKER, later.stamp());
    node.take(&proof, 1, 1).await;
    let record = node.record(1).await.expect("an answer").expect("held");
    for (shown, expected) in [(&other, VoteRefusal::Marker), (&old, VoteRefusal::Configuration)] {
        let voted =
            node.acquire(shown, &request(1), 1, AcquireKind::First).await.expect("an answer");
        assert_eq!(voted, VoteReply::Refused(expected));
        assert_eq!(why(node.write_back(shown, 1, 5).await), expected);
        assert_eq!(why(node.renew(shown, &[keep(1, HOLD)]).await), expected);
        assert_eq!(why(node.heal(shown, 1, &record).await), expected);
    }
    let replaced = later.successor(&[(node_id(1), node_id(7), "d:4")]);
    let adopt = NodeCommand::Adopt { from: Some(stamp), configuration: replaced.clone() };
    assert!(node.send_command(MARKER, &adopt).await.expect("a reply"));
    let out = EpochProof::new(MARKER, replaced.stamp());
    assert_eq!(why(node.write_back(&out, 1, 5).await), VoteRefusal::State(MemberState::Replaced));
    node.raw(&["FLUSHALL"]).await;
    assert_eq!(why(node.write_back(&proof, 1, 5).await), VoteRefusal::Marker);
    assert!(node.keys().await.is_empty(), "a rejected request writes nothing");
}

#[tokio::test]
async fn a_token_is_written_back_only_to_the_holder() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let given = node.take(&proof, 1, 1).await;
    let higher = given + 100;
    let counter_at = |number| Ok(Ok(WriteBackReply::Counter(token(number))));
    assert_eq!(node.write_back(&proof, 1, higher).await, counter_at(higher));
    assert_eq!(node.write_back(&proof, 1, given).await, counter_at(higher), "it never falls");
    assert_eq!(node.write_back(&proof, 2, higher + 9).await, Ok(Ok(WriteBackReply::NotHeld)));
    let shown = node.inspect().await.expect("shown").expect("held");
    assert_eq!(shown.summary.token, Some(token(higher)));
    node.release(1, None).await.expect("released");
    assert_eq!(node.write_back(&proof, 1, higher + 9).await, Ok(Ok(WriteBackReply::NotHeld)));
    assert_eq!(node.take(&proof, 3, 1).await, higher + 1);
    // If the counter of the name is gone, the largest token of the node counts.
    node.release(3, None).await.expect("released");
    node.raw(&["DEL", COUNTER]).await;
    assert_eq!(node.take(&proof, 4, 1).await, higher + 2);
}

#[tokio::test]
async fn an_undone_lease_id_never_comes_back() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let minute = Some(Duration::from_secs(60));
    let nothing = ReleaseReply::NotHeld { revoked: None };
    assert_eq!(node.release(1, minute).await.expect("an answer"), nothing);
    let voted = node.acquire(&proof, &request(1), 1, AcquireKind::First).await.expect("an answer");
    assert_eq!(voted, VoteReply::Cancelled { revoked: None });
    node.take(&proof, 2, 1).await;
    let record = node.record(2).await.expect("an answer").expect("held");
    assert!(record.heals() && !format!("{record:?}").contains("0202"));
    node.release(2, minute).await.expect("released");
    assert_eq!(node.heal(&proof, 2, &record).await, Ok(Ok(false)));
    assert_eq!(node.number(&["EXISTS", LOCK]).await, Some(0));
    let left = node.number(&["PTTL", "holdline:{a}:1t:02020202020202020202020202020202"]).await;
    assert!(left.is_some_and(|left| left > 30_000), "{left:?}");
}

#[tokio::test]
async fn a_lease_is_renewed_and_never_shortened() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    node.take(&proof, 1, 1).await;
    let minute = Duration::from_secs(60);
    let kept = node.renew_one(&proof, 1, Hold::Leased(minute)).await;
    assert_eq!(kept, NodeRenewal::Kept { left: minute });
    let kept = node.renew_one(&proof, 1, Hold::Detached(Duration::from_secs(1))).await;
    let NodeRenewal::Kept { left } = kept else { panic!("{kept:?}") };
    assert!(left > Duration::from_secs(30));
    assert!(node.inspect().await.expect("shown").expect("held").detached);
    node.renew_one(&proof, 1, HOLD).await;
    assert!(!node.inspect().await.expect("shown").expect("held").detached);
    assert_eq!(node.renew_one(&proof, 2, HOLD).await, NodeRenewal::Gone { free: false });
    node.release(1, None).await.expect("released");
    assert_eq!(node.renew_one(&proof, 1, HOLD).await, NodeRenewal::Gone { free: true });
}

#[tokio::test]
async fn a_lost_lease_is_healed_where_the_name_is_free() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let given = node.take(&proof, 1, 1).await;
    let record = node.record(1).await.expect("an answer").expect("held");
    assert_eq!(node.heal(&proof, 1, &record).await, Ok(Ok(false)), "it is held");
    assert_eq!(node.record(2).await.expect("an answer"), None);
    node.raw(&["DEL", LOCK, COUNTER]).await;
    assert_eq!(node.heal(&proof, 1, &record).await, Ok(Ok(true)));
    let kept = node.renew_one(&proof, 1, HOLD).await;
    assert!(matches!(kept, NodeRenewal::Kept { .. }), "{kept:?}");
    assert_eq!(node.text(&["GET", COUNTER]).await, Some(format!("{given:016}")));
    for asked in [AcquireKind::First, AcquireKind::Known] {
        let voted = node.acquire(&proof, &request(1), given + 9, asked).await;
        assert!(matches!(voted, Ok(VoteReply::Healed { .. })), "{asked:?}: {voted:?}");
    }
    let written = node.write_back(&proof, 1, given + 9).await;
    assert_eq!(written, Ok(Ok(WriteBackReply::NotHeld)), "it proves no token");
    node.release(1, None).await.expect("released");
    assert_eq!(node.take(&proof, 2, 1).await, given + 1);
}

#[tokio::test]
async fn a_grant_is_revoked_politely_or_now() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    node.take(&proof, 1, 1).await;
    let none = lease_id(2).short();
    assert_eq!(node.revoke(none, "", false).await, Ok(OperationReply::NothingThere));
    let revoked = node.revoke(lease_id(1).short(), "enough", false).await;
    assert!(matches!(revoked, Ok(OperationReply::Notified { left: Some(_) })), "{revoked:?}");
    let kept = node.renew_one(&proof, 1, HOLD).await;
    let NodeRenewal::Revoked { reason, left } = kept else { panic!("{kept:?}") };
    assert!(reason == "enough" && left > Duration::ZERO);
    let shown = node.inspect().await.expect("shown").expect("held");
    assert_eq!(shown.state, GrantState::Revoked("enough".to_owned()));
    let record = node.record(1).await.expect("an answer").expect("held");
    assert!(!record.heals());
    let now = node.revoke(lease_id(1).short(), "now", true).await;
    assert_eq!(now, Ok(OperationReply::Done));
    let (reason, left) = ("now".to_owned(), Duration::ZERO);
    assert_eq!(node.renew_one(&proof, 1, HOLD).await, NodeRenewal::Revoked { reason, left });
    let voted = node.acquire(&proof, &request(1), 1, AcquireKind::First).await.expect("an answer");
    assert_eq!(voted, VoteReply::Cancelled { revoked: Some("now".to_owned()) });
    let revoked = Some("now".to_owned());
    assert_eq!(node.release(1, None).await, Ok(ReleaseReply::NotHeld { revoked }));
    node.take(&proof, 2, 1).await;
}

#[tokio::test]
async fn a_node_that_lost_its_data_is_readmitted_above_its_floor() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    node.take(&proof, 1, 1).await;
    let reply = node.handshake("run-2", 4).await.expect("ours");
    assert!(reply.accepted);
    assert_eq!((reply.report.id, reply.report.previous_id), (node_id(4), Some(node_id(1))));
    assert_eq!(reply.report.state, MemberState::Recovering);
    assert_eq!(why(node.write_back(&proof, 1, 5).await), VoteRefusal::Marker);
    let next = configuration().successor(&[(node_id(1), node_id(4), "a:1")]);
    let (from, stamp) = (Some(configuration().stamp()), next.stamp());
    let adopt = NodeCommand::Adopt { from, configuration: next };
    assert!(!node.send_command(MARKER, &adopt).await.expect("a reply"), "under the old marker");
    assert!(node.send_command("run-2", &adopt).await.expect("a reply"));
    let whole = Duration::from_secs(600);
    let begin = NodeCommand::BeginQuarantine {
        episode: node_id(4),
        stamp,
        quarantine: whole,
        by_time: false,
        floor: FAR,
    };
    // The time that a client measured counts once, and nothing else ends the quarantine.
    let waited = |seconds| {
        let passed = Duration::from_secs(seconds);
        NodeCommand::ReportWait { episode: node_id(4), left: whole, passed }
    };
    let vouch = NodeCommand::Vouch { episode: node_id(4) };
    for (command, fits, what) in [
        (&waited(600), false, "the quarantine has not begun"),
        (&begin, true, "it begins"),
        (&begin, false, "it has begun"),
        (&vouch, false, "a majority has its data"),
        (&waited(599), true, "one second is left"),
        (&waited(599), false, "the same time again"),
    ] {
        let accepted = node.send_command("run-2", command).await.expect("a reply");
        assert_eq!(accepted, fits, "{what}");
    }
    let reply = node.handshake(MARKER, 5).await.expect("ours");
    assert!(!reply.accepted, "two servers behind one address");
    let reply = node.handshake("run-2", 5).await.expect("ours");
    assert_eq!(reply.report.quarantine, Some((Duration::from_secs(1), false)));
    assert!(node.send_command("run-2", &waited(601)).await.expect("a reply"));
    let reply = node.handshake("run-2", 6).await.expect("ours");
    assert_eq!(
        (reply.report.state, reply.report.previous_id, reply.report.largest),
        (MemberState::Voting, None, FAR)
    );
    node.release(1, None).await.expect("released");
    // The counter of the name is still there, and old.
    assert_eq!(node.take(&EpochProof::new("run-2", stamp), 7, 1).await, FAR + 1);
}

/// A server that was a replica for a while has the same run, and the data of its former master.
#[tokio::test]
async fn a_node_that_was_a_replica_has_lost_its_data() {
    let (node, proof) = TestNode::voting(Flavour::Debian).await;
    let replica_until = Some("0123456789abcdef:15".to_owned());
    let run = Run { marker: MARKER.to_owned(), replica_until };
    for fresh in [4, 5] {
        let reply = node.handshake_of(&run, fresh).await.expect("ours");
        assert_eq!((reply.accepted, reply.report.id), (true, node_id(4)), "once");
        assert_eq!(reply.report.state, MemberState::Recovering);
    }
    let state = VoteRefusal::State(MemberState::Recovering);
    assert_eq!(why(node.write_back(&proof, 1, 5).await), state);
    // The server forgets it in time.
    let reply = node.handshake(MARKER, 6).await.expect("ours");
    assert_eq!(reply.report.id, node_id(4));
    // Its replica takes over, and later gives it the data back.
    node.handshake("run-2", 7).await.expect("ours");
    let reply = node.handshake_of(&run, 8).await.expect("ours");
    assert_eq!((reply.accepted, reply.report.id), (false, node_id(7)), "two servers in turn");
    let run = Run { replica_until: Some("fedcba9876543210:20".to_owned()), ..run };
    let reply = node.handshake_of(&run, 8).await.expect("ours");
    assert_eq!((reply.accepted, reply.report.id), (true, node_id(8)));
}

/// Another node is given the slot of a node in quarantine, and then the first one again: it is out.
#[tokio::test]
async fn a_node_whose_tenure_is_over_keeps_nothing_of_it() {
    for receives_each in [true, false] {
        let node = TestNode::new(Flavour::Debian);
        node.initialise().await;
        node.handshake("run-2", 4).await.expect("ours");
        let first = configuration().successor(&[(node_id(1), node_id(4), "a:1")]);
        let between = first.successor(&[(node_id(4), node_id(9), "x:9")]);
        let again = between.successor(&[(node_id(9), node_id(4), "a:1")]);
        let begin = NodeCommand::BeginQuarantine {
            episode: node_id(4),
            stamp: first.stamp(),
            quarantine: Duration::from_secs(9),
            by_time: true,
            floor: 7,
        };
        let adopt = |from: &Configuration, next: &Configuration| NodeCommand::Adopt {
            from: Some(from.stamp()),
            configuration: next.clone(),
        };
        let mut commands = vec![adopt(&configuration(), &first), begin];
        if receives_each {
            commands.extend([adopt(&first, &between), adopt(&between, &again)]);
        } else {
            commands.push(adopt(&first, &again));
        }
        for command in commands {
            assert!(node.send_command("run-2", &command).await.expect("a reply"), "{command:?}");
        }
        let report = node.handshake("run-2", 5).await.expect("ours").report;
        assert_eq!(
            (report.state, report.quarantine),
            (MemberState::Replaced, None),
            "{receives_each}"
        );
        let vouch = NodeCommand::Vouch { episode: node_id(4) };
        assert!(!node.send_command("run-2", &vouch).await.expect("a reply"));
        // Restarted, it stays out.
        let report = node.handshake("run-3", 6).await.expect("ours").report;
        assert_eq!((report.state, report.id), (MemberState::Replaced, node_id(6)));
    }
}
