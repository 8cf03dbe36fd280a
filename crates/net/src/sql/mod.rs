//! What the engines of SQL servers share: rules in functions or procedures of the database, which a
//! client calls over one connection. A part that differs between the servers is theirs.
//!
//! | look at | for |
//! |---|---|
//! | [`engine`] | what an engine does besides its statements |
//! | [`link`] | the connection: how it is kept open, and how a statement waits for it |
//! | [`requests`] | how values of a request are encoded |
//! | [`rows`], [`replies`] | the columns of a reply, and what they mean |
//! | [`row_lock`] | the waits for rows that users lock, and their errors |
//! | [`checkup`] | the checks of `doctor` that both have |

pub mod checkup;
pub mod engine;
pub mod link;
pub mod replies;
pub mod requests;
pub mod row_lock;
pub mod rows;
mod server;
mod supervisor;
