//! How a set is initialised, and how nodes that lose their data are readmitted.

use std::time::Duration;

use super::set::{TestSet, address, desired, node_id, run};
use crate::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP, MAX_NODES, quarantine_of};
use crate::quorum::node::Run;
use crate::quorum::{
    Configuration, DesiredConfiguration, MemberState, NodeCommand, NodeId, NodeReport, QuorumNode,
    SetStatus, VoteRefusal, plan, replacements,
};

fn agreed(status: &SetStatus) -> &Configuration {
    match status {
        SetStatus::Agreed(configuration) => configuration,
        other => panic!("not agreed: {other:?}"),
    }
}

#[test]
fn a_set_that_an_operator_initialises_votes_when_it_vouches() {
    let mut set = TestSet::blank(3);
    let desired = desired(3, true);
    let first = set.step(&desired);
    assert_eq!(first.status, SetStatus::Uninitialised { silent: vec![] });
    assert_eq!(set.states(), [MemberState::Proposed; 3]);
    assert_eq!(set.votes(), 0, "a proposed node does not vote");
    set.step(&desired);
    assert_eq!((set.states(), set.votes()), (vec![MemberState::Recovering; 3], 0));
    set.step(&desired);
    assert_eq!(set.states(), [MemberState::Voting; 3]);
    assert!(set.configuration(0).is_new());
    let status = set.settle(&desired);
    let configuration = agreed(&status);
    assert_eq!((configuration.epoch(), configuration.max_lease()), (2, DEFAULT_MAX_LEASE));
    assert_eq!(configuration.quarantine(), quarantine_of(DEFAULT_MAX_LEASE), "from now on");
    assert_eq!(set.votes(), 3);
    assert!(set.nodes.iter().all(|node| node.largest == set.ahead()), "tokens start there");
}

#[test]
fn a_set_that_a_client_initialises_votes_after_the_longest_quarantine() {
    let mut set = TestSet::blank(3);
    let desired = desired(3, false);
    set.settle(&desired);
    assert_eq!((set.states(), set.votes()), (vec![MemberState::Recovering; 3], 0));
    set.pass(MAX_LEASE_CAP);
    set.settle(&desired);
    assert_eq!(set.votes(), 0, "the quarantine allows for a fast clock");
    set.pass_cap();
    set.settle(&desired);
    assert_eq!((set.states(), set.votes()), (vec![MemberState::Voting; 3], 3));
    assert!(set.nodes.iter().all(|node| node.largest == set.ahead()));
}

#[test]
fn no_set_is_initialised_while_a_node_is_silent() {
    let mut set = TestSet::blank(3);
    set.silent = vec![1];
    let status = set.settle(&desired(3, true));
    assert_eq!(status, SetStatus::Uninitialised { silent: vec![1] });
    assert_eq!(set.states(), [MemberState::Blank; 3]);
    // And a proposal is not enough to activate.
    set.silent.clear();
    set.step(&desired(3, true));
    set.silent = vec![1];
    set.settle(&desired(3, true));
    assert_eq!(set.states(), [MemberState::Proposed; 3]);
}

/// A client begins while another one initialises the set, and two nodes do not answer it yet.
#[test]
fn a_client_that_does_not_reach_all_nodes_of_a_proposal_waits_for_them() {
    let mut set = TestSet::blank(5);
    set.step(&desired(5, false));
    set.change_client();
    set.silent = vec![0, 1];
    let status = set.settle(&desired(5, false));
    assert_eq!(status, SetStatus::Uninitialised { silent: vec![0, 1] });
    // Where all answer, a member that is nowhere may be on another list.
    set.silent.clear();
    set.wipe(0, "again");
    assert!(matches!(set.settle(&desired(5, false)), SetStatus::Foreign { .. }));
}

#[test]
fn initialisation_continues_where_another_client_stopped() {
    let mut set = TestSet::blank(3);
    let desired = desired(3, true);
    let first = plan(&set.reports(), &desired).steps;
    for (node, command) in first.into_iter().take(2) {
        assert!(set.send(node, command));
    }
    // The third received nothing, and the second lost its data.
    set.remember();
    set.wipe(1, "second");
    let seen = std::mem::replace(&mut set.last_seen, vec![None; 3]);
    let status = set.settle(&desired);
    assert!(matches!(status, SetStatus::Foreign { .. }), "the names may lead elsewhere");
    set.last_seen = seen;
    set.settle(&desired);
    assert_eq!((set.states(), set.votes()), (vec![MemberState::Voting; 3], 3));
    assert_eq!(set.configuration(0).epoch(), 3, "another proposal than the first");
    // A node receives the activation late.
    let mut set = TestSet::blank(3);
    set.step(&desired);
    let mut late = plan(&set.reports(), &desired).steps;
    let (node, command) = late.remove(0);
    assert!(set.send(node, command));
    set.settle(&desired);
    assert_eq!(set.states(), [MemberState::Voting; 3]);
}

#[test]
fn concurrent_clients_propose_the_same_configuration() {
    let one = Configuration::initial(&[(node_id(1), "a"), (node_id(2), "b")], DEFAULT_MAX_LEASE);
    let other = Configuration::initial(&[(node_id(2), "x"), (node_id(1), "y")], DEFAULT_MAX_LEASE);
    assert_eq!(one.stamp(), other.stamp(), "addresses and order do not matter");
    let longer = Configuration::initial(&[(node_id(1), "a"), (node_id(2), "b")], MAX_LEASE_CAP);
    assert_eq!(one.set(), longer.set());
    assert_ne!(one.stamp(), longer.stamp());
    // Clients want different leases: the longer one wins, as a later proposal.
    let mut set = TestSet::blank(3);
    let (short, mut long) = (desired(3, true), desired(3, true));
    long.max_lease = MAX_LEASE_CAP;
    let steps = [plan(&set.reports(), &short).steps, plan(&set.reports(), &long).steps];
    assert!(set.send(0, steps[0][0].1.clone()));
    assert!(!set.send(0, steps[1][0].1.clone()), "it has accepted another in the meantime");
    assert!(set.send(1, steps[1][1].1.clone()));
    let status = set.settle(&short);
    assert_eq!((agreed(&status).max_lease(), agreed(&status).epoch()), (MAX_LEASE_CAP, 2));
    assert_eq!(set.votes(), 3);
}

