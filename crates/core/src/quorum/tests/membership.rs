//! How a set comes to be, and what becomes of nodes that lose their memory.

use std::time::Duration;

use super::set::{Set, address, node_id, wish};
use crate::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP};
use crate::quorum::{
    Barred, Configuration, Gate, Node, NodeId, Standing, Told, Wish, plan, replacements,
};

fn agreed(standing: &Standing) -> &Configuration {
    match standing {
        Standing::Agreed(configuration) => configuration,
        other => panic!("not agreed: {other:?}"),
    }
}

#[test]
fn an_operator_founds_a_set_and_it_votes_at_once() {
    let mut set = Set::blank(3);
    let wish = wish(3, true);
    let first = set.step(&wish);
    assert_eq!(first.standing, Standing::Unfounded { silent: vec![] });
    assert_eq!(set.gates(), [Gate::Proposed; 3]);
    assert_eq!(set.votes(), 0, "what is only proposed does not vote");
    set.step(&wish);
    assert_eq!(set.gates(), [Gate::Open; 3]);
    let standing = set.settle(&wish);
    let configuration = agreed(&standing);
    assert_eq!((configuration.epoch(), configuration.max_lease()), (1, DEFAULT_MAX_LEASE));
    assert_eq!(set.votes(), 3);
    assert!(set.nodes.iter().all(|node| node.largest == set.ahead()), "tokens start there");
}

#[test]
fn a_client_founds_a_set_only_after_the_longest_quarantine() {
    let mut set = Set::blank(3);
    let wish = wish(3, false);
    set.settle(&wish);
    assert_eq!((set.gates(), set.votes()), (vec![Gate::Forgot; 3], 0));
    set.pass(MAX_LEASE_CAP);
    set.settle(&wish);
    assert_eq!(set.votes(), 0, "a fast clock of a node is allowed for");
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!((set.gates(), set.votes()), (vec![Gate::Open; 3], 3));
    assert!(set.nodes.iter().all(|node| node.largest == set.ahead()));
}

#[test]
fn nothing_is_founded_while_one_is_silent() {
    let mut set = Set::blank(3);
    set.silent = vec![1];
    let standing = set.settle(&wish(3, true));
    assert_eq!(standing, Standing::Unfounded { silent: vec![1] });
    assert_eq!(set.gates(), [Gate::Blank; 3]);
    // And a proposal is not enough to activate.
    set.silent.clear();
    set.step(&wish(3, true));
    set.silent = vec![1];
    set.settle(&wish(3, true));
    assert_eq!(set.gates(), [Gate::Proposed; 3]);
}

#[test]
fn founding_goes_on_where_another_left_it() {
    let mut set = Set::blank(3);
    let wish = wish(3, true);
    let first = plan(&set.views(), &wish).steps;
    for (node, told) in first.into_iter().take(2) {
        assert!(set.tell(node, told));
    }
    // The third never heard, and the second lost its memory.
    set.wipe(1, "second");
    set.settle(&wish);
    assert_eq!((set.gates(), set.votes()), (vec![Gate::Open; 3], 3));
    assert_eq!(set.configuration(0).epoch(), 2, "another proposal than the first");
    // One that hears of the activation late.
    let mut set = Set::blank(3);
    set.step(&wish);
    let mut late = plan(&set.views(), &wish).steps;
    let (node, told) = late.remove(0);
    assert!(set.tell(node, told));
    set.settle(&wish);
    assert_eq!(set.gates(), [Gate::Open; 3]);
}

