//! The oracle: every state that the store may be in, as lock tables.

use std::time::Duration;

use holdline_core::table::{Command, LockState, Reply, WakeUp};
use holdline_core::{Capabilities, FencingToken, Moment, Operation};

/// How many states there may be.
pub(super) const MAX_STATES: usize = 8;

/// One state that the store may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PossibleState {
    table: LockState,
    counter: u64,
    /// Which token of the engine is which of the table.
    pub(super) tokens: Tokens,
}

/// Pairs of tokens: one of the table, one of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens(Vec<Pair>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    table: FencingToken,
    engine: FencingToken,
    exclusive: bool,
}

impl PossibleState {
    pub(super) fn new() -> PossibleState {
        PossibleState { table: LockState::default(), counter: 0, tokens: Tokens::default() }
    }

    /// Carries out a command. An operator's token is the engine's and is translated first.
    pub(super) fn apply(
        &mut self,
        profile: &Capabilities,
        command: &Command,
        now: Moment,
    ) -> (Reply, Vec<WakeUp>) {
        let mut command = command.clone();
        if let Command::Operate(Operation::Revoke { token, .. }) = &mut command {
            *token = self.tokens.of_table(*token).unwrap_or(FencingToken::MAX);
        }
        self.table.apply(&mut self.counter, profile, &command, now)
    }
}

impl Tokens {
    /// Notes that the table's token is the engine's; false when that contradicts what was noted
    /// before: the pairing must be one to one, and exclusive grants must stand in one order.
    pub(super) fn same(&mut self, table: FencingToken, engine: FencingToken, alone: bool) -> bool {
        let pair = Pair { table, engine, exclusive: alone };
        for known in &self.0 {
            if (known.table == table) != (known.engine == engine) {
                return false;
            }
            let ordered = known.exclusive && alone;
            if ordered && known.table.cmp(&table) != known.engine.cmp(&engine) {
                return false;
            }
        }
        if !self.0.contains(&pair) {
            self.0.push(pair);
        }
        true
    }

    fn of_table(&self, engine: FencingToken) -> Option<FencingToken> {
        self.0.iter().find(|pair| pair.engine == engine).map(|pair| pair.table)
    }
}

/// The moment of the table that stands for the beginning of a history, far enough from the
/// clock's origin that nothing before it is cut off.
pub(super) fn moment(due: Duration) -> Moment {
    Moment::ORIGIN.after(Duration::from_secs(24 * 60 * 60)).after(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("in range")
    }

    #[test]
    fn tokens_are_paired_one_to_one_and_in_order() {
        let mut tokens = Tokens::default();
        assert!(tokens.same(token(1), token(100), true));
        assert!(tokens.same(token(1), token(100), true));
        assert!(!tokens.same(token(1), token(101), true), "one of the table, two of the engine");
        assert!(!tokens.same(token(2), token(100), true), "two of the table, one of the engine");
        assert!(!tokens.same(token(2), token(99), true), "the later one is smaller");
        assert!(tokens.same(token(2), token(99), false), "shared grants have no order");
        assert!(tokens.same(token(3), token(200), true));
        assert_eq!(tokens.of_table(token(200)), Some(token(3)));
        assert_eq!(tokens.of_table(token(7)), None);
    }
}
