//! Bugs to plant into the table, so that tests can prove that they would be found.

/// A bug that the cargo feature `planted` can put into the table. Without the feature every rule
/// is as written and this is only a list of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Planted {
    /// A newcomer takes a free name although others queue for it.
    NewcomerPassesQueue,
    /// A shared contender joins shared holders although an exclusive one waits.
    ReaderPassesWriter,
    /// Any lease id releases an exclusive grant.
    ReleaseWithoutCompare,
    /// Time ends no grant when it is renewed late.
    RenewalResurrects,
    /// A hand-off gives the token of the grant before it.
    HandOffKeepsToken,
    /// Asking again draws a new token.
    AskingAgainDrawsToken,
    /// A claim keeps the claim window instead of the lease.
    ClaimKeepsWindow,
    /// The queue heartbeat claims.
    HeartbeatClaims,
    /// Giving up for good leaves no tombstone.
    NoTombstone,
    /// A revoked grant is renewed.
    RevokedRenews,
    /// Silent contenders stay in the queue.
    SilentStay,
    /// One permit too many is given.
    OnePermitTooMany,
    /// A release hands over to nobody.
    ReleaseForgetsQueue,
    /// A freeze waits behind the queue.
    FreezeWaits,
    /// An id that was dropped from the queue is queued anew, unseen.
    UnknownQueuesAnew,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 15] = [
        Planted::NewcomerPassesQueue,
        Planted::ReaderPassesWriter,
        Planted::ReleaseWithoutCompare,
        Planted::RenewalResurrects,
        Planted::HandOffKeepsToken,
        Planted::AskingAgainDrawsToken,
        Planted::ClaimKeepsWindow,
        Planted::HeartbeatClaims,
        Planted::NoTombstone,
        Planted::RevokedRenews,
        Planted::SilentStay,
        Planted::OnePermitTooMany,
        Planted::ReleaseForgetsQueue,
        Planted::FreezeWaits,
        Planted::UnknownQueuesAnew,
    ];
}
