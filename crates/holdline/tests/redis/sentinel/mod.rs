//! Servers that real Sentinels monitor, and real failovers.

mod elections;
mod failovers;
mod ground;
mod network;
mod refusals;
mod replicas;
mod watching;
