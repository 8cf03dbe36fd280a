//! The engine of a Redis Cluster, on real ones.

mod checkup;
mod conformance;
mod inputs;
mod refusals;
mod replicas;
mod routes;
mod support;
