//! Tests of the suite itself: right engines pass, and broken ones are detected.

mod capabilities;
mod defects;
mod mutants;
mod processes;
mod table;
