//! A value in memory that accepts no late writer.

use std::convert::Infallible;

use holdline_core::FencingToken;
use parking_lot::{Mutex, MutexGuard};

use super::{Access, FenceError, Fenced, Proof, Rules};

/// Its name in refusals.
const CELL: &str = "a cell";

/// A value in this process that accepts no late writer.
///
/// For values that several tasks or threads share, and as the resource in tests. The mark lasts as
/// long as the value; a new process starts without one, as the `memory:` engine's counter does.
///
/// # Examples
/// ```
/// use holdline_fence::{FenceError, Fenced, FencedCell, Proof};
/// use holdline_fence::FencingToken;
///
/// let stock = FencedCell::new(10);
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let newer = Proof::exclusive(FencingToken::new(34)?);
///
/// stock.seal(&newer)?; // before the first read
/// let left = stock.read(&newer, |left| *left)?;
/// assert!(matches!(
///     stock.check_and_write(&late, |left| Ok(*left -= 1)),
///     Err(FenceError::Stale(_)),
/// ));
/// stock.check_and_write(&newer, |stored| Ok(*stored = left - 1))?;
/// assert_eq!(stock.into_inner(), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct FencedCell<T> {
    state: Mutex<Marked<T>>,
    rules: Rules,
}

#[derive(Debug, Default)]
struct Marked<T> {
    mark: Option<FencingToken>,
    value: T,
}

impl<T> FencedCell<T> {
    /// Makes a cell without a mark.
    pub fn new(value: T) -> FencedCell<T> {
        FencedCell { state: Mutex::new(Marked { mark: None, value }), rules: Rules::default() }
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> FencedCell<T> {
        self.rules = rules;
        self
    }

    /// Checks the proof and reads the value in one step.
    ///
    /// An exclusive holder seals before its first read.
    ///
    /// # Errors
    /// `Stale`, `OtherName`: the value was not read.
    pub fn read<A: Access, R>(
        &self,
        proof: &Proof<A>,
        read: impl FnOnce(&T) -> R,
    ) -> Result<R, FenceError> {
        let state = self.allowed(proof)?;
        Ok(read(&state.value))
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.state.into_inner().value
    }

    /// Locks the cell if the holder may read. A refusal is reported after the lock is released, so
    /// an observer may use the cell.
    fn allowed<A: Access>(
        &self,
        proof: &Proof<A>,
    ) -> Result<MutexGuard<'_, Marked<T>>, FenceError> {
        let state = self.state.lock();
        let answer = self.rules.check(state.mark, proof).map(|()| state);
        self.rules.report(&CELL, answer)
    }

    /// Locks the cell and raises the mark if the holder may write.
    fn raised(&self, proof: &Proof) -> Result<MutexGuard<'_, Marked<T>>, FenceError> {
        let mut state = self.state.lock();
        let answer = self.rules.raise(state.mark, proof).map(|mark| {
            state.mark = Some(mark);
            state
        });
        self.rules.report(&CELL, answer)
    }
}

impl<T> Fenced for FencedCell<T> {
    type Target = T;
    /// A write in memory cannot fail. One that panics leaves the value half written, under the new
    /// mark.
    type Failure = Infallible;

    fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        Ok(self.state.lock().mark)
    }

    fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError> {
        self.allowed(proof).map(drop)
    }

    fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        self.raised(proof).map(drop)
    }

    fn check_and_write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut T) -> Result<R, Infallible>,
    ) -> Result<R, FenceError> {
        let mut state = self.raised(proof)?;
        match write(&mut state.value) {
            Ok(value) => Ok(value),
        }
    }
}
