//! Tests of the lock table: tables of commands and replies, random histories, and a model that
//! explores small worlds in full.

mod histories;
mod model;
mod sessions;
mod tables;
mod world;
