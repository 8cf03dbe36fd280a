//! The fake servers, held against real ones and against themselves.

mod client;
mod differential;
mod faults;
mod generator;
mod real;
mod robust;
mod scripts;
mod time;
