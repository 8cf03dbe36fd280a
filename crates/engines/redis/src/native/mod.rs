//! The native dialect: our own keys, one script a verb.
//!
//! A script carries out one step of the lock table, settling and handing over included, while the
//! server does nothing else. `scripts/common.lua` states the rules; what they share with the
//! table is what the conformance suite compares.

mod record;
pub(crate) mod replies;
pub(crate) mod requests;

use crate::node::Script;

pub(crate) use replies::{acquired, inspected, listed, operated, released, renewed};
pub(crate) use requests::{Asker, acquire, inspect, operate, release, renew};

macro_rules! script {
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
}

static ACQUIRE: Script =
    script!("acquire", "head", "of_one", "acquire.fast", "draw", "common", "acquire");
static RELEASE: Script =
    script!("release", "head", "of_one", "release.fast", "draw", "common", "release");
static RENEW: Script = script!("renew", "head", "of_many", "renew.fast", "draw", "common", "renew");
static INSPECT: Script = script!("inspect", "head", "of_many", "draw", "common", "inspect");
static OPERATE: Script = script!("operate", "head", "of_one", "draw", "common", "operate");
static RAISE: Script = script!("raise", "raise");
