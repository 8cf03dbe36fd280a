//! Servers that real Sentinels look after, and real failovers.

mod elections;
mod failovers;
mod ground;
mod network;
mod refusals;
mod replicas;
mod watching;