#[test]
fn two_lists_of_nodes_never_share_one() {
    // The last node is in both lists.
    let mut left = TestSet::blank(3);
    let mut right = TestSet::blank(3);
    right.nodes[0] = QuorumNode::blank("first".to_owned(), node_id(11));
    right.nodes[1] = QuorumNode::blank("first".to_owned(), node_id(12));
    let mut theirs = desired(3, true);
    theirs.addresses[0] = "10.0.0.11:6379".to_owned();
    theirs.addresses[1] = "10.0.0.12:6379".to_owned();
    let late = plan(&right.reports(), &theirs).steps;
    left.step(&desired(3, true));
    right.nodes[2] = left.nodes[2].clone();
    for (node, command) in late {
        assert_eq!(right.send(node, command), node < 2, "the shared one has accepted another");
    }
    let status = right.settle(&theirs);
    assert!(matches!(status, SetStatus::Foreign { .. }), "{status:?}");
    left.settle(&desired(3, true));
    right.nodes[2] = left.nodes[2].clone();
    let status = right.settle(&theirs);
    assert!(matches!(status, SetStatus::Foreign { .. }), "{status:?}");
    assert_eq!((left.votes(), right.states()[0]), (3, MemberState::Proposed));
    // A list that lacks one of the others' nodes is a list of other nodes, too.
    let mut fewer = TestSet::blank(2);
    fewer.nodes = TestSet::blank(3).nodes;
    fewer.last_seen.push(None);
    fewer.step(&desired(3, true));
    fewer.nodes.pop();
    assert!(matches!(fewer.settle(&desired(2, true)), SetStatus::Foreign { .. }));
}

#[test]
fn a_node_that_lost_its_data_is_readmitted_after_a_quarantine_with_a_floor() {
    for (all_gone, others_silent) in
        [(true, vec![]), (false, vec![]), (false, vec![4]), (true, vec![4])]
    {
        let mut set = TestSet::initial(5);
        let desired = desired(5, false);
        set.nodes[1].raise(9_000_000);
        let old = set.nodes[2].id;
        match all_gone {
            true => set.wipe(2, "again"),
            false => assert!(set.restart(2, "again")),
        }
        set.silent.clone_from(&others_silent);
        assert_eq!(set.votes(), 4, "it does not vote from the first handshake on");
        let status = set.settle(&desired);
        let configuration = agreed(&status);
        assert_eq!(configuration.epoch(), 3);
        assert!(!configuration.has(old) && configuration.has(set.nodes[2].id));
        assert_eq!(
            (set.nodes[2].state, set.votes()),
            (MemberState::Recovering, 4 - others_silent.len())
        );
        set.pass(DEFAULT_MAX_LEASE);
        set.settle(&desired);
        assert_eq!(set.nodes[2].state, MemberState::Recovering, "the whole quarantine");
        set.pass_quarantine();
        set.settle(&desired);
        assert_eq!((set.nodes[2].state, set.nodes[2].largest), (MemberState::Voting, 9_000_000));
        set.silent.clear();
        set.settle(&desired);
        assert_eq!(set.votes(), 5);
    }
}

#[test]
fn the_quarantine_begins_after_a_majority_with_data_has_agreed() {
    let mut set = TestSet::initial(5);
    set.wipe(2, "again");
    set.silent = vec![3, 4];
    let status = set.settle(&desired(5, false));
    assert_eq!(agreed(&status).epoch(), 2, "two of five have their data: they may miss a change");
    assert_eq!(set.nodes[2].quarantine, None);
    // Two of three needed nodes have agreed: no quarantine begins.
    set.silent = vec![4];
    let change = plan(&set.reports(), &desired(5, false)).steps;
    for (node, command) in change.into_iter().filter(|(node, _)| *node != 3) {
        assert!(set.send(node, command));
    }
    let begins = |set: &TestSet| {
        let steps = plan(&set.reports(), &desired(5, false)).steps;
        steps.iter().any(|(_, command)| matches!(command, NodeCommand::BeginQuarantine { .. }))
    };
    assert!(!begins(&set), "nodes 0 and 1 have it, node 3 not yet");
    set.step(&desired(5, false));
    assert!(begins(&set));
}

/// Returns the quarantines that begin now: the node, whether by time, and the floor of each.
fn beginnings(set: &TestSet) -> Vec<(usize, bool, u64)> {
    let steps = plan(&set.reports(), &desired(set.nodes.len(), false)).steps.into_iter();
    let begun = steps.filter_map(|(node, command)| match command {
        NodeCommand::BeginQuarantine { by_time, floor, .. } => Some((node, by_time, floor)),
        _ => None,
    });
    begun.collect()
}

#[test]
fn without_a_majority_with_data_a_quarantine_begins_when_all_nodes_have_agreed() {
    const LARGEST: u64 = 9_000_000_000;
    let mut set = TestSet::initial(5);
    set.nodes[0].raise(LARGEST);
    for node in 0..3 {
        assert!(set.restart(node, "again"));
    }
    let change = plan(&set.reports(), &desired(5, false)).steps;
    for (node, command) in change.into_iter().filter(|(node, _)| *node != 4) {
        assert!(set.send(node, command));
    }
    assert_eq!(beginnings(&set), [], "node 4 votes under the former configuration");
    set.step(&desired(5, false));
    set.silent = vec![4];
    assert_eq!(beginnings(&set), [], "node 4 may know a larger token");
    set.silent.clear();
    let expected = [0, 1, 2].map(|node| (node, true, LARGEST));
    assert_eq!(beginnings(&set), expected, "the largest token of all nodes");
}

#[test]
fn the_floor_is_from_the_nodes_that_have_their_data() {
    let mut set = TestSet::initial(5);
    set.nodes[0].raise(9_000_000);
    set.nodes[1].raise(9_000_000_000);
    for node in [1, 2] {
        assert!(set.restart(node, "again"));
    }
    set.step(&desired(5, false));
    assert_eq!(beginnings(&set), [1, 2].map(|node| (node, false, 9_000_000)));
}

