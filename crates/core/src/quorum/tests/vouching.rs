//! Which nodes an operator's vouch makes vote sooner, over all combinations of what may have
//! happened to each of three.

use std::time::Duration;

use super::set::{TestSet, desired};
use crate::quorum::{DesiredConfiguration, MemberState, plan, vouchable};

/// What happened to one node since the set was as in the beginning.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    Restart,
    Wipe,
    Silence,
}

const EVENTS: [Event; 4] = [Event::Nothing, Event::Restart, Event::Wipe, Event::Silence];

/// How far a set was initialised in the beginning.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    Blank,
    Proposed,
    /// One node was activated: it waits.
    HalfInitialised,
    Waiting,
    Voting,
}

const BEGINNINGS: [Beginning; 5] = [
    Beginning::Blank,
    Beginning::Proposed,
    Beginning::HalfInitialised,
    Beginning::Waiting,
    Beginning::Voting,
];

fn set_of(beginning: Beginning) -> TestSet {
    let mut set = TestSet::blank(3);
    let (vouching, waiting) = (desired(3, true), desired(3, false));
    match beginning {
        Beginning::Blank => {}
        Beginning::Proposed => drop(set.step(&waiting)),
        Beginning::HalfInitialised => {
            set.step(&waiting);
            let steps = plan(&set.reports(), &waiting).steps;
            let (node, command) = steps.into_iter().next().expect("an activation");
            assert!(set.send(node, command));
        }
        Beginning::Waiting => drop(set.settle(&waiting)),
        Beginning::Voting => drop(set.settle(&vouching)),
    }
    set
}

fn happens(set: &mut TestSet, events: [Event; 3], marker: &str) {
    set.silent.clear();
    for (node, event) in events.into_iter().enumerate() {
        match event {
            Event::Nothing => {}
            Event::Restart => assert!(set.restart(node, marker)),
            Event::Wipe => set.wipe(node, marker),
            Event::Silence => set.silent.push(node),
        }
    }
}

fn combinations() -> impl Iterator<Item = [Event; 3]> {
    let all = EVENTS.into_iter();
    let pairs = all.flat_map(|one| EVENTS.into_iter().map(move |two| (one, two)));
    pairs.flat_map(|(one, two)| EVENTS.into_iter().map(move |three| [one, two, three]))
}

fn copy(set: &TestSet) -> TestSet {
    let mut copy = TestSet::blank(3);
    copy.nodes.clone_from(&set.nodes);
    copy.silent.clone_from(&set.silent);
    copy.last_seen.clone_from(&set.last_seen);
    copy.now = set.now;
    copy
}

/// The nodes that an operator is asked about are exactly those that vote when it vouches, and would
/// not vote without.
fn check(set: &TestSet, what: &str) -> bool {
    let waiting = desired(3, false);
    let named = vouchable(&set.reports(), &waiting);
    let confirmed = named.iter().map(|node| set.nodes[*node].id).collect();
    let mut with = copy(set);
    with.settle(&DesiredConfiguration { vouched: confirmed, ..waiting.clone() });
    let mut without = copy(set);
    without.settle(&waiting);
    let votes = |set: &TestSet, node: usize| set.nodes[node].state == MemberState::Voting;
    let sooner = |node: &usize| votes(&with, *node) && !votes(&without, *node);
    let sooner: Vec<usize> = (0..3).filter(sooner).collect();
    assert_eq!(named, sooner, "{what}: {:#?}", set.reports());
    !sooner.is_empty()
}

#[test]
fn a_vouch_makes_exactly_the_named_nodes_vote_sooner() {
    let (mut some, mut none) = (0, 0);
    for beginning in BEGINNINGS {
        for first in combinations() {
            for (second, seen) in combinations().flat_map(|one| [(one, false), (one, true)]) {
                let mut set = set_of(beginning);
                happens(&mut set, first, "second");
                if seen {
                    set.settle(&desired(3, false));
                    set.pass(Duration::from_secs(1));
                }
                happens(&mut set, second, "third");
                let what = format!("{beginning:?}, {first:?}, seen {seen}, {second:?}");
                match check(&set, &what) {
                    true => some += 1,
                    false => none += 1,
                }
            }
        }
    }
    assert!(some > 1_000 && none > 1_000, "{some} {none}");
}
