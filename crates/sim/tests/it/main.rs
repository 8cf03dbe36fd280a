//! The fake servers, held against real ones and against themselves.

mod differential;
mod faults;
mod generator;
mod real;
mod scripts;
mod time;
