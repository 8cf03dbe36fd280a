//! One file for each verb: its arguments, what it does, what it prints.

pub(crate) mod acquire;
pub(crate) mod check;
pub(crate) mod common;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fence;
pub(crate) mod freeze;
pub(crate) mod latch;
pub(crate) mod ls;
pub(crate) mod man;
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
