//! Random walks through worlds that are too large to explore in full.

use std::fmt::Debug;

use stateright::Model;

/// The maximum length of a walk.
const STEPS: usize = 80;

/// Walks through a world at random, until a walk breaks a property. Returns that property, and the
/// number of steps of all walks. Prints the walk.
pub(super) fn walk<M: Model<Action: Debug>>(
    world: &M,
    seed: u64,
    walks: usize,
    broken: impl Fn(&M::State) -> Option<&'static str>,
) -> (Option<&'static str>, usize) {
    let mut state = seed.max(1);
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("below")
    };
    let (mut actions, mut steps) = (Vec::new(), 0);
    for _ in 0..walks {
        let mut walked = Vec::new();
        let mut at = world.init_states().remove(0);
        for _ in 0..STEPS {
            actions.clear();
            world.actions(&at, &mut actions);
            if actions.is_empty() {
                break;
            }
            let action = actions.swap_remove(draw(actions.len()));
            steps += 1;
            walked.push(format!("{action:?}"));
            at = world.next_state(&at, action).unwrap_or(at);
        }
        if let Some(broken) = broken(&at) {
            println!("{broken}: {walked:#?}");
            return (Some(broken), steps);
        }
    }
    (None, steps)
}
