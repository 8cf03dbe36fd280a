//! Servers that real Sentinels look after, and real failovers.

mod failovers;
mod ground;
mod replicas;
mod watching;
