//! The MariaDB engine against real servers: tests that only this engine needs.

mod access;
mod audit;
mod checkup;
mod clocks;
mod connections;
mod crowds;
mod fast;
mod losses;
mod names;
mod removed_rows;
mod replicas;
mod row_losses;
mod rows;
mod stores;
mod support;
mod sweeps;
mod tables;
mod turns;
mod versions;
mod wakes;
