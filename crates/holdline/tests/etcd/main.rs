//! The library on real etcd clusters whose members die, stand still, or are too few.

mod faults;
mod network;
mod support;
