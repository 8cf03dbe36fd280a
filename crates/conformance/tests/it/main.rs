//! The suite is judged: what must pass passes, and what is broken is told apart.

mod capabilities;
mod lies;
mod planted;
mod processes;
mod table;
