//! Locks on a quorum of real servers while nodes are cut off, stand still, forget, come back as
//! others, and have wrong clocks. At the level of what users import; each test has one expected
//! outcome.

mod clocks;
mod ground;
mod health;
mod memory;
mod nodes;
mod processes;
mod sets;
