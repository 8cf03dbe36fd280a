//! The suite that every engine of Holdline must pass.

pub mod checker;