#[test]
fn rivals_that_found_at_once_mean_the_same() {
    let one = Configuration::founded(&[(node_id(1), "a"), (node_id(2), "b")], DEFAULT_MAX_LEASE);
    let other = Configuration::founded(&[(node_id(2), "x"), (node_id(1), "y")], DEFAULT_MAX_LEASE);
    assert_eq!(one.stamp(), other.stamp(), "addresses and order are no part of it");
    let longer = Configuration::founded(&[(node_id(1), "a"), (node_id(2), "b")], MAX_LEASE_CAP);
    assert_eq!(one.set(), longer.set());
    assert_ne!(one.stamp(), longer.stamp());
    // Wishes for different leases meet: the longer one wins, as a later proposal.
    let mut set = Set::blank(3);
    let (short, mut long) = (wish(3, true), wish(3, true));
    long.max_lease = MAX_LEASE_CAP;
    let steps = [plan(&set.views(), &short).steps, plan(&set.views(), &long).steps];
    assert!(set.tell(0, steps[0][0].1.clone()));
    assert!(!set.tell(0, steps[1][0].1.clone()), "it has accepted another in the meantime");
    assert!(set.tell(1, steps[1][1].1.clone()));
    let standing = set.settle(&short);
    assert_eq!((agreed(&standing).max_lease(), agreed(&standing).epoch()), (MAX_LEASE_CAP, 2));
    assert_eq!(set.votes(), 3);
}

#[test]
fn two_lists_of_nodes_never_share_one() {
    // The last node is in both lists.
    let mut left = Set::blank(3);
    let mut right = Set::blank(3);
    right.nodes[0] = Node::blank("first".to_owned(), node_id(11));
    right.nodes[1] = Node::blank("first".to_owned(), node_id(12));
    let mut theirs = wish(3, true);
    theirs.addresses[0] = "10.0.0.11:6379".to_owned();
    theirs.addresses[1] = "10.0.0.12:6379".to_owned();
    let late = plan(&right.views(), &theirs).steps;
    left.step(&wish(3, true));
    right.nodes[2] = left.nodes[2].clone();
    for (node, told) in late {
        assert_eq!(right.tell(node, told), node < 2, "the shared one has accepted another");
    }
    let standing = right.settle(&theirs);
    assert!(matches!(standing, Standing::Foreign { .. }), "{standing:?}");
    left.settle(&wish(3, true));
    right.nodes[2] = left.nodes[2].clone();
    let standing = right.settle(&theirs);
    assert!(matches!(standing, Standing::Foreign { .. }), "{standing:?}");
    assert_eq!((left.votes(), right.gates()[0]), (3, Gate::Proposed));
    // A list that lacks one of the others' nodes is a list of other nodes, too.
    let mut fewer = Set::blank(2);
    fewer.nodes = Set::blank(3).nodes;
    fewer.step(&wish(3, true));
    fewer.nodes.pop();
    assert!(matches!(fewer.settle(&wish(2, true)), Standing::Foreign { .. }));
}

#[test]
fn a_node_that_forgot_is_taken_in_again_after_a_quarantine_with_a_floor() {
    for (all_gone, others_silent) in
        [(true, vec![]), (false, vec![]), (false, vec![4]), (true, vec![4])]
    {
        let mut set = Set::founded(5);
        let wish = wish(5, false);
        set.nodes[1].raise(9_000_000);
        let old = set.nodes[2].id;
        match all_gone {
            true => set.wipe(2, "again"),
            false => assert!(set.restart(2, "again")),
        }
        set.silent.clone_from(&others_silent);
        assert_eq!(set.votes(), 4, "it gives none from the first greeting on");
        let standing = set.settle(&wish);
        let configuration = agreed(&standing);
        assert_eq!(configuration.epoch(), 2);
        assert!(!configuration.has(old) && configuration.has(set.nodes[2].id));
        assert_eq!((set.nodes[2].gate, set.votes()), (Gate::Forgot, 4 - others_silent.len()));
        set.pass(DEFAULT_MAX_LEASE);
        set.settle(&wish);
        assert_eq!(set.nodes[2].gate, Gate::Forgot, "the whole quarantine");
        set.pass(Duration::from_secs(1));
        set.settle(&wish);
        assert_eq!((set.nodes[2].gate, set.nodes[2].largest), (Gate::Open, 9_000_000));
        set.silent.clear();
        set.settle(&wish);
        assert_eq!(set.votes(), 5);
    }
}

