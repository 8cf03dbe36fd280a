//! Types, rules and the engine contract of Holdline: no I/O, no clock, no randomness.
//!
//! | look at | for |
//! |---|---|
//! | [`name`], [`lease_id`], [`token`], [`mode`], [`metadata`], [`lease`] | the basic types |
//! | [`validity`], [`renewal`] | how long a holder may rely on its lease, and when to renew it |
//! | [`backoff`] | how long to pause before another try |
//! | [`table`] | the lock table: the executable definition of what a lock is |
//! | [`quorum`] | the rules of exclusion over several nodes that do not talk to each other |
//! | [`engine`], [`contract`], [`capabilities`], [`snapshot`], [`error`] | the contract between the library and an engine |
//! | [`json`] | snapshots as JSON, for every face that shows them |
//! | [`operation`], [`audit`] | what operators do, and what they did |
//! | [`verbs`] | what every engine does around each command |
//! | [`batch`] | sending what one thread starts in a row together |
//! | [`hints`] | how an engine notifies the watches of a lease id |
//! | [`quorum_health`] | how the engine of a quorum reports the state of its nodes |
//! | [`sequenced_queue`] | who holds and who waits, for engines whose store numbers the contenders |
//!
//! Users import the crate `holdline`; this one is for those who write engines.

pub mod audit;
pub mod backoff;
pub mod batch;
pub mod capabilities;
pub mod checkup;
pub mod contract;
mod contract_times;
pub mod counting;
pub mod engine;
mod entry;
pub mod error;
mod escape;
pub mod hints;
pub mod json;
pub mod latch;
pub mod lease;
pub mod lease_id;
pub mod metadata;
pub mod mode;
pub mod moment;
pub mod name;
mod nearest;
pub mod operation;
mod percent;
pub mod quorum;
pub mod quorum_health;
mod record;
pub mod renewal;
pub mod sequenced_queue;
mod shared_disk;
pub mod snapshot;
pub mod table;
pub mod token;
pub mod validity;
pub mod verbs;

pub use audit::{
    AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest, Operator,
};
pub use backoff::Backoff;
pub use capabilities::{AuditTrail, Capabilities, ClockKind, Expiry, HandOff, LeaseRange};
pub use checkup::{Checkup, Finding, Health};
pub use contract::{
    AcquireReply, AcquireRequest, Anchor, Ending, Hint, Purpose, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest,
};
pub use contract_times::ContractTimes;
pub use counting::{CountingCommand, CountingReply};
pub use engine::{Answer, Engine, Hints};
pub use entry::{StrayCharacter, accept_url};
pub use error::{Certainty, ErrorKind, LockError, LostReason};
pub use escape::Escaped;
pub use latch::{LatchCommand, LatchReply};
pub use lease::{Hold, LeaseTerms, TermsError};
pub use lease_id::{ClientId, Entropy, LeaseId, LeaseIdError, ShortLeaseId, ShortLeaseIdError};
pub use metadata::{HolderFields, Metadata, MetadataError};
pub use mode::{LockKind, Mode, PermitsError};
pub use moment::{Clock, Moment};
pub use name::{LockName, NameError};
pub use nearest::nearest;
pub use operation::{Operation, OperationReply};
pub use percent::percent_decode;
pub use quorum_health::{HealthFeed, NodeHealth, QuorumHealth};
pub use record::{Marks, Record};
pub use sequenced_queue::SequencedQueue;
pub use shared_disk::shared_file_system;
pub use snapshot::{
    FreezeView, GrantState, HolderSummary, HolderView, ListPage, ListRequest, Snapshot, WaiterView,
};
pub use token::{FencingToken, TokenError};
pub use verbs::{Renewed, Verbs};
