//! Under construction.

#[cfg(doctest)]
mod readme;