#[test]
fn it_waits_until_a_majority_that_remembers_has_agreed() {
    let mut set = Set::founded(5);
    set.wipe(2, "again");
    set.silent = vec![3, 4];
    let standing = set.settle(&wish(5, false));
    assert_eq!(agreed(&standing).epoch(), 1, "two of five remember: they may miss something");
    assert_eq!(set.nodes[2].quarantine, None);
    // Agreed by two of three that are needed: no wait begins.
    set.silent = vec![4];
    let change = plan(&set.views(), &wish(5, false)).steps;
    for (node, told) in change.into_iter().filter(|(node, _)| *node != 3) {
        assert!(set.tell(node, told));
    }
    let begins = |set: &Set| {
        let steps = plan(&set.views(), &wish(5, false)).steps;
        steps.iter().any(|(_, told)| matches!(told, Told::Begin { .. }))
    };
    assert!(!begins(&set), "nodes 0 and 1 have it, node 3 not yet");
    set.step(&wish(5, false));
    assert!(begins(&set));
}

#[test]
fn places_are_told_apart_when_several_forget() {
    // A wiped node knows nothing; its address tells its place.
    let mut set = Set::founded(5);
    let old = [set.nodes[1].id, set.nodes[2].id];
    set.wipe(2, "again");
    set.silent = vec![1];
    let mut elsewhere = wish(5, false);
    elsewhere.addresses = (0..5).map(|node| format!("host-{node}")).collect();
    let standing = set.settle(&elsewhere);
    assert!(old.iter().all(|id| agreed(&standing).has(*id)), "which of the two came back?");
    let standing = set.settle(&wish(5, false));
    assert!(agreed(&standing).has(old[0]) && !agreed(&standing).has(old[1]));
    set.silent.clear();
    set.pass_quarantine();
    set.settle(&wish(5, false));
    assert_eq!(set.votes(), 5);
}

/// A client lists {1, 2, 9} where the set is {1, 2, 3}: node 9 is blank, and node 3 lives on.
#[test]
fn who_lists_one_wrong_server_evicts_nobody() {
    for silent in [None, Some(0)] {
        let mut set = Set::founded(3);
        let third = set.nodes[2].clone();
        set.nodes[2] = Node::blank("first".to_owned(), node_id(90));
        let before = set.nodes.clone();
        let mut wrong = wish(3, false);
        wrong.addresses[2] = "10.0.0.90:6379".to_owned();
        set.silent = silent.into_iter().collect();
        let told = plan(&set.views(), &wrong);
        assert_eq!((told.mislisted, told.steps.len()), (vec![2], 0), "silent: {silent:?}");
        assert_eq!(agreed(&told.standing).epoch(), 1);
        assert_eq!(set.nodes, before);
        set.nodes[2] = third;
        assert_eq!(set.votes(), 3);
    }
}

#[test]
fn a_newcomer_has_its_slot_by_its_old_id_its_address_or_where_it_was_seen() {
    let elsewhere: Vec<String> = (0..5).map(|node| format!("host-{node}")).collect();
    let renamed = Wish { addresses: elsewhere, ..wish(5, false) };
    for (sign, keeps_its_id, names, seen) in [
        ("old id", true, &renamed, false),
        ("address", false, &wish(5, false), false),
        ("where it was seen", false, &renamed, true),
        ("none", false, &renamed, false),
    ] {
        for forgot in [1, 3] {
            let mut set = Set::founded(5);
            let before: Vec<_> = set.nodes.iter().map(|node| node.id).collect();
            for node in 0..forgot {
                match keeps_its_id {
                    true => assert!(set.restart(node, "again")),
                    false => set.wipe(node, "again"),
                }
            }
            let mut views = set.views();
            for (view, id) in views.iter_mut().flatten().zip(before).filter(|_| seen) {
                view.before = Some(id);
            }
            let told = plan(&views, names);
            let places: Vec<usize> = (0..forgot).collect();
            if sign != "none" {
                assert_eq!((told.mislisted, told.steps.len()), (vec![], 5), "{sign}, {forgot}");
                assert_eq!(replacements(&views, names).len(), forgot);
                continue;
            }
            assert_eq!((told.mislisted, told.steps.len()), (places, 0), "{forgot}");
            let stuck = matches!(told.standing, Standing::Mislisted(_));
            assert_eq!(stuck, forgot == 3, "{:?}", told.standing);
        }
    }
}

