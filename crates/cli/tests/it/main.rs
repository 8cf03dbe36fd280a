//! Runs the built binary as a user would.

mod child;
