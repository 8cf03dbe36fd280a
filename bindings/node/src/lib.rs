//! The native half of the Node package `holdline`: the library's futures as JavaScript objects.
//!
//! `index.cjs` is what users import. This module has only what JavaScript cannot do: it starts
//! and wakes requests (`event_loop`), and turns arguments and results of one
//! language into those of the other (`options`, `settled`). What they mean stands in
//! `holdline-bindings`.
//!
//! Invariant N1: no thread of the library ever waits for JavaScript. A waker stores a number and
//! queues a call, so leases are renewed while an event loop is blocked.
//! Invariant N2: what JavaScript has is dropped with its object, or with the thread of its event
//! loop. So requests and grants of a worker that was terminated are given up.

// Before the methods of its objects: the macro of napi reads the files in this order.
pub mod settled;

// Public, since a test build of this crate has nobody who calls them.
pub mod client;
pub mod event_loop;
pub mod grant;
mod options;
