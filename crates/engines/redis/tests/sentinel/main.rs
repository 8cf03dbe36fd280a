//! The engine on servers that real Sentinels look after.

mod access;
mod checkup;
mod conformance;
mod hearing;
mod inputs;
mod support;
