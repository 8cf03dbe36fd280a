//! The queue of a name, as the rules see it.

use super::state::QueueEntry;
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::token::FencingToken;

/// The queue of one name and the source of tokens.
///
/// The rules never read an empty queue, so an uncontended command uses only the [`super::Head`]
/// and, if it grants, the token source. All changes of one command take effect together or not at
/// all.
pub trait Store {
    /// The store's own failure. It undoes the command.
    type Error;

    /// Issues a token larger than every earlier one for this name.
    ///
    /// # Errors
    /// The store's own failure, and an exhausted counter.
    fn next_token(&mut self) -> Result<FencingToken, Self::Error>;

    /// Adds an entry at the end; its place is larger than every other.
    ///
    /// # Errors
    /// The store's own failure.
    fn push(&mut self, entry: QueueEntry) -> Result<(), Self::Error>;

    /// Returns the entry with the smallest place.
    ///
    /// # Errors
    /// The store's own failure.
    fn first(&mut self) -> Result<Option<QueueEntry>, Self::Error>;

    /// Returns the entry of a lease id.
    ///
    /// # Errors
    /// The store's own failure.
    fn find(&mut self, lease_id: LeaseId) -> Result<Option<QueueEntry>, Self::Error>;

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

    /// Notes that the client of the entry at a place was last seen at `now`.
    ///
    /// # Errors
    /// The store's own failure.
    fn touch(&mut self, place: u64, now: Moment) -> Result<(), Self::Error>;

    /// Removes all entries that were last seen at `last_seen` or before.
    ///
    /// # Errors
    /// The store's own failure.
    fn remove_silent(&mut self, last_seen: Moment) -> Result<Remaining, Self::Error>;

    /// Removes the entries of a client.
    ///
    /// # Errors
    /// The store's own failure.
    fn remove_client(&mut self, client: ClientId) -> Result<Remaining, Self::Error>;

    /// Returns the first `limit` entries.
    ///
    /// # Errors
    /// The store's own failure.
    fn page(&mut self, limit: usize) -> Result<Vec<QueueEntry>, Self::Error>;
}

/// What is left of a queue after entries were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// How many entries there are.
    pub queued: usize,
    /// When the entry that has been silent for longest was last seen; [`Moment::NEVER`] if there
    /// is none.
    pub oldest_seen: Moment,
}
