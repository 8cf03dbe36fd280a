//! The fake servers, held against real ones and against themselves.

mod client;
mod differential;
mod faults;
mod generator;
mod real;
mod scripts;
mod time;
