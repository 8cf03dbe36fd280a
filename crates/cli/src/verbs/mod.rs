//! One file for each verb: its arguments, what it needs, what it does, what it prints. The list of
//! all verbs is [`VERBS`].

pub(crate) mod acquire;
pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod common;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fence;
pub(crate) mod freeze;
pub(crate) mod latch;
pub(crate) mod ls;
pub(crate) mod man;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod quorum;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod revoke;
pub(crate) mod run;
#[cfg(feature = "server")]
pub(crate) mod serve;
#[cfg(feature = "top")]
pub(crate) mod top;
#[cfg(feature = "torture")]
pub(crate) mod torture;
pub(crate) mod wait;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod who;

use crate::verb::Entry;

/// All verbs, in the order of the help.
pub(crate) const VERBS: &[Entry] = &[
    Entry::of::<run::RunArgs>(),
    Entry::of::<run::elect::ElectArgs>(),
    Entry::of::<acquire::AcquireArgs>(),
    Entry::of::<renew::RenewArgs>(),
    Entry::of::<release::ReleaseArgs>(),
    Entry::of::<check::CheckArgs>(),
    Entry::of::<who::WhoArgs>(),
    Entry::of::<ls::LsArgs>(),
    Entry::of::<watch::WatchArgs>(),
    #[cfg(feature = "top")]
    Entry::of::<top::TopArgs>(),
    Entry::of::<wait::WaitVerbArgs>(),
    Entry::of::<latch::LatchArgs>(),
    Entry::of::<revoke::RevokeArgs>(),
    Entry::of::<freeze::FreezeArgs>(),
    Entry::of::<freeze::UnfreezeArgs>(),
    Entry::of::<audit::AuditArgs>(),
    Entry::of::<explain::ExplainArgs>(),
    Entry::of::<doctor::DoctorArgs>(),
    Entry::of::<demo::DemoArgs>(),
    Entry::of::<fence::FenceArgs>(),
    #[cfg(feature = "torture")]
    Entry::of::<torture::TortureArgs>(),
    #[cfg(feature = "server")]
    Entry::of::<serve::ServeArgs>(),
    #[cfg(feature = "mcp")]
    Entry::of::<mcp::McpArgs>(),
    Entry::of::<quorum::QuorumArgs>(),
    Entry::of::<completions::CompletionsArgs>(),
    Entry::of::<man::ManArgs>(),
];