#[test]
fn slots_are_distinguished_when_several_nodes_lose_their_data() {
    // A wiped node knows nothing; its address shows its slot.
    let mut set = TestSet::initial(5);
    let old = [set.nodes[1].id, set.nodes[2].id];
    set.wipe(2, "again");
    set.silent = vec![1];
    set.change_client();
    let mut elsewhere = desired(5, false);
    elsewhere.addresses = (0..5).map(|node| format!("host-{node}")).collect();
    let status = set.settle(&elsewhere);
    assert!(old.iter().all(|id| agreed(&status).has(*id)), "which of the two came back?");
    let status = set.settle(&desired(5, false));
    assert!(old.iter().all(|id| agreed(&status).has(*id)), "does its address lead to the set?");
    let confirmed = DesiredConfiguration { by_address: true, ..desired(5, false) };
    let status = set.settle(&confirmed);
    assert!(agreed(&status).has(old[0]) && !agreed(&status).has(old[1]));
    set.silent.clear();
    set.pass_quarantine();
    set.settle(&desired(5, false));
    assert_eq!(set.votes(), 5);
}

/// A client reaches {1, 2, 9} where the set is {1, 2, 3}: node 9 is blank, and node 3 still runs.
/// It lists another address than that of node 3, or the same, which leads elsewhere for it.
#[test]
fn a_list_with_one_wrong_server_evicts_nobody() {
    for (silent, name) in [
        (None, "10.0.0.90:6379"),
        (Some(0), "10.0.0.90:6379"),
        (None, "10.0.0.2:6379"),
        (Some(0), "10.0.0.2:6379"),
    ] {
        let mut set = TestSet::initial(3);
        set.change_client();
        let third = set.nodes[2].clone();
        set.nodes[2] = QuorumNode::blank("first".to_owned(), node_id(90));
        let before = set.nodes.clone();
        let mut wrong = desired(3, false);
        name.clone_into(&mut wrong.addresses[2]);
        set.silent = silent.into_iter().collect();
        let planned = plan(&set.reports(), &wrong);
        assert_eq!((planned.mislisted, planned.steps.len()), (vec![2], 0), "silent: {silent:?}");
        assert_eq!(agreed(&planned.status).epoch(), 2);
        assert_eq!(set.nodes, before);
        set.nodes[2] = third;
        assert_eq!(set.votes(), 3);
    }
}

#[test]
fn a_new_node_gets_its_slot_by_old_id_and_address_or_where_it_was_seen_or_by_an_operator() {
    let elsewhere: Vec<String> = (0..5).map(|node| format!("host-{node}")).collect();
    let renamed = DesiredConfiguration { addresses: elsewhere, ..desired(5, false) };
    let confirmed = DesiredConfiguration { by_address: true, ..desired(5, false) };
    for (sign, keeps_its_id, names, seen) in [
        ("old id and address", true, &desired(5, false), false),
        ("where it was seen", false, &renamed, true),
        ("an operator", false, &confirmed, false),
        ("none: blank", false, &desired(5, false), false),
        ("none: a copy of its data", true, &renamed, false),
    ] {
        for lost in [1, 3] {
            let mut set = TestSet::initial(5);
            set.change_client();
            let before: Vec<_> = set.nodes.iter().map(|node| node.id).collect();
            for node in 0..lost {
                match keeps_its_id {
                    true => assert!(set.restart(node, "again")),
                    false => set.wipe(node, "again"),
                }
            }
            let mut reports = set.reports();
            for (report, id) in reports.iter_mut().flatten().zip(before).filter(|_| seen) {
                report.last_seen_id = Some(id);
            }
            let planned = plan(&reports, names);
            let places: Vec<usize> = (0..lost).collect();
            if !sign.starts_with("none") {
                assert_eq!((planned.mislisted, planned.steps.len()), (vec![], 5), "{sign}, {lost}");
                assert_eq!(replacements(&reports, names).len(), lost);
                continue;
            }
            assert_eq!((planned.mislisted, planned.steps.len()), (places, 0), "{lost}");
            let stuck = matches!(planned.status, SetStatus::Mislisted(_));
            assert_eq!(stuck, lost == 3, "{:?}", planned.status);
        }
    }
}

/// Gives slots to nodes that have no other claim to them.
fn replace(set: &TestSet, renamed: &[usize], slots: &[(NodeId, usize)]) -> DesiredConfiguration {
    let mut replacement = desired(set.nodes.len(), false);
    for node in renamed {
        replacement.addresses[*node] = format!("host-{node}");
    }
    replacement.replace = slots.iter().map(|(old, new)| (*old, set.nodes[*new].id)).collect();
    replacement
}

#[test]
fn an_operator_gives_a_slot_to_another_server() {
    // The replaced server is gone, or votes until then.
    let mut set = TestSet::initial(3);
    let old = set.nodes[2].clone();
    set.nodes[1].raise(9_000_000);
    set.nodes[2] = QuorumNode::blank("first".to_owned(), node_id(90));
    let replacement = replace(&set, &[2], &[(old.id, 2)]);
    let status = set.settle(&replacement);
    let configuration = agreed(&status).clone();
    assert_eq!((configuration.epoch(), configuration.has(old.id)), (3, false));
    assert!(configuration.slots().iter().any(|slot| slot.address == "host-2"));
    assert_eq!((set.nodes[2].state, set.votes()), (MemberState::Recovering, 2), "it waits");
    set.pass_quarantine();
    set.settle(&replacement);
    assert_eq!((set.votes(), set.nodes[2].floor), (3, 9_000_000), "above every granted token");
    // The old server rejects clients that know the change, and learns of it.
    set.nodes[2] = old;
    assert_eq!(set.votes(), 2);
    set.settle(&desired(3, false));
    assert_eq!(set.states(), [MemberState::Voting, MemberState::Voting, MemberState::Replaced]);
}

#[test]
fn an_operator_takes_its_slot_from_a_server_that_still_votes() {
    let mut set = TestSet::initial(5);
    let (old, kept) = (set.nodes[4].id, set.nodes[3].id);
    set.nodes[3] = QuorumNode::blank("first".to_owned(), node_id(90));
    let status = set.settle(&replace(&set, &[3], &[(old, 3)]));
    assert!(agreed(&status).has(kept) && !agreed(&status).has(old));
    assert_eq!(set.states()[3..], [MemberState::Recovering, MemberState::Replaced]);
}

