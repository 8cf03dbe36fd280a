//! Where the queue of a name is kept, as the rules see it.

use super::state::Entry;
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::token::FencingToken;

/// The queue of one name and the source of tokens.
///
/// The rules never ask the queue of a name that has no entries, so an uncontended command
/// touches the [`super::Head`] and, when it grants, the token source only. All changes made
/// between two commands' ends take effect together or not at all.
pub trait Store {
    /// The store's own failure. The command that met it is undone.
    type Error;

    /// Draws a token larger than every one drawn before for this name.
    ///
    /// # Errors
    /// The store's own failure, and the end of its counter.
    fn next_token(&mut self) -> Result<FencingToken, Self::Error>;

    /// Adds an entry at the end; its place is larger than every other.
    ///
    /// # Errors
    /// The store's own failure.
    fn push(&mut self, entry: Entry) -> Result<(), Self::Error>;

    /// Returns the entry with the smallest place.
    ///
    /// # Errors
    /// The store's own failure.
    fn first(&mut self) -> Result<Option<Entry>, Self::Error>;

    /// Returns the entry of a lease id.
    ///
    /// # Errors
    /// The store's own failure.
    fn find(&mut self, lease_id: LeaseId) -> Result<Option<Entry>, Self::Error>;

    /// Counts the entries before a place.
    ///
    /// # Errors
    /// The store's own failure.
    fn ahead_of(&mut self, place: u64) -> Result<usize, Self::Error>;

    /// Removes the entry at a place.
    ///
    /// # Errors
    /// The store's own failure.
    fn remove(&mut self, place: u64) -> Result<(), Self::Error>;

    /// Notes that the entry at a place was heard at `now`.
    ///
    /// # Errors
    /// The store's own failure.
    fn hear(&mut self, place: u64, now: Moment) -> Result<(), Self::Error>;

    /// Removes all entries that were last heard at `heard` or before.
    ///
    /// # Errors
    /// The store's own failure.
    fn remove_silent(&mut self, heard: Moment) -> Result<Remaining, Self::Error>;

    /// Removes the entries of a client that were last heard at `heard` or before.
    ///
    /// # Errors
    /// The store's own failure.
    fn remove_client(&mut self, client: ClientId, heard: Moment) -> Result<Remaining, Self::Error>;

    /// Returns the first `limit` entries.
    ///
    /// # Errors
    /// The store's own failure.
    fn page(&mut self, limit: usize) -> Result<Vec<Entry>, Self::Error>;
}

/// What is left of a queue after entries were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// How many entries there are.
    pub queued: usize,
    /// When the one of them that was silent for longest was last heard; [`Moment::NEVER`] when
    /// there is none.
    pub heard_since: Moment,
}
