//! Random interleavings of holders, on each kind of resource.

use super::*;
use crate::SqliteFence;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const HOLDERS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Act {
    Seal,
    Read,
    Write,
}

/// The holders' tokens, and who does what in which order.
type History = (Vec<u64>, Vec<(usize, Act)>);

fn history() -> impl Strategy<Value = History> {
    let gaps = proptest::collection::vec(1..1000_u64, HOLDERS);
    let tokens = gaps.prop_map(|gaps| {
        gaps.into_iter().scan(0, |sum, gap| {
            *sum += gap;
            Some(*sum)
        })
    });
    let act = prop_oneof![Just(Act::Seal), Just(Act::Read), Just(Act::Write)];
    let acts = proptest::collection::vec((0..HOLDERS, act), 1..40);
    (tokens.prop_map(Iterator::collect), acts)
}

#[derive(Clone, Copy, Default)]
struct Holder {
    sealed: bool,
    /// What it read after it sealed.
    read: Option<u64>,
}

/// Plays a history and checks what a fenced resource promises. Each write stores a number of its
/// own. Returns how many writes were accepted and how many refused.
fn play<S: Shelf>(shelf: &S, (tokens, acts): &History) -> (usize, usize) {
    let mut holders = [Holder::default(); HOLDERS];
    let (mut stored, mut writes) = (0, Vec::new());
    let mut largest_accepted = 0;
    let mut refused = 0;
    for (step, (who, act)) in acts.iter().enumerate() {
        let (mine, holder) = (proof(tokens[*who]), &mut holders[*who]);
        let may = tokens[*who] >= largest_accepted;
        match act {
            Act::Seal => {
                let answer = shelf.seal(&mine);
                assert_eq!(answer.is_ok(), may, "step {step}: {answer:?}");
                holder.sealed |= may;
            }
            Act::Read => {
                let answer = shelf.look(&mine);
                assert_eq!(answer.is_ok(), may, "step {step}: {answer:?}");
                if let Ok(found) = answer {
                    assert_eq!(found, stored, "step {step}: an acknowledged write is lost");
                    holder.read = holder.sealed.then_some(found);
                }
            }
            Act::Write => {
                let number = step as u64 + 1;
                let answer = shelf.put(&mine, number);
                assert_eq!(answer.is_ok(), may, "step {step}: {answer:?}");
                if answer.is_err() {
                    refused += 1;
                    continue;
                }
                // Sealed, read, wrote: nobody's write came between.
                assert!(holder.read.is_none_or(|read| read == stored), "step {step}");
                stored = number;
                holder.read = holder.read.map(|_| number);
                writes.push(tokens[*who]);
            }
        }
        if may && !matches!(act, Act::Read) {
            largest_accepted = tokens[*who];
        }
    }
    assert!(writes.is_sorted(), "tokens of accepted writes fell: {writes:?}");
    let mark = (largest_accepted > 0).then(|| token(largest_accepted));
    assert_eq!(shelf.mark().expect("readable"), mark);
    (writes.len(), refused)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_on_a_cell(history in history()) {
        play(&FencedCell::new(0), &history);
    }

    #[test]
    fn any_interleaving_on_a_database(history in history()) {
        let db = shelf_database(Path::new(":memory:"));
        play(&SqliteFence::new("shelf").on(&db), &history);
    }
}

proptest! {
    // Each write of a file waits twice for the disk.
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_interleaving_on_a_file(history in history()) {
        let home = Home::new();
        play(&FencedFile::at(home.join("shelf")).expect("a place"), &history);
    }
}

#[test]
fn histories_contain_accepted_and_refused_writes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200 {
        let tree = history().new_tree(&mut runner).expect("a history");
        let (yes, no) = play(&FencedCell::new(0), &tree.current());
        accepted += yes;
        refused += no;
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}
