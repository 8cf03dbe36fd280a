//! How an engine reaches its server: sockets, TLS, URLs, secrets, and where its tasks run.
//!
//! For those who write engines. Nothing here knows a protocol or a rule of locks.
//!
//! | look at | for |
//! |---|---|
//! | [`socket`] | TCP with the options that keep it from hanging |
//! | [`tls`] | certificates, and what a failed handshake tells the user |
//! | [`files`], [`secret`] | what settings name, and what no message may show |
//! | [`url`], [`settings`] | the parts of an engine's URL, and the settings that clusters share |
//! | [`home`], [`workplace`] | the runtime in which an engine's tasks run, and waiting for them |
//! | [`verbs_as_tasks`] | an engine that runs each verb as a task |

pub mod files;
pub mod home;
pub mod secret;
pub mod settings;
pub mod socket;
pub mod tls;
pub mod url;
mod verbs;
pub mod workplace;
