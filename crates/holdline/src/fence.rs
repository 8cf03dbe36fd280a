//! Fencing: how a resource refuses a stale holder. This is the crate `holdline-fence`, which works
//! without a lock client, and what joins it with the locks of this library.
//!
//! Guards are [`Granted`]: each makes a [`Proof`] of its mode. Every [`Observer`] is a
//! [`RefusalObserver`], so that one observer receives the events of locks and resources.
//!
//! ```
//! use holdline::fence::{Fenced, FencedCell, Proof};
//! use holdline::{Client, FencingToken};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stock = FencedCell::new(10);
//! let client = Client::connect("memory:").await?;
//! let guard = client.mutex("stock/17")?.lock().await?;
//! let proof = Proof::exclusive_of(&guard)?;
//! stock.seal(&proof)?;
//! stock.check_and_write(&proof, |apples| Ok(*apples -= 1))?;
//!
//! // In a program that received the number, for example in `$HOLDLINE_FENCING_TOKEN`:
//! let result: FencingToken = guard.fencing_token().to_string().parse()?;
//! assert_eq!(Proof::exclusive(result).token(), proof.token());
//!
//! // Permits have no order, so they make no proof.
//! let permit = client.semaphore("gpu", 2)?.acquire().await?;
//! assert!(Proof::exclusive_of(&permit).is_err() && Proof::shared_of(&permit).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! The cargo features `fence-sqlite`, `fence-postgres`, `fence-mysql` and `fence-http` are the
//! features `sqlite`, `postgres`, `mysql` and `http` of that crate; its feature `file` is always
//! on. The page `docs/fencing.md` of the repository is the guide for users.

use std::sync::Arc;

#[doc(inline)]
pub use holdline_fence::*;

use crate::observer::Observer;
use crate::{Guard, Held, Lease, blocking};

macro_rules! granted {
    ($($holding:ty),*) => {$(
        impl Granted for $holding {
            fn mode(&self) -> Mode {
                <$holding>::mode(self)
            }
            fn fencing_token(&self) -> FencingToken {
                <$holding>::fencing_token(self)
            }
            fn name(&self) -> &LockName {
                <$holding>::name(self)
            }
        }
    )*};
}

granted!(Guard, blocking::Guard, Held, Lease);

/// The [`RefusalObserver`] kind of each [`Observer`].
#[derive(Clone, Copy, Debug)]
pub enum ByObserver {}

/// Reports a refusal by [`Observer::fence_refused`].
impl<O: Observer + ?Sized> RefusalObserver<ByObserver> for Arc<O> {
    fn notify(&self, refusal: &Refusal<'_>) {
        self.fence_refused(refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn fence_refused(&self, refusal: &Refusal<'_>) {
            self.0.lock().push(format!("{}: {}", refusal.resource, refusal.error));
        }
    }

    #[test]
    fn an_observer_of_locks_receives_refusals_as_itself_and_as_an_object() {
        let notes = Arc::new(Notes::default());
        let object: Arc<dyn Observer> = notes.clone();
        let token = |number| FencingToken::new(number).expect("in range");
        for rules in
            [Rules::default().with_observer(notes.clone()), Rules::default().with_observer(object)]
        {
            let cell = FencedCell::new(0).with_rules(rules);
            cell.seal(&Proof::exclusive(token(34))).expect("the first");
            cell.seal(&Proof::exclusive(token(33))).expect_err("stale");
        }
        let says = "a cell: fencing token 33 is stale: the resource has accepted 34";
        assert_eq!(*notes.0.lock(), [says, says]);
    }
}