/// Two clients disagree about where a node is: what the set says stands above what one has seen.
#[test]
fn the_address_of_a_slot_counts_more_than_where_a_client_saw_its_node() {
    let mut set = Set::founded(5);
    let [first, second] = [0, 1].map(|node| set.nodes[node].id);
    set.wipe(0, "again");
    set.wipe(1, "again");
    let mut views = set.views();
    views[1].as_mut().expect("it answers").before = Some(first);
    let new = [0, 1].map(|node| set.nodes[node].id);
    let mut replaced = replacements(&views, &wish(5, false));
    replaced.sort_unstable();
    assert_eq!(replaced, [(first, new[0]), (second, new[1])]);
}

/// Replaces slots by nodes that have no other way to them.
fn replace(set: &Set, renamed: &[usize], slots: &[(NodeId, usize)]) -> Wish {
    let mut word = wish(set.nodes.len(), false);
    for node in renamed {
        word.addresses[*node] = format!("host-{node}");
    }
    word.replace = slots.iter().map(|(old, new)| (*old, set.nodes[*new].id)).collect();
    word
}

#[test]
fn an_operator_gives_a_slot_to_another_server() {
    // The one that is replaced is gone, or votes until then.
    let mut set = Set::founded(3);
    let old = set.nodes[2].clone();
    set.nodes[1].raise(9_000_000);
    set.nodes[2] = Node::blank("first".to_owned(), node_id(90));
    let word = replace(&set, &[2], &[(old.id, 2)]);
    let standing = set.settle(&word);
    let configuration = agreed(&standing).clone();
    assert_eq!((configuration.epoch(), configuration.has(old.id)), (2, false));
    assert!(configuration.slots().iter().any(|slot| slot.address == "host-2"));
    assert_eq!((set.nodes[2].gate, set.votes()), (Gate::Forgot, 2), "it waits");
    set.pass_quarantine();
    set.settle(&word);
    assert_eq!((set.votes(), set.nodes[2].floor), (3, 9_000_000), "above what was given");
    // The old one votes for nobody who knows the change, and learns of it.
    set.nodes[2] = old;
    assert_eq!(set.votes(), 2);
    set.settle(&wish(3, false));
    assert_eq!(set.gates(), [Gate::Open, Gate::Open, Gate::Out]);
}

#[test]
fn an_operator_takes_its_slot_from_a_server_that_still_votes() {
    let mut set = Set::founded(5);
    let (old, kept) = (set.nodes[4].id, set.nodes[3].id);
    set.nodes[3] = Node::blank("first".to_owned(), node_id(90));
    let standing = set.settle(&replace(&set, &[3], &[(old, 3)]));
    assert!(agreed(&standing).has(kept) && !agreed(&standing).has(old));
    assert_eq!(set.gates()[3..], [Gate::Forgot, Gate::Out]);
}

#[test]
fn a_word_for_a_node_that_is_not_there_evicts_nobody() {
    let mut set = Set::founded(3);
    set.wipe(0, "again");
    let mut word = wish(3, false);
    word.replace = vec![(set.nodes[1].id, node_id(90))];
    let second = set.nodes[1].id;
    let standing = set.settle(&word);
    assert!(agreed(&standing).has(second) && agreed(&standing).has(set.nodes[0].id));
}