#[test]
fn a_replacement_by_an_absent_node_evicts_nobody() {
    let mut set = TestSet::initial(3);
    set.wipe(0, "again");
    let mut replacement = desired(3, false);
    replacement.replace = vec![(set.nodes[1].id, node_id(90))];
    let second = set.nodes[1].id;
    let status = set.settle(&replacement);
    assert!(agreed(&status).has(second) && agreed(&status).has(set.nodes[0].id));
}

/// Initialised as `10.0.0.1`, listed as `host-1`, and no running client saw them: a majority lost
/// its data.
#[test]
fn after_a_majority_lost_its_data_under_other_names_an_operator_names_all_slots() {
    let mut set = TestSet::initial(3);
    set.change_client();
    let old = [set.nodes[0].id, set.nodes[1].id];
    set.wipe(0, "again");
    set.wipe(1, "again");
    let before = set.nodes.clone();
    let one = replace(&set, &[0, 1, 2], &[(old[0], 0)]);
    let planned = plan(&set.reports(), &one);
    assert!(
        matches!(planned.status, SetStatus::Mislisted(_)) && planned.steps.is_empty(),
        "{planned:?}"
    );
    assert_eq!((planned.mislisted, &set.nodes), (vec![1], &before));
    let both = replace(&set, &[0, 1, 2], &[(old[0], 0), (old[1], 1)]);
    set.settle(&both);
    assert_eq!(set.votes(), 1, "they wait");
    set.pass_quarantine();
    set.settle(&both);
    assert_eq!(set.votes(), 3);
    assert!((0..2).all(|node| set.nodes[node].largest == set.ahead()), "by the clock");
}

#[test]
fn after_a_majority_lost_its_data_all_must_answer_and_the_clock_gives_the_floor() {
    let mut set = TestSet::initial(5);
    let desired = desired(5, false);
    for node in 0..3 {
        set.wipe(node, "again");
    }
    set.silent = vec![4];
    let status = set.settle(&desired);
    assert_eq!(agreed(&status).epoch(), 2, "the silent node might know of a change");
    set.silent.clear();
    set.settle(&desired);
    assert_eq!((set.votes(), set.configuration(0).epoch()), (2, 3));
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!(set.votes(), 5);
    assert!((0..3).all(|node| set.nodes[node].largest == set.ahead()));
    // No node has its data: as if the next client initialised the set.
    for node in 0..5 {
        set.wipe(node, "third");
    }
    set.settle(&desired);
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!(set.votes(), 0);
    set.pass_cap();
    set.settle(&desired);
    assert_eq!(set.votes(), 5);
}

#[test]
fn a_second_node_that_loses_its_data_leaves_the_first_quarantine_as_it_is() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    set.nodes[1].raise(9_000_000);
    set.wipe(0, "again");
    set.settle(&desired);
    set.pass(Duration::from_secs(45));
    set.wipe(1, "again");
    set.settle(&desired);
    // No majority has its data now, but the first node has its floor already.
    set.pass(Duration::from_secs(30));
    set.settle(&desired);
    assert_eq!((set.votes(), set.nodes[0].floor), (2, 9_000_000));
    set.pass(Duration::from_secs(45));
    set.settle(&desired);
    assert_eq!((set.votes(), set.nodes[1].largest), (3, set.ahead()));
}

/// All nodes are emptied and become a set; two of them are restarted during its first quarantine.
#[test]
fn the_first_quarantine_of_a_set_does_not_shrink_when_nodes_are_restarted() {
    for with_data in [true, false] {
        let mut set = TestSet::blank(3);
        let desired = desired(3, false);
        set.settle(&desired);
        set.pass(DEFAULT_MAX_LEASE);
        for node in 0..2 {
            if with_data {
                assert!(set.restart(node, "again"));
            } else {
                set.wipe(node, "again");
            }
        }
        set.settle(&desired);
        set.pass_quarantine();
        set.settle(&desired);
        assert_eq!(set.votes(), 0, "a lease of 10 min may still be held");
        set.pass_cap();
        set.settle(&desired);
        assert_eq!(set.votes(), 3);
        // From now on no older lease is held.
        set.wipe(0, "third");
        set.settle(&desired);
        set.pass_quarantine();
        set.settle(&desired);
        assert_eq!(set.votes(), 3);
    }
}

/// Two of three nodes lose their data after the fence was raised above all clocks, and the third is
/// silent when their quarantine ends.
#[test]
fn a_floor_has_what_a_survivor_knew_when_the_quarantine_began() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    let raised = 3_600_000_000;
    set.nodes.iter_mut().for_each(|node| node.raise_floor(raised));
    set.wipe(0, "again");
    set.wipe(1, "again");
    set.settle(&desired);
    set.silent = vec![2];
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!(set.states()[..2], [MemberState::Voting; 2]);
    assert!(set.nodes.iter().all(|node| node.floor >= raised));
}

/// The slot of a node in quarantine goes to another node and back; the first one receives one
/// change late, or each.
#[test]
fn a_node_that_lost_its_slot_keeps_nothing_of_its_quarantine() {
    for receives_each in [true, false] {
        let mut set = TestSet::initial(3);
        let known = desired(3, false);
        assert!(set.restart(1, "again"));
        set.settle(&known);
        set.pass(Duration::from_secs(70));
        let first = set.nodes[1].id;
        let blank = QuorumNode::blank("first".to_owned(), node_id(90));
        let waiting = std::mem::replace(&mut set.nodes[1], blank);
        let replacement = replace(&set, &[], &[(first, 1)]);
        set.settle(&replacement);
        set.pass_quarantine();
        set.settle(&replacement);
        assert_eq!(set.votes(), 3, "the other node votes");
        let other = std::mem::replace(&mut set.nodes[1], waiting);
        if receives_each {
            set.settle(&known);
        } else {
            let stale = replace(&set, &[], &[(other.id, 1)]);
            assert!(plan(&set.reports(), &stale).steps.iter().all(|(at, _)| *at == 1));
            set.settle(&stale);
        }
        assert_eq!((set.nodes[1].state, set.nodes[1].quarantine), (MemberState::Replaced, None));
        // Restarted, it stays out.
        assert!(set.restart(1, "third"));
        set.settle(&known);
        assert_eq!((set.nodes[1].state, set.votes()), (MemberState::Replaced, 2));
        // An operator readmits it: under another id, with a whole quarantine.
        let fresh = node_id(91);
        let id = set.nodes[1].id;
        assert!(set.send(1, NodeCommand::Readmit { id, fresh }));
        let replacement = replace(&set, &[], &[(other.id, 1)]);
        set.settle(&replacement);
        set.pass(DEFAULT_MAX_LEASE);
        set.settle(&replacement);
        assert_eq!(set.votes(), 2);
        set.pass_quarantine();
        set.settle(&replacement);
        assert_eq!(set.votes(), 3);
    }
}

