//! Passwords: where they come from, and that no message shows them.

use std::fmt;
use std::path::Path;

use holdline_core::LockError;

use crate::files::read_short;

/// How long a file that holds a password may be, in bytes.
pub const LONGEST_SECRET: u64 = 64 * 1024;

/// A secret that no message shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Option<String>);

impl Secret {
    /// Wraps what may not be shown.
    pub fn new(secret: Option<String>) -> Secret {
        Secret(secret)
    }

    /// Returns the secret itself.
    pub fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Reads the value of a variable of the environment.
    ///
    /// # Errors
    /// `Invalid`: it is not set, or is no text.
    pub fn from_variable(engine: &'static str, variable: &str) -> Result<Secret, LockError> {
        let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
        value.map(|value| Secret(Some(value))).ok_or_else(|| {
            let message = format!(
                "the variable {variable} is not set, or is no text (`holdline run` keeps it from \
                 its job: use `password_file` there)"
            );
            LockError::invalid(engine, "password_env", message)
        })
    }

    /// Reads the first line of a file, as secrets are mounted. Some files have no end.
    ///
    /// # Errors
    /// `Invalid`: it cannot be read, is empty, is no text, or is longer than [`LONGEST_SECRET`].
    pub fn from_file(engine: &'static str, path: &Path) -> Result<Secret, LockError> {
        let bad = |what: &dyn fmt::Display| {
            LockError::invalid(engine, "password_file", format!("{}: {what}", path.display()))
        };
        let bytes = read_short(path, LONGEST_SECRET).map_err(|error| bad(&error))?;
        let text = String::from_utf8(bytes).map_err(|_| bad(&"is no text"))?;
        match text.lines().next().filter(|line| !line.is_empty()) {
            Some(line) => Ok(Secret(Some(line.to_owned()))),
            None => Err(bad(&"is empty")),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "(set)" } else { "(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_only_whether_it_is_set() {
        let set = Secret::new(Some("hers".to_owned()));
        assert_eq!(format!("{set:?} {:?}", Secret::default()), "(set) (none)");
        assert_eq!(set.expose(), Some("hers"));
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_content() {
        for (path, says) in
            [("/dev/zero", "longer"), ("/dev/null", "empty"), ("/no/where", "No such")]
        {
            let told = Secret::from_file("test", Path::new(path)).expect_err("refused").to_string();
            assert!(told.contains(says) && told.contains(path), "{told}");
        }
        let told = Secret::from_variable("test", "HOLDLINE_NO_SUCH_VARIABLE").expect_err("refused");
        assert!(told.to_string().contains("HOLDLINE_NO_SUCH_VARIABLE"), "{told}");
    }
}
