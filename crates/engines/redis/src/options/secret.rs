//! Secrets: where they come from, and that nothing shows them.

use std::fmt;
use std::path::Path;

use holdline_core::LockError;

use crate::error::ENGINE;
use crate::files::read_short;

/// How long a file that holds a password may be, in bytes.
const LONGEST_SECRET: u64 = 64 * 1024;

/// A secret that no message shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(pub(super) Option<String>);

impl Secret {
    pub(crate) fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "(set)" } else { "(none)" })
    }
}

/// The value of a variable of the environment.
pub(super) fn password_from(variable: &str) -> Result<Secret, LockError> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    let missing = || {
        let message = format!(
            "the variable {variable} is not set, or is no text (`holdline run` keeps it from its \
             job: use `password_file` there)"
        );
        LockError::invalid(ENGINE, "password_env", message)
    };
    value.map(|value| Secret(Some(value))).ok_or_else(missing)
}

/// The first line of a file, as secrets are mounted. Some files have no end.
pub(super) fn password_in(path: &Path) -> Result<Secret, LockError> {
    let bad = |what: &dyn fmt::Display| {
        LockError::invalid(ENGINE, "password_file", format!("{}: {what}", path.display()))
    };
    let bytes = read_short(path, LONGEST_SECRET).map_err(|error| bad(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| bad(&"is no text"))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Secret(Some(line.to_owned()))),
        None => Err(bad(&"is empty")),
    }
}
