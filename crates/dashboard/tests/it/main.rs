//! The dashboard as a browser without scripts sees it: pages and forms over real HTTP.

mod access;
mod actions;
mod audit;
mod cost;
mod ground;
mod pages;
mod past;
mod servers;
