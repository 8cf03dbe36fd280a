//! What is a file's own: what stands in its place, crashes at every step, and work under a lock.

mod held;
mod kills;
mod paths;
mod power;
