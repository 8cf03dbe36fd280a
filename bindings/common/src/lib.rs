//! What the packages for other languages share: everything between the library and a language that
//! knows neither the language nor its event loop.
//!
//! A binding turns values of its language into those of Rust and back. What they mean stands here:
//! options ([`options`]), what can be acquired ([`Kind`]), grants that are ended by a handle
//! ([`Grant`]), the words for failures, losses and releases ([`words`]), and requests that an event
//! loop drives ([`Work`]).

mod grant;
mod kind;
pub mod options;
pub mod words;
mod work;

pub use grant::{Acquired, Grant, Held};
pub use kind::Kind;
pub use work::Work;