/// A store that was a replica for a while has the same run, and perhaps older data.
#[test]
fn a_node_that_was_a_replica_has_lost_its_data() {
    let mut set = TestSet::initial(3);
    let old = set.nodes[0].id;
    let was_replica =
        |until: &str| Run { marker: "first".to_owned(), replica_until: Some(until.to_owned()) };
    let node = &mut set.nodes[0];
    assert!(node.handshake(&was_replica("b:1"), node_id(90)));
    assert_eq!(
        (node.state, node.id, node.previous_id),
        (MemberState::Recovering, node_id(90), Some(old))
    );
    // It is said at each handshake, and once only it means a loss; the store forgets it in time.
    for run in [was_replica("b:1"), run("first")] {
        assert!(node.handshake(&run, node_id(91)));
        assert_eq!(node.id, node_id(90));
    }
    assert!(node.handshake(&was_replica("b:2"), node_id(92)));
    assert_eq!(node.id, node_id(92));
    // Its replica takes over, and later gives it the data back.
    assert!(node.handshake(&run("second"), node_id(93)));
    assert!(!node.handshake(&was_replica("b:2"), node_id(94)), "two servers answer in turn");
    assert!(node.handshake(&was_replica("b:3"), node_id(94)));
    assert_eq!((node.marker.as_str(), node.id), ("first", node_id(94)));
}

#[test]
fn a_set_of_one_or_two_relies_on_the_clock() {
    for nodes in [1, 2] {
        let mut set = TestSet::initial(nodes);
        set.wipe(0, "again");
        let desired = desired(nodes, false);
        set.settle(&desired);
        match nodes {
            1 => set.pass_cap(),
            _ => set.pass_quarantine(),
        }
        set.settle(&desired);
        assert_eq!(set.votes(), nodes);
        assert_eq!(set.nodes[0].largest, set.ahead());
    }
}

#[test]
fn a_split_epoch_is_merged_by_the_next_without_losing_a_change() {
    let mut set = TestSet::initial(5);
    let desired = desired(5, false);
    // Two clients plan at once; each sees a different node that lost its data.
    set.wipe(0, "again");
    let first = plan(&set.reports(), &desired).steps;
    let kept = set.nodes[0].clone();
    set.nodes[0] = TestSet::initial(5).nodes[0].clone();
    set.wipe(4, "again");
    let second = plan(&set.reports(), &desired).steps;
    set.nodes[0] = kept;
    for (node, command) in first.into_iter().filter(|(node, _)| [0, 1, 2].contains(node)) {
        assert!(set.send(node, command));
    }
    for (node, command) in second.into_iter().filter(|(node, _)| [3, 4].contains(node)) {
        assert!(set.send(node, command));
    }
    assert_eq!((set.configuration(1).epoch(), set.configuration(3).epoch()), (3, 3));
    assert_ne!(set.configuration(1).stamp(), set.configuration(3).stamp());
    let status = set.settle(&desired);
    let configuration = agreed(&status);
    assert_eq!(configuration.epoch(), 4);
    assert!(configuration.has(set.nodes[0].id) && configuration.has(set.nodes[4].id));
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!(set.votes(), 5);
}

#[test]
fn a_replaced_node_stays_out() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    let old = set.nodes[2].clone();
    set.wipe(2, "blank under the same address");
    set.settle(&desired);
    set.pass_quarantine();
    set.settle(&desired);
    // The old server still runs elsewhere, and a client reaches it there.
    let newcomer = std::mem::replace(&mut set.nodes[2], old);
    assert_eq!(set.votes(), 2, "it alone votes under the old configuration");
    set.settle(&desired);
    assert_eq!(set.states(), [MemberState::Voting, MemberState::Voting, MemberState::Replaced]);
    set.pass_cap();
    set.settle(&desired);
    assert_eq!(set.votes(), 2);
    set.nodes[2] = newcomer;
    assert_eq!(set.votes(), 3);
}

#[test]
fn a_list_with_fewer_or_more_nodes_than_the_set_changes_nothing() {
    // Two of the three listed would be a majority, and two of five are none.
    let mut set = TestSet::initial(5);
    set.wipe(0, "again");
    set.nodes.truncate(3);
    set.last_seen.truncate(3);
    let plan_of = |set: &TestSet| plan(&set.reports(), &desired(set.nodes.len(), false));
    let planned = plan_of(&set);
    assert_eq!((planned.status, planned.steps.len()), (SetStatus::WrongSize { nodes: 5 }, 0));
    let mut set = TestSet::initial(3);
    set.nodes.extend(TestSet::blank(7).nodes.into_iter().skip(3));
    set.last_seen.resize(7, None);
    let planned = plan_of(&set);
    assert_eq!((planned.status, planned.steps.len()), (SetStatus::WrongSize { nodes: 3 }, 0));
}

#[test]
fn a_list_of_one_member_and_blank_nodes_does_not_take_the_set_over() {
    for by_operator in [true, false] {
        let mut left = TestSet::blank(3);
        left.settle(&desired(3, by_operator));
        let mut right = TestSet::blank(5);
        right.nodes = [left.nodes.split_off(2), right.nodes.split_off(3)].concat();
        right.last_seen.truncate(3);
        let mut theirs = desired(3, true);
        for (at, address) in
            ["10.0.0.2:6379", "10.0.0.11:6379", "10.0.0.12:6379"].iter().enumerate()
        {
            (*address).clone_into(&mut theirs.addresses[at]);
        }
        for silent in [vec![], vec![2]] {
            let before = right.nodes.clone();
            right.silent.clone_from(&silent);
            let status = right.settle(&theirs);
            assert_eq!(matches!(status, SetStatus::Mislisted(_)), silent.is_empty());
            assert_eq!(right.nodes[1..], before[1..], "a blank node does not join either");
        }
        // The same if the blank nodes answer at the addresses of members, for this client.
        right.silent.clear();
        theirs.addresses[1..].clone_from_slice(&desired(3, true).addresses[..2]);
        let status = right.settle(&theirs);
        assert!(matches!(status, SetStatus::Mislisted(_)), "{status:?}");
        // An operator may confirm that these are the servers of the set.
        theirs.by_address = true;
        let before = right.configuration(0).epoch();
        let status = right.settle(&theirs);
        assert!(agreed(&status).epoch() > before);
        assert!(right.nodes.iter().all(|node| agreed(&status).has(node.id)));
    }
}

