//! How an engine reaches its server: sockets, TLS, URLs, secrets, and where its tasks run.
//!
//! For those who write engines. Nothing here knows a protocol or a rule of locks.
//!
//! | look at | for |
//! |---|---|
//! | [`socket`] | TCP with the options that keep it from hanging |
//! | [`tls`] | certificates, and what a failed handshake tells the user |
//! | [`files`], [`secret`] | what settings name, and what no message may show |
//! | [`url`] | the parts of an engine's URL |
//! | [`home`], [`workplace`] | the runtime in which an engine's tasks run, and waiting for them |

pub mod files;
pub mod home;
pub mod secret;
pub mod socket;
pub mod tls;
pub mod url;
pub mod workplace;
