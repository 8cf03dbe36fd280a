//! Compiles and runs the Rust examples of the documents, as doctests.
//!
//! Each document with a Rust block is included here by two lines, and `cargo xtask tidy` says
//! which one is missing:
//!
//! ```text
//! #[doc = include_str!("../../../README.md")]
//! pub struct Readme;
//! ```

#[doc = include_str!("../../../README.md")]
pub struct Readme;

#[doc = include_str!("../../../docs/fencing.md")]
pub struct Fencing;
