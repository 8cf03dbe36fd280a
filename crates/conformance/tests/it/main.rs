//! The suite judges the engines that need no server, and is judged itself.

mod memory;
mod planted;
