//! One file for each verb: its arguments, what it needs, what it does, what it prints. The list of
//! all verbs is [`all`].

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

use crate::verb::Verb;

/// All verbs, in the order of the help.
pub(crate) fn all() -> Vec<Verb> {
    Vec::from([
        run::verb(),
        run::elect::verb(),
        acquire::verb(),
        renew::verb(),
        release::verb(),
        check::verb(),
        who::verb(),
        ls::verb(),
        watch::verb(),
        #[cfg(feature = "top")]
        top::verb(),
        wait::verb(),
        latch::verb(),
        revoke::verb(),
        freeze::freeze_verb(),
        freeze::unfreeze_verb(),
        audit::verb(),
        explain::verb(),
        doctor::verb(),
        demo::verb(),
        fence::verb(),
        #[cfg(feature = "torture")]
        torture::verb(),
        #[cfg(feature = "server")]
        serve::verb(),
        #[cfg(feature = "mcp")]
        mcp::verb(),
        quorum::verb(),
        completions::verb(),
        man::verb(),
    ])
}
