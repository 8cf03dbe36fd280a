//! How an engine reaches its server: sockets, TLS, URLs, secrets, and where its tasks run.
//!
//! For authors of engines. Apart from `sql`, this crate knows no protocol and no rule of locks.
//!
//! | look at | for |
//! |---|---|
//! | [`socket`] | TCP with the options that keep it from hanging |
//! | [`tls`] | certificates, and messages for failed handshakes |
//! | [`files`], [`secret`] | the files that settings name, and secrets that no message shows |
//! | [`url`], [`limits`], [`settings`] | the parts of an engine's URL, its limits, and the settings that clusters share |
//! | [`runtime`], [`executor`] | the runtime in which an engine's tasks run, and waiting for their results |
//! | [`notify`] | waiting for a condition that others change |
//! | [`fast_path`] | when to send a short request first, which can only grant a free name |
//! | `sql` (a feature) | what the engines of SQL servers share: the link and the replies |
//! | [`errors_of`] | the functions that make an engine's errors |
//! | [`verbs_as_tasks`] | an engine that runs each verb as a task |

pub mod der;
mod errors;
pub mod executor;
pub mod fast_path;
pub mod files;
pub mod limits;
pub mod notify;
pub mod runtime;
pub mod secret;
pub mod settings;
pub mod socket;
#[cfg(feature = "sql")]
pub mod sql;
pub mod tls;
pub mod url;
mod verbs;
