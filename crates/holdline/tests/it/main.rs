//! The library on the memory engine: what users do, and what goes wrong.

mod any_of;
mod basics;
mod blocking;
mod callsites;
mod cancel;
mod drops;
mod election;
mod faulty;
mod keeping;
mod latch;
mod lines;
#[cfg(feature = "local")]
mod local;
mod metrics;
mod once;
mod races;
mod recorder;
mod releases;
mod slow;
mod spans;
mod support;
mod together;
mod waiting;
mod watch;
