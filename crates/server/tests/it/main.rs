//! The server as clients of any language see it: raw HTTP on a loopback port.

mod acquire;
mod audit;
mod connections;
mod crowd;
mod events;
mod ground;
mod health;
mod inputs;
mod network;
mod openapi;
mod rights;
mod schema;
mod sessions;
mod several;
mod socket;
mod stores;
mod tls;
