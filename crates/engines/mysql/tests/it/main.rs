//! The MariaDB engine against real servers: what only it can meet.

mod access;
mod checkup;
mod clocks;
mod connections;
mod names;
mod replicas;
mod rows;
mod stores;
mod support;
mod tables;
mod turns;
mod wakes;
