//! How an engine reaches its server: sockets, TLS, secrets, and where its tasks run.
//!
//! For those who write engines. Nothing here knows a protocol or a rule of locks.
//!
//! | look at | for |
//! |---|---|
//! | [`socket`] | TCP with the options that keep it from hanging |
//! | [`tls`] | certificates, and what a failed handshake tells the user |
//! | [`files`], [`secret`] | what settings name, and what no message may show |
//! | [`home`] | the runtime in which an engine's tasks run |

pub mod files;
pub mod home;
pub mod secret;
pub mod socket;
pub mod tls;
