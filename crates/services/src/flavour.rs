//! Which server program is started.

use crate::Failure;
use std::path::PathBuf;

/// Where the program lies if it is not on the search path.
const PROGRAM: &str = "HOLDLINE_REDIS_SERVER";

/// A server that speaks the protocol of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Flavour {
    /// `redis-server` from the system, in Debian 12 Redis 7.0; the environment variable
    /// `HOLDLINE_REDIS_SERVER` names another program.
    #[default]
    Debian,
}

impl Flavour {
    /// Where the program lies.
    ///
    /// # Errors
    /// It is not there; says how to get it.
    pub fn program(self) -> Result<PathBuf, Failure> {
        match self {
            Self::Debian => system(),
        }
    }
}

fn system() -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os(PROGRAM).map(PathBuf::from) {
        let says = || format!("{PROGRAM} names {}, which is no file", program.display());
        return if program.is_file() { Ok(program) } else { Err(Failure::new(says())) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("redis-server"))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            let says = "`redis-server` is missing. Install the Debian package redis-server \
                (`./check` does), or name the program in";
            Failure::new(format!("{says} {PROGRAM}"))
        })
}