/// Founded as `10.0.0.1`, listed as `host-1`, and no client lives that saw them: a majority forgot.
#[test]
fn where_a_majority_forgot_under_other_names_an_operator_names_all_slots() {
    let mut set = Set::founded(3);
    let old = [set.nodes[0].id, set.nodes[1].id];
    set.wipe(0, "again");
    set.wipe(1, "again");
    let before = set.nodes.clone();
    let one = replace(&set, &[0, 1, 2], &[(old[0], 0)]);
    let told = plan(&set.views(), &one);
    assert!(matches!(told.standing, Standing::Mislisted(_)) && told.steps.is_empty(), "{told:?}");
    assert_eq!((told.mislisted, &set.nodes), (vec![1], &before));
    let both = replace(&set, &[0, 1, 2], &[(old[0], 0), (old[1], 1)]);
    set.settle(&both);
    assert_eq!(set.votes(), 1, "they wait");
    set.pass_quarantine();
    set.settle(&both);
    assert_eq!(set.votes(), 3);
    assert!((0..2).all(|node| set.nodes[node].largest == set.ahead()), "by the clock");
}

#[test]
fn when_a_majority_forgot_all_must_answer_and_the_clock_gives_the_floor() {
    let mut set = Set::founded(5);
    let wish = wish(5, false);
    for node in 0..3 {
        set.wipe(node, "again");
    }
    set.silent = vec![4];
    let standing = set.settle(&wish);
    assert_eq!(agreed(&standing).epoch(), 1, "the silent one might know of a change");
    set.silent.clear();
    set.settle(&wish);
    assert_eq!((set.votes(), set.configuration(0).epoch()), (2, 2));
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!(set.votes(), 5);
    assert!((0..3).all(|node| set.nodes[node].largest == set.ahead()));
    // Nobody remembers anything: as if it were founded by whoever comes first.
    for node in 0..5 {
        set.wipe(node, "third");
    }
    set.settle(&wish);
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!(set.votes(), 0);
    set.pass_cap();
    set.settle(&wish);
    assert_eq!(set.votes(), 5);
}

#[test]
fn one_more_forgets_while_the_first_waits() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    set.wipe(0, "again");
    set.settle(&wish);
    set.pass(Duration::from_secs(30));
    set.wipe(1, "again");
    set.settle(&wish);
    // Only one remembers now: the first one's wait begins again, with the clock for a floor.
    set.pass(Duration::from_secs(45));
    set.settle(&wish);
    assert_eq!(set.votes(), 1);
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!(set.votes(), 3);
    assert!(set.nodes[0].largest >= 60_000_000 && set.nodes[1].largest >= 60_000_000);
}

#[test]
fn a_set_of_one_or_two_leans_on_the_clock() {
    for nodes in [1, 2] {
        let mut set = Set::founded(nodes);
        set.wipe(0, "again");
        let wish = wish(nodes, false);
        set.settle(&wish);
        if nodes == 1 {
            set.pass_cap();
        }
        set.pass_quarantine();
        set.settle(&wish);
        assert_eq!(set.votes(), nodes);
        assert_eq!(set.nodes[0].largest, set.ahead());
    }
}

#[test]
fn a_split_epoch_is_settled_by_the_next_and_forgets_neither_change() {
    let mut set = Set::founded(5);
    let wish = wish(5, false);
    // Two look at once; one sees one node that forgot, the other another.
    set.wipe(0, "again");
    let first = plan(&set.views(), &wish).steps;
    let kept = set.nodes[0].clone();
    set.nodes[0] = Set::founded(5).nodes[0].clone();
    set.wipe(4, "again");
    let second = plan(&set.views(), &wish).steps;
    set.nodes[0] = kept;
    for (node, told) in first.into_iter().filter(|(node, _)| [0, 1, 2].contains(node)) {
        assert!(set.tell(node, told));
    }
    for (node, told) in second.into_iter().filter(|(node, _)| [3, 4].contains(node)) {
        assert!(set.tell(node, told));
    }
    assert_eq!((set.configuration(1).epoch(), set.configuration(3).epoch()), (2, 2));
    assert_ne!(set.configuration(1).stamp(), set.configuration(3).stamp());
    let standing = set.settle(&wish);
    let configuration = agreed(&standing);
    assert_eq!(configuration.epoch(), 3);
    assert!(configuration.has(set.nodes[0].id) && configuration.has(set.nodes[4].id));
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!(set.votes(), 5);
}