#[test]
fn two_addresses_of_one_node_are_detected() {
    let mut set = TestSet::initial(3);
    set.nodes[2] = set.nodes[0].clone();
    let plan = plan(&set.reports(), &desired(3, false));
    assert_eq!((plan.status, plan.steps.len()), (SetStatus::Duplicate { places: (0, 2) }, 0));
}

#[test]
fn two_servers_behind_one_address_never_take_a_quarantine_from_each_other() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    assert!(set.restart(1, "other"));
    set.settle(&desired);
    let waiting = set.nodes[1].clone();
    assert!(!set.restart(1, "first"), "a run that ended never comes back");
    assert_eq!(set.nodes[1], waiting);
    let stamp = set.configuration(1).stamp();
    assert_eq!(set.nodes[1].admit("first", stamp), Err(VoteRefusal::Marker));
    // A third run is a restart: the quarantine starts again in full.
    set.pass(Duration::from_secs(50));
    assert!(set.restart(1, "third"));
    set.settle(&desired);
    set.pass(Duration::from_secs(50));
    set.settle(&desired);
    assert_eq!(set.nodes[1].state, MemberState::Recovering);
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!(set.votes(), 3);
}

/// A server boots with a slow clock, which is then set forward; another one's clock is set back.
#[test]
fn the_clock_of_a_node_neither_ends_nor_prolongs_its_quarantine() {
    for leap in [3_600_000_000, 0] {
        let mut set = TestSet::initial(3);
        let desired = desired(3, false);
        set.wipe(2, "again");
        set.now += 7_200_000_000;
        set.settle(&desired);
        set.now = set.now - 3_600_000_000 + 2 * leap;
        set.settle(&desired);
        assert_eq!((set.nodes[2].state, set.votes()), (MemberState::Recovering, 2));
        set.pass_quarantine();
        set.settle(&desired);
        assert_eq!(set.votes(), 3);
    }
}

#[test]
fn clients_measure_a_quarantine_one_after_the_other() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    set.wipe(2, "again");
    set.settle(&desired);
    let whole = quarantine_of(DEFAULT_MAX_LEASE);
    let left = |set: &TestSet| set.nodes[2].report().quarantine.expect("it waits").0;
    assert_eq!(left(&set), whole);
    // Two clients measured from the same answer on: the longer time counts, once, in any order.
    let measured = |set: &TestSet, seconds| {
        let mut reports = set.reports();
        reports[2].as_mut().expect("it answers").measured = Duration::from_secs(seconds);
        let (node, command) = plan(&reports, &desired).steps.remove(0);
        assert_eq!(node, 2);
        command
    };
    let (first, second) = (measured(&set, 20), measured(&set, 30));
    assert!(set.send(2, first.clone()));
    assert_eq!(left(&set), whole - Duration::from_secs(20));
    assert!(set.send(2, second.clone()), "a shorter report does not discard a longer one");
    assert!(!set.send(2, second) && !set.send(2, first));
    assert_eq!(left(&set), whole - Duration::from_secs(30));
    let rest = measured(&set, 50);
    assert!(set.send(2, rest));
    assert_eq!(set.votes(), 3);
}

#[test]
fn a_vote_requires_the_marker_and_the_configuration() {
    let set = TestSet::initial(3);
    let node = &set.nodes[0];
    let stamp = set.configuration(0).stamp();
    assert_eq!(node.admit("first", stamp), Ok(()));
    assert_eq!(node.admit("second", stamp), Err(VoteRefusal::Marker));
    let later = set.configuration(0).successor(&[]).stamp();
    assert_eq!(node.admit("first", later), Err(VoteRefusal::Configuration));
    let foreign = TestSet::blank(5);
    assert_eq!(foreign.nodes[0].admit("first", stamp), Err(VoteRefusal::State(MemberState::Blank)));
}

#[test]
fn a_node_refuses_commands_that_do_not_match_its_state() {
    let of = |id| Configuration::initial(&[(node_id(id), "a")], DEFAULT_MAX_LEASE);
    let episode = node_id(1);
    let (initial, foreign) = (of(1), of(2));
    let stamp = initial.stamp();
    let mut node = QuorumNode::blank("first".to_owned(), episode);
    let refuses = |node: &QuorumNode, command: NodeCommand| {
        let mut copy = node.clone();
        assert!(!copy.apply("first", command.clone(), 0), "{command:?}");
        assert_eq!(copy, *node, "{command:?}");
    };
    let accepts = |node: &mut QuorumNode, command: NodeCommand| {
        assert!(node.apply("first", command.clone(), 0), "{command:?}");
    };
    let quarantine = initial.quarantine();
    let propose = |from, configuration: &Configuration| NodeCommand::Propose {
        from,
        configuration: configuration.clone(),
    };
    let adopt = |from, configuration: &Configuration| NodeCommand::Adopt {
        from,
        configuration: configuration.clone(),
    };
    let activate = |stamp| NodeCommand::Activate { stamp, quarantine };
    let begin = |episode, stamp| {
        let by_time = false;
        NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor: 2_000_000 }
    };
    refuses(&node, propose(Some(stamp), &initial));
    refuses(&node, propose(None, &foreign));
    accepts(&mut node, propose(None, &initial));
    refuses(&node, activate(foreign.stamp()));
    accepts(&mut node, activate(stamp));
    refuses(&node, activate(stamp));
    // The node has a quarantine already.
    refuses(&node, begin(episode, stamp));
    refuses(&node, NodeCommand::Vouch { episode: node_id(2) });
    accepts(&mut node, NodeCommand::Vouch { episode });
    refuses(&node, begin(episode, stamp));
    refuses(&node, NodeCommand::Readmit { id: episode, fresh: node_id(3) });
    // A later epoch of the same set, from the configuration that the node has.
    let same_epoch = Configuration::initial(&[(episode, "a")], MAX_LEASE_CAP);
    let other_set = foreign.clone().after(foreign.set(), 7);
    refuses(&node, adopt(Some(stamp), &same_epoch));
    refuses(&node, adopt(Some(stamp), &other_set));
    refuses(&node, adopt(None, &initial.successor(&[])));
    let replaced = initial.successor(&[(episode, node_id(2), "b")]);
    accepts(&mut node, adopt(Some(stamp), &replaced));
    assert_eq!(node.state, MemberState::Replaced);
    refuses(&node, NodeCommand::Readmit { id: node_id(2), fresh: node_id(3) });
    accepts(&mut node, NodeCommand::Readmit { id: episode, fresh: node_id(3) });
    // It is no member under its new id yet.
    refuses(&node, begin(node_id(3), replaced.stamp()));
    let readmitted = replaced.successor(&[(node_id(2), node_id(3), "a")]);
    accepts(&mut node, adopt(Some(replaced.stamp()), &readmitted));
    refuses(&node, begin(episode, readmitted.stamp()));
    refuses(&node, begin(node_id(3), replaced.stamp()));
    accepts(&mut node, begin(node_id(3), readmitted.stamp()));
    assert_eq!((node.floor, node.state), (2_000_000, MemberState::Recovering));
}

