//! The library on the memory engine: what users do, and what goes wrong.

mod basics;
mod support;
