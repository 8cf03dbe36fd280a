//! The library on the memory engine: what users do, and what goes wrong.

mod basics;
mod cancel;
mod faulty;
mod lines;
mod support;