#[test]
fn a_tenure_is_over_when_the_slot_has_another_since() {
    let member = node_id(1);
    let first = Configuration::initial(&[(member, "a")], DEFAULT_MAX_LEASE);
    let without = first.successor(&[(member, node_id(2), "b")]);
    let again = without.successor(&[(node_id(2), member, "a")]);
    let report = |configuration: Option<&Configuration>| {
        let node = QuorumNode::blank("first".to_owned(), member);
        NodeReport { configuration: configuration.cloned(), ..node.report() }
    };
    for (known, current, evicted) in [
        (Some(&first), &first, false),
        (Some(&first), &first.successor(&[]), false),
        (Some(&first), &without, true),
        (Some(&first), &again, true),
        (Some(&without), &again, false),
        (None, &first, false),
        (None, &without, false),
    ] {
        assert_eq!(report(known).is_evicted(current), evicted, "{known:?} {current:?}");
    }
}

#[test]
fn a_client_subtracts_its_measured_time_from_a_quarantine() {
    let seconds = Duration::from_secs;
    let node = QuorumNode::blank("first".to_owned(), node_id(1));
    assert_eq!(node.report().quarantine_left(), None);
    for (measured, left) in [(0, 75), (5, 70), (80, 0)] {
        let quarantine = Some((seconds(75), true));
        let measured = seconds(measured);
        let report = NodeReport { quarantine, measured, ..node.report() };
        assert_eq!(report.quarantine_left(), Some(seconds(left)));
    }
}

#[test]
fn late_and_repeated_commands_change_nothing() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    set.wipe(0, "again");
    let mut said = Vec::new();
    for quarantine in [false, true] {
        if quarantine {
            set.pass_quarantine();
        }
        loop {
            let plan = set.step(&desired);
            if plan.steps.is_empty() {
                break;
            }
            said.extend(plan.steps);
        }
    }
    let settled = set.nodes.clone();
    for (node, command) in said {
        assert!(!set.send(node, command.clone()), "{command:?}");
        set.nodes.iter_mut().for_each(|node| assert!(!node.apply("strange", command.clone(), 0)));
    }
    assert_eq!(set.nodes, settled);
}

#[test]
fn a_set_is_named_after_its_first_nodes_and_keeps_its_name() {
    let of = |id| Configuration::initial(&[(node_id(id), "a")], DEFAULT_MAX_LEASE);
    let [one, other] = [of(1), of(2)].map(|one| one.set().to_string());
    assert!(one[..16] != other[..16] && one[16..] != other[16..], "{one} {other}");
    assert_eq!(of(1).set().short(), one[..8]);
    let later = of(2).after(of(1).set(), 4);
    assert_eq!((later.set(), later.epoch()), (of(1).set(), 5));
    assert_eq!(later.slots(), of(2).slots());
}

/// Configurations of one epoch that give one node two slots have no merge: a slot would return to
/// its former node.
#[test]
fn a_merge_returns_no_slot_to_its_former_node() {
    let ids = [1, 2, 3].map(node_id);
    let first = Configuration::initial(&ids.map(|id| (id, "a")), DEFAULT_MAX_LEASE);
    let new = node_id(9);
    let parts = [ids[0], ids[1]].map(|old| first.successor(&[(old, new, "x")]));
    for order in [[0, 1], [1, 0]] {
        let merged = Configuration::merged(order.map(|at| parts[at].clone()).to_vec());
        assert_eq!(merged, None);
    }
    let longer = first.clone().after(first.set(), 1);
    let alike = Configuration::merged(vec![longer.clone().founded(), longer.clone()]);
    assert_eq!(alike.expect("of one epoch").quarantine(), longer.quarantine(), "the longer one");
}

#[test]
fn only_configurations_of_one_set_epoch_and_size_are_merged() {
    let ids = [1, 2, 3].map(|id| (node_id(id), "a"));
    let three = Configuration::initial(&ids, DEFAULT_MAX_LEASE);
    let two = Configuration::initial(&ids[..2], DEFAULT_MAX_LEASE);
    let merged = |one: &Configuration, other: &Configuration| {
        Configuration::merged(vec![one.clone(), other.clone()])
    };
    let other_set = three.clone().after(two.set(), 0);
    let other_size = two.after(three.set(), 0);
    let other_epoch = three.successor(&[]);
    for other in [other_set, other_size, other_epoch] {
        assert_eq!((merged(&three, &other), merged(&other, &three)), (None, None), "{other}");
    }
    let longer = Configuration::initial(&ids, MAX_LEASE_CAP);
    assert_eq!(merged(&three, &longer), Some(longer));
    assert_eq!(Configuration::merged(Vec::new()), None);
}

/// Clients of different versions compare stamps, so the digest never changes.
#[test]
fn a_stamp_is_the_same_in_every_version() {
    let nodes = [(node_id(1), "a"), (node_id(2), "b")];
    let stamp = Configuration::initial(&nodes, DEFAULT_MAX_LEASE).stamp();
    let text = "6bfe5128a4a2aecf6bfe5028a4a2ad1c.1.098a105f788a303b";
    assert_eq!(stamp.to_string(), text);
}

