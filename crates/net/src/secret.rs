//! Passwords: how they are read, and that no message shows them.

use std::fmt;
use std::path::Path;

use holdline_core::{Escaped, LockError, StrayCharacter};

use crate::files::read_short;

/// The largest file that holds a password, in bytes.
pub const MAX_SECRET_SIZE: u64 = 64 * 1024;

/// A secret that no message shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Option<String>);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: Option<String>) -> Secret {
        Secret(secret)
    }

    /// Returns the secret itself.
    pub fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Reads the secret from an environment variable.
    ///
    /// # Errors
    /// `Invalid`: it is not set, is not UTF-8, or begins or ends with white space, which is rarely
    /// meant. The message does not show the value.
    pub fn from_variable(engine: &'static str, variable: &str) -> Result<Secret, LockError> {
        let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
        let variable = Escaped(variable);
        let bad = |message| Err(LockError::invalid(engine, "password_env", message));
        let Some(value) = value else {
            return bad(format!(
                "the variable {variable} is not set, or is not UTF-8 (`holdline run` removes it \
                 from the job's environment: use `password_file` there)"
            ));
        };
        if let Some(stray) = StrayCharacter::of(&value) {
            return bad(format!(
                "the value of the variable {variable} {stray}: remove it; a password that has it \
                 can be read by `password_file`, which ignores a line feed at the end"
            ));
        }
        Ok(Secret(Some(value)))
    }

    /// Reads the first line of a file, as secrets are mounted, without its line end. White space
    /// before the line end is a part of the secret.
    ///
    /// # Errors
    /// `Invalid`: it cannot be read, is empty, is not UTF-8, or is longer than [`MAX_SECRET_SIZE`].
    pub fn from_file(engine: &'static str, path: &Path) -> Result<Secret, LockError> {
        let bad = |what: &dyn fmt::Display| {
            LockError::invalid(engine, "password_file", format!("{}: {what}", path.display()))
        };
        let bytes = read_short(path, MAX_SECRET_SIZE).map_err(|error| bad(&error))?;
        let text = String::from_utf8(bytes).map_err(|_| bad(&"is not UTF-8"))?;
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
    fn read_errors_do_not_show_the_content() {
        for (path, says) in
            [("/dev/zero", "longer"), ("/dev/null", "empty"), ("/no/where", "No such")]
        {
            let error =
                Secret::from_file("test", Path::new(path)).expect_err("refused").to_string();
            assert!(error.contains(says) && error.contains(path), "{error}");
        }
        let error =
            Secret::from_variable("test", "HOLDLINE_NO_SUCH_VARIABLE").expect_err("refused");
        assert!(error.to_string().contains("HOLDLINE_NO_SUCH_VARIABLE"), "{error}");
    }
}
