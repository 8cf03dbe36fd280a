//! The proof that a holder presents to the resource.
//!
//! Invariant F1: only a `Proof<Exclusive>` raises a mark or writes. A shared holder must not:
//! raising the mark would refuse the other shared holders, whose smaller tokens are valid too.
//! Permits make no proof at all: the numbers of concurrent holders have no order.

use std::fmt;
use std::marker::PhantomData;

use holdline_core::{FencingToken, LockName, Mode};

/// Marks the proof of an exclusive holder: it may seal, write and check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusive {}

/// Marks the proof of a shared holder: it may check, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {}

/// The two kinds of access that a resource can check: [`Exclusive`] and [`Shared`].
pub trait Access: private::Sealed {}
impl Access for Exclusive {}
impl Access for Shared {}

/// A grant that knows its mode, such as the guard of a lock.
///
/// The library `holdline` implements it for its guards. Implement it for the guard of another lock
/// service only if its numbers grow with each exclusive grant of a name.
pub trait Granted {
    /// Returns how the name is held.
    fn mode(&self) -> Mode;
    /// Returns the fencing token of the grant.
    fn fencing_token(&self) -> FencingToken;
    /// Returns the lock name.
    fn name(&self) -> &LockName;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::Shared {}
}

/// The proof that a holder presents to a resource: its fencing token, and whether it is exclusive
/// or shared.
///
/// A proof shows *when* its holder acquired the name, not who it is: anybody can make one from a
/// number. It refuses late writers, not hostile ones. A resource that cannot trust its callers also
/// needs authentication, and [`Rules::max_jump`](super::Rules::max_jump).
///
/// # Examples
/// ```
/// use holdline_fence::{Exclusive, FencingToken, LockName, Mode, Proof};
///
/// // From a number, for example of `$HOLDLINE_FENCING_TOKEN`:
/// let token: FencingToken = "34".parse()?;
/// let proof = Proof::exclusive(token).with_name(LockName::new("stock/17")?);
/// assert_eq!(proof.token().get(), 34);
///
/// // From a number and the mode of its grant. Permits have no order, so they make no proof.
/// assert!(Proof::<Exclusive>::try_from((Mode::Exclusive, token)).is_ok());
/// assert!(Proof::<Exclusive>::try_from((Mode::permits(1, 2)?, token)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A shared proof cannot seal: this does not compile.
/// ```compile_fail,E0308
/// use holdline_fence::{Fenced, FencedCell, Proof};
/// # let token = holdline_fence::FencingToken::MIN;
/// let cell = FencedCell::new(0);
/// cell.seal(&Proof::shared(token));
/// ```
pub struct Proof<A: Access = Exclusive> {
    token: FencingToken,
    name: Option<LockName>,
    access: PhantomData<A>,
}

impl Proof<Exclusive> {
    /// Makes the proof of an exclusive holder from a number.
    pub const fn exclusive(token: FencingToken) -> Proof<Exclusive> {
        Proof { token, name: None, access: PhantomData }
    }

    /// Makes the proof of a grant, with its lock name.
    ///
    /// It does not check whether the grant is still valid: the resource does that.
    ///
    /// # Errors
    /// [`CannotFence`]: the name is held shared or by permits.
    pub fn exclusive_of(granted: &impl Granted) -> Result<Proof<Exclusive>, CannotFence> {
        let proof = Proof::<Exclusive>::try_from((granted.mode(), granted.fencing_token()))?;
        Ok(proof.with_name(granted.name().clone()))
    }
}

impl Proof<Shared> {
    /// Makes the proof of a shared holder from a number.
    pub const fn shared(token: FencingToken) -> Proof<Shared> {
        Proof { token, name: None, access: PhantomData }
    }

    /// Makes the proof of a shared grant, with its lock name.
    ///
    /// # Errors
    /// [`CannotFence`]: the name is held exclusively or by permits.
    pub fn shared_of(granted: &impl Granted) -> Result<Proof<Shared>, CannotFence> {
        let proof = Proof::<Shared>::try_from((granted.mode(), granted.fencing_token()))?;
        Ok(proof.with_name(granted.name().clone()))
    }
}

impl<A: Access> Proof<A> {
    /// Adds the lock name, for resources that require it
    /// ([`Rules::guarded_by`](super::Rules::guarded_by)).
    #[must_use]
    pub fn with_name(mut self, name: LockName) -> Proof<A> {
        self.name = Some(name);
        self
    }

    /// Returns the fencing token.
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the lock name, if the holder gave it.
    pub fn name(&self) -> Option<&LockName> {
        self.name.as_ref()
    }
}

impl<A: Access> Clone for Proof<A> {
    fn clone(&self) -> Proof<A> {
        Proof { token: self.token, name: self.name.clone(), access: PhantomData }
    }
}

impl<A: Access> fmt::Debug for Proof<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = std::any::type_name::<A>().rsplit("::").next().unwrap_or_default();
        f.debug_struct("Proof")
            .field("access", &format_args!("{access}"))
            .field("token", &self.token)
            .field("name", &self.name)
            .finish()
    }
}

/// The grant cannot make a proof of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a grant of mode {mode} cannot {what}: take the name {instead}")]
pub struct CannotFence {
    mode: Mode,
    what: &'static str,
    instead: &'static str,
}

impl CannotFence {
    /// Returns how the name is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl TryFrom<(Mode, FencingToken)> for Proof<Exclusive> {
    type Error = CannotFence;
    fn try_from((mode, token): (Mode, FencingToken)) -> Result<Proof<Exclusive>, CannotFence> {
        match mode {
            Mode::Exclusive => Ok(Proof::exclusive(token)),
            Mode::Shared | Mode::Permits { .. } => {
                Err(CannotFence { mode, what: "seal or write", instead: "exclusively" })
            }
        }
    }
}

impl TryFrom<(Mode, FencingToken)> for Proof<Shared> {
    type Error = CannotFence;
    fn try_from((mode, token): (Mode, FencingToken)) -> Result<Proof<Shared>, CannotFence> {
        match mode {
            Mode::Shared => Ok(Proof::shared(token)),
            Mode::Exclusive => {
                Err(CannotFence { mode, what: "stand for a shared one", instead: "shared" })
            }
            Mode::Permits { .. } => {
                Err(CannotFence { mode, what: "be checked", instead: "exclusively or shared" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_makes_its_own_proof_and_permits_none() {
        let token = FencingToken::MIN;
        let permits = Mode::permits(1, 3).expect("a semaphore");
        for (mode, exclusive, shared) in
            [(Mode::Exclusive, true, false), (Mode::Shared, false, true), (permits, false, false)]
        {
            let made = Proof::<Exclusive>::try_from((mode, token));
            assert_eq!(made.is_ok(), exclusive, "{mode}");
            assert_eq!(Proof::<Shared>::try_from((mode, token)).is_ok(), shared, "{mode}");
        }
        let result = Proof::<Exclusive>::try_from((permits, token)).expect_err("no order");
        assert_eq!(result.mode(), permits);
        let says = "a grant of mode 1/3 permits cannot seal or write: take the name exclusively";
        assert_eq!(result.to_string(), says);
    }

    #[test]
    fn a_proof_shows_its_access() {
        let shown = format!("{:?}", Proof::shared(FencingToken::MIN));
        assert_eq!(shown, "Proof { access: Shared, token: FencingToken(1), name: None }");
    }
}