#[test]
fn the_largest_configuration_and_the_largest_epoch_are_accepted() {
    let slots = |nodes| " 00000000000000000000000000000001/0@a".repeat(nodes);
    let text = |epoch: u64, nodes| {
        format!("2 00000000000000000000000000000001 {epoch} 600000 750000{}", slots(nodes))
    };
    let largest = 1 << 53;
    for (epoch, nodes) in [(1, 1), (1, MAX_NODES), (largest, 1)] {
        let text = text(epoch, nodes);
        let configuration: Configuration = text.parse().expect("within the bounds");
        assert_eq!(configuration.to_string(), text);
    }
    for (epoch, nodes) in [(1, 0), (1, MAX_NODES + 1), (1, 2 * MAX_NODES), (largest + 1, 1)] {
        text(epoch, nodes).parse::<Configuration>().expect_err("beyond the bounds");
    }
}

#[test]
fn configurations_round_trip_as_text() {
    let mut set = TestSet::initial(3);
    set.wipe(1, "again");
    set.settle(&desired(3, false));
    let configuration = set.configuration(0);
    let text = configuration.to_string();
    assert_eq!(text.parse().as_ref(), Ok(configuration));
    assert!(text.contains(&format!("/3@{}", address(1))), "since epoch 3: {text}");
    for foreign in [
        "",
        "1",
        "1 00000000000000000000000000000001 1 60000 75000 00000000000000000000000000000001/0@a",
        "2 1 1 60000 75000 00000000000000000000000000000001/0@a",
        "2 00000000000000000000000000000001 -1 60000 75000 00000000000000000000000000000001/0@a",
        "2 00000000000000000000000000000001 1 60000 75000",
        "2 00000000000000000000000000000001 1 60000 00000000000000000000000000000001/0@a",
        "2 00000000000000000000000000000001 1 600001 75000 00000000000000000000000000000001/0@a",
        "2 00000000000000000000000000000001 1 60000 750001 00000000000000000000000000000001/0@a",
        "2 00000000000000000000000000000001 1 60000 75000 00000000000000000000000000000001/0",
        "2 00000000000000000000000000000001 1 60000 75000 00000000000000000000000000000001@a",
        "2 00000000000000000000000000000001 18446744073709551615 1 1 \
         00000000000000000000000000000001/0@a",
    ] {
        assert!(foreign.parse::<Configuration>().is_err(), "{foreign}");
    }
}

/// Members 1 and 3 of the set {1, 2, 3} were replaced by 5 and 4, and still run. Member 2 loses its
/// data. A client that still knows 1, 2 and 3 sees two nodes with data, and only one of them is a
/// member.
#[test]
fn former_members_do_not_make_a_majority_with_a_blank_node() {
    let mut set = TestSet::initial(3);
    let desired = desired(3, false);
    let first = set.nodes[2].clone();
    let replace = |set: &mut TestSet, node: usize| {
        set.wipe(node, "blank under the same address");
        set.settle(&desired);
        set.pass_quarantine();
        set.settle(&desired);
    };
    replace(&mut set, 2);
    let second = set.nodes[0].clone();
    replace(&mut set, 0);
    assert_eq!((set.votes(), set.configuration(0).epoch()), (3, 4));
    set.wipe(1, "again");
    let members = set.nodes.clone();
    (set.nodes[0], set.nodes[2]) = (second, first);
    for _ in 0..3 {
        let status = set.settle(&desired);
        assert_eq!(
            agreed(&status).epoch(),
            3,
            "member 4 of {{1, 2, 4}} is neither seen nor placed"
        );
        set.pass_quarantine();
    }
    assert_eq!((set.nodes[1].state, set.votes()), (MemberState::Blank, 1));
    // Clients that see the members bring it back.
    set.nodes[0] = members[0].clone();
    set.nodes[2] = members[2].clone();
    set.settle(&desired);
    set.pass_quarantine();
    set.settle(&desired);
    assert_eq!((set.votes(), set.configuration(1).epoch()), (3, 5));
}

/// One of five servers is restored from the dump of another set.
#[test]
fn a_node_of_another_set_is_a_missing_vote_beside_a_majority_that_agrees() {
    let mut set = TestSet::initial(5);
    let five = desired(5, false);
    let mut others = TestSet::blank(5);
    others.nodes.iter_mut().zip(90..).for_each(|(node, id)| {
        *node = QuorumNode::blank("first".to_owned(), node_id(id));
    });
    others.settle(&desired(5, true));
    set.nodes[4] = others.nodes[4].clone();
    let before = set.nodes.clone();
    assert_eq!(agreed(&set.settle(&five)).set(), set.configuration(0).set());
    assert_eq!(set.nodes, before, "no node receives a command");
    // It does not prevent the recovery of another node.
    set.wipe(0, "again");
    set.settle(&five);
    set.pass_quarantine();
    set.settle(&five);
    assert_eq!((set.votes(), &set.nodes[4]), (4, &before[4]), "of epoch 3");
    // Nor do nodes of two other sets.
    let mut third = TestSet::blank(5);
    third.nodes.iter_mut().zip(80..).for_each(|(node, id)| {
        *node = QuorumNode::blank("first".to_owned(), node_id(id));
    });
    third.settle(&desired(5, true));
    let kept = std::mem::replace(&mut set.nodes[3], third.nodes[3].clone());
    assert_eq!(agreed(&set.settle(&five)).set(), set.configuration(0).set());
    set.nodes[3] = kept;
    // Without a majority of one set it is not known which is meant.
    (set.nodes[2], set.nodes[3]) = (others.nodes[2].clone(), others.nodes[3].clone());
    set.silent = vec![4];
    assert!(matches!(set.settle(&five), SetStatus::Foreign { .. }));
    // A server that an operator empties is a new node, which the operator takes in.
    let mut set = TestSet::initial(3);
    set.nodes[2] = others.nodes[2].clone();
    let three = desired(3, false);
    set.settle(&three);
    set.wipe(2, "emptied");
    let three = DesiredConfiguration { by_address: true, ..three };
    set.settle(&three);
    set.pass_quarantine();
    set.settle(&three);
    assert_eq!(set.votes(), 3);
}