#[test]
fn who_was_replaced_stays_out() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    let old = set.nodes[2].clone();
    set.wipe(2, "blank under the same address");
    set.settle(&wish);
    set.pass_quarantine();
    set.settle(&wish);
    // The old one lives on elsewhere; somebody still reaches it there.
    let newcomer = std::mem::replace(&mut set.nodes[2], old);
    assert_eq!(set.votes(), 2, "it votes under the old configuration only, and nobody else does");
    set.settle(&wish);
    assert_eq!(set.gates(), [Gate::Open, Gate::Open, Gate::Out]);
    set.pass_cap();
    set.settle(&wish);
    assert_eq!(set.votes(), 2);
    set.nodes[2] = newcomer;
    assert_eq!(set.votes(), 3);
}

#[test]
fn who_lists_fewer_or_more_nodes_than_belong_to_a_set_changes_nothing() {
    // Two of the three listed would be a majority, and two of five are none.
    let mut set = Set::founded(5);
    set.wipe(0, "again");
    set.nodes.truncate(3);
    let plan_of = |set: &Set| plan(&set.views(), &wish(set.nodes.len(), false));
    let told = plan_of(&set);
    assert_eq!((told.standing, told.steps.len()), (Standing::Miscounted { nodes: 5 }, 0));
    let mut set = Set::founded(3);
    set.nodes.extend(Set::blank(7).nodes.into_iter().skip(3));
    let told = plan_of(&set);
    assert_eq!((told.standing, told.steps.len()), (Standing::Miscounted { nodes: 3 }, 0));
}

#[test]
fn who_lists_one_node_of_a_set_and_blank_ones_does_not_get_the_set() {
    for founded_by_operator in [true, false] {
        let mut left = Set::blank(3);
        left.settle(&wish(3, founded_by_operator));
        let mut right = Set::blank(5);
        right.nodes = [left.nodes.split_off(2), right.nodes.split_off(3)].concat();
        let mut theirs = wish(3, true);
        for (at, address) in
            ["10.0.0.2:6379", "10.0.0.11:6379", "10.0.0.12:6379"].iter().enumerate()
        {
            (*address).clone_into(&mut theirs.addresses[at]);
        }
        for silent in [vec![], vec![2]] {
            let before = right.nodes.clone();
            right.silent.clone_from(&silent);
            let standing = right.settle(&theirs);
            assert_eq!(matches!(standing, Standing::Mislisted(_)), silent.is_empty());
            assert_eq!(right.nodes[1..], before[1..], "a blank one is not told of the set either");
        }
        // Where its own servers have forgotten, all of them are known by their addresses.
        right.silent.clear();
        theirs.addresses[1..].clone_from_slice(&wish(3, true).addresses[..2]);
        let standing = right.settle(&theirs);
        assert_eq!(agreed(&standing).epoch(), 2);
    }
}

#[test]
fn two_addresses_of_one_node_are_seen() {
    let mut set = Set::founded(3);
    set.nodes[2] = set.nodes[0].clone();
    let plan = plan(&set.views(), &wish(3, false));
    assert_eq!((plan.standing, plan.steps.len()), (Standing::Twice { places: (0, 2) }, 0));
}

#[test]
fn two_servers_behind_one_address_never_take_a_quarantine_from_each_other() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    assert!(set.restart(1, "other"));
    set.settle(&wish);
    let waiting = set.nodes[1].clone();
    assert!(!set.restart(1, "first"), "a run that ended never comes back");
    assert_eq!(set.nodes[1], waiting);
    let stamp = set.configuration(1).stamp();
    assert_eq!(set.nodes[1].admit("first", stamp), Err(Barred::Marker));
    // A third run is a restart: it waits anew, for all of it.
    set.pass(Duration::from_secs(50));
    assert!(set.restart(1, "third"));
    set.settle(&wish);
    set.pass(Duration::from_secs(50));
    set.settle(&wish);
    assert_eq!(set.nodes[1].gate, Gate::Forgot);
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!(set.votes(), 3);
}

