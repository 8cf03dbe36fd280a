//! The engine on servers that real Sentinels monitor.

mod access;
mod checkup;
mod conformance;
mod inputs;
mod notifications;
mod support;
