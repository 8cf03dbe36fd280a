//! Servers that Sentinels look after: who is the master, and who has its grants.
//!
//! ```text
//! watcher ── asks all sentinels: at each connect, at `+switch-master`, every few seconds
//!    │           answers: whom to believe, as a pure rule
//!    └── tells the node, which leaves every connection to another server
//! copies ── WAIT: how many replicas have what was just written
//! ```
//!
//! What a promoted server may grant is for `node::reign`.

mod answers;
mod copies;
mod watcher;

pub(crate) use answers::Seen;
pub(crate) use copies::Copies;
pub(crate) use watcher::Watcher;