/// A server boots with a slow clock, which is then set forward; another one's clock is set back.
#[test]
fn the_clock_of_a_node_neither_ends_its_wait_nor_prolongs_it() {
    for leap in [3_600_000_000, 0] {
        let mut set = Set::founded(3);
        let wish = wish(3, false);
        set.wipe(2, "again");
        set.now += 7_200_000_000;
        set.settle(&wish);
        set.now = set.now - 3_600_000_000 + 2 * leap;
        set.settle(&wish);
        assert_eq!((set.nodes[2].gate, set.votes()), (Gate::Forgot, 2));
        set.pass_quarantine();
        set.settle(&wish);
        assert_eq!(set.votes(), 3);
    }
}

#[test]
fn clients_measure_a_wait_one_after_the_other() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    set.wipe(2, "again");
    set.settle(&wish);
    let whole = DEFAULT_MAX_LEASE.mul_f64(1.01);
    let left = |set: &Set| set.nodes[2].view().quarantine.expect("it waits").0;
    assert_eq!(left(&set), whole);
    // Two have measured from the same answer on: the longer time counts, once, in any order.
    let measured = |set: &Set, seconds| {
        let mut views = set.views();
        views[2].as_mut().expect("it answers").measured = Duration::from_secs(seconds);
        let (node, told) = plan(&views, &wish).steps.remove(0);
        assert_eq!(node, 2);
        told
    };
    let (first, second) = (measured(&set, 20), measured(&set, 30));
    assert!(set.tell(2, first.clone()));
    assert_eq!(left(&set), whole - Duration::from_secs(20));
    assert!(set.tell(2, second.clone()), "what it measured is not lost to a shorter report");
    assert!(!set.tell(2, second) && !set.tell(2, first));
    assert_eq!(left(&set), whole - Duration::from_secs(30));
    let rest = measured(&set, 40);
    assert!(set.tell(2, rest));
    assert_eq!(left(&set), Duration::ZERO);
    set.settle(&wish);
    assert_eq!(set.votes(), 3);
}

#[test]
fn a_vote_is_for_who_knows_marker_and_configuration() {
    let set = Set::founded(3);
    let node = &set.nodes[0];
    let stamp = set.configuration(0).stamp();
    assert_eq!(node.admit("first", stamp), Ok(()));
    assert_eq!(node.admit("second", stamp), Err(Barred::Marker));
    let later = set.configuration(0).successor(&[]).stamp();
    assert_eq!(node.admit("first", later), Err(Barred::Configuration));
    let foreign = Set::blank(5);
    assert_eq!(foreign.nodes[0].admit("first", stamp), Err(Barred::Gate(Gate::Blank)));
}

#[test]
fn late_and_repeated_words_change_nothing() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    set.wipe(0, "again");
    let mut said = Vec::new();
    for quarantine in [false, true] {
        if quarantine {
            set.pass_quarantine();
        }
        loop {
            let plan = set.step(&wish);
            if plan.steps.is_empty() {
                break;
            }
            said.extend(plan.steps);
        }
    }
    let settled = set.nodes.clone();
    for (node, told) in said {
        assert!(!set.tell(node, told.clone()), "{told:?}");
        set.nodes.iter_mut().for_each(|node| assert!(!node.told("strange", told.clone(), 0)));
    }
    assert_eq!(set.nodes, settled);
}

