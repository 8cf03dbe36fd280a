//! The PostgreSQL engine against real servers: tests that only this engine needs.

mod audit;
mod checkup;
mod clocks;
mod connections;
mod crashes;
mod crowds;
mod encodings;
mod inputs;
mod messages;
mod names;
mod network;
mod people;
mod pooler;
mod readers;
mod removed_rows;
mod rights;
mod rows;
mod schema;
mod stores;
mod support;
mod sweeps;
mod trust;
mod turns;
