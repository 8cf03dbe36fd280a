//! A real cluster: real failovers, and slots that move under load.

mod failovers;
mod ground;
mod moves;
mod network;