#[test]
fn configurations_are_read_as_they_are_written() {
    let mut set = Set::founded(3);
    set.wipe(1, "again");
    set.settle(&wish(3, false));
    let configuration = set.configuration(0);
    let text = configuration.to_string();
    assert_eq!(text.parse().as_ref(), Ok(configuration));
    assert!(text.contains(&format!("/1@{}", address(1))), "{text}");
    for foreign in [
        "",
        "1",
        "2 00000000000000000000000000000001 1 60000 00000000000000000000000000000001/0@a",
        "1 1 1 60000 00000000000000000000000000000001/0@a",
        "1 00000000000000000000000000000001 -1 60000 00000000000000000000000000000001/0@a",
        "1 00000000000000000000000000000001 1 60000",
        "1 00000000000000000000000000000001 1 600001 00000000000000000000000000000001/0@a",
        "1 00000000000000000000000000000001 1 60000 00000000000000000000000000000001/0",
        "1 00000000000000000000000000000001 1 60000 00000000000000000000000000000001@a",
        "1 00000000000000000000000000000001 18446744073709551615 1 \
         00000000000000000000000000000001/0@a",
    ] {
        assert!(foreign.parse::<Configuration>().is_err(), "{foreign}");
    }
}

/// Members 1 and 3 of the set {1, 2, 3} were replaced by 5 and 4, and live on. Member 2 forgets. A
/// client that still knows 1, 2 and 3 sees two nodes that remember, and only one of them is a
/// member.
#[test]
fn former_members_do_not_make_a_majority_with_a_blank_node() {
    let mut set = Set::founded(3);
    let wish = wish(3, false);
    let first = set.nodes[2].clone();
    let replace = |set: &mut Set, node: usize| {
        set.wipe(node, "blank under the same address");
        set.settle(&wish);
        set.pass_quarantine();
        set.settle(&wish);
    };
    replace(&mut set, 2);
    let second = set.nodes[0].clone();
    replace(&mut set, 0);
    assert_eq!((set.votes(), set.configuration(0).epoch()), (3, 3));
    set.wipe(1, "again");
    let members = set.nodes.clone();
    (set.nodes[0], set.nodes[2]) = (second, first);
    for _ in 0..3 {
        let standing = set.settle(&wish);
        assert_eq!(
            agreed(&standing).epoch(),
            2,
            "member 4 of {{1, 2, 4}} is neither seen nor placed"
        );
        set.pass_quarantine();
    }
    assert_eq!((set.nodes[1].gate, set.votes()), (Gate::Blank, 1));
    // Those who see the members bring it back.
    set.nodes[0] = members[0].clone();
    set.nodes[2] = members[2].clone();
    set.settle(&wish);
    set.pass_quarantine();
    set.settle(&wish);
    assert_eq!((set.votes(), set.configuration(1).epoch()), (3, 4));
}

/// Another set's dump is put back on one of five servers.
#[test]
fn a_node_of_another_set_is_a_missing_vote_beside_a_majority_that_agrees() {
    let mut set = Set::founded(5);
    let five = wish(5, false);
    let mut others = Set::blank(5);
    others.nodes.iter_mut().zip(90..).for_each(|(node, id)| {
        *node = Node::blank("first".to_owned(), node_id(id));
    });
    others.settle(&wish(5, true));
    set.nodes[4] = others.nodes[4].clone();
    let before = set.nodes.clone();
    assert_eq!(agreed(&set.settle(&five)).set(), set.configuration(0).set());
    assert_eq!(set.nodes, before, "nobody is told anything");
    // It does not stand in the way of one that forgot.
    set.wipe(0, "again");
    set.settle(&five);
    set.pass_quarantine();
    set.settle(&five);
    assert_eq!((set.votes(), &set.nodes[4]), (4, &before[4]), "of epoch 2");
    // Without a majority of one set nobody can say which is meant.
    (set.nodes[2], set.nodes[3]) = (others.nodes[2].clone(), others.nodes[3].clone());
    set.silent = vec![4];
    assert!(matches!(set.settle(&five), Standing::Foreign { .. }));
    // What an operator empties is a newcomer.
    let mut set = Set::founded(3);
    set.nodes[2] = others.nodes[2].clone();
    let three = wish(3, false);
    set.settle(&three);
    set.wipe(2, "emptied");
    set.settle(&three);
    set.pass_quarantine();
    set.settle(&three);
    assert_eq!(set.votes(), 3);
}
