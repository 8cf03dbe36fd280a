//! Compiles and runs the example of the README, as a doctest.

#[doc = include_str!("../README.md")]
pub struct Readme;
