//! The server as clients of any language see it: raw HTTP on a loopback port.

mod acquire;
mod audit;
mod balanced;
mod connections;
mod crowd;
mod events;
mod ground;
mod health;
mod inputs;
mod life;
mod limits;
mod network;
mod openapi;
mod removed;
mod rights;
mod schema;
mod sessions;
mod several;
mod socket;
mod stores;
mod tls;
mod together;
mod vanish;
