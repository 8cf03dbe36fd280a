//! Finds the file of a command's first word, as `execvp` does.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::format;
use super::launch_error::LaunchError;

/// The search path if `PATH` is unset.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A file that looks as if it could be run. Its path contains a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) typed: OsString,
    pub(super) path: PathBuf,
}

impl Program {
    /// Finds `typed`: a word with a slash is a path, any other word is searched in `search`.
    ///
    /// # Errors
    /// - `NotFound`: there is no such file.
    /// - `Refused`: there is, but it cannot be run.
    pub(super) fn find(typed: &OsStr, search: Option<&OsStr>) -> Result<Self, LaunchError> {
        if typed.as_bytes().contains(&b'/') {
            let path = PathBuf::from(typed);
            return match examine(&path) {
                Examined::Runnable => Ok(Self { typed: typed.to_owned(), path }),
                Examined::Absent => Err(LaunchError::NotFound { program: typed.to_owned() }),
                Examined::Refused(why) => Err(LaunchError::refused(typed, why)),
            };
        }
        let not_found = LaunchError::NotFound { program: typed.to_owned() };
        if typed.is_empty() {
            return Err(not_found);
        }
        let mut failure = not_found;
        for folder in std::env::split_paths(search.unwrap_or_else(|| DEFAULT_PATH.as_ref())) {
            // An empty entry means the current directory.
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let path = folder.join(typed);
            match examine(&path) {
                Examined::Runnable => return Ok(Self { typed: typed.to_owned(), path }),
                Examined::Absent => {}
                Examined::Refused(why) => failure = LaunchError::refused(typed, why),
            }
        }
        Err(failure)
    }

    /// Explains why the kernel did not execute the file.
    pub(super) fn explain(&self, error: io::Error) -> LaunchError {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) if self.path.exists() => {
                LaunchError::refused(&self.typed, format::missing_interpreter(&self.path))
            }
            Some(Errno::NOENT) => LaunchError::NotFound { program: self.typed.clone() },
            // No process could be created; the file is not the cause.
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) | None => {
                LaunchError::Failed { source: error }
            }
            Some(_) => LaunchError::refused(&self.typed, error.to_string()),
        }
    }
}

enum Examined {
    Runnable,
    Absent,
    Refused(String),
}

fn examine(path: &Path) -> Examined {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Examined::Absent,
        Err(error) => return Examined::Refused(error.to_string()),
    };
    match fault(path, &metadata) {
        Some(why) => Examined::Refused(why.to_owned()),
        None => Examined::Runnable,
    }
}

fn fault(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    if metadata.is_dir() {
        return Some("it is a directory");
    }
    if !metadata.is_file() {
        return Some("it is not a regular file");
    }
    if accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return Some("it is not executable for this user");
    }
    format::is_not_executable_here(path).then_some("it is not a program for this machine")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hl-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn file(&self, name: &str, mode: u32, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(&path, content).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mode");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The exit code of the failure, or the path found.
    fn look(typed: impl AsRef<OsStr>, search: Option<&OsStr>) -> Result<PathBuf, u8> {
        Program::find(typed.as_ref(), search).map(|found| found.path).map_err(|e| e.exit_code())
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let folder = Folder::new("path");
        let good = folder.file("good", 0o755, b"#!/bin/sh\n");
        let plain = folder.file("plain", 0o644, b"#!/bin/sh\n");
        assert_eq!(look(&good, None), Ok(good.clone()));
        assert_eq!(look(folder.0.join("absent"), None), Err(127));
        assert_eq!(look(&plain, None), Err(126));
        assert_eq!(look(&folder.0, None), Err(126));
        assert_eq!(look(good.join("below"), None), Err(126));
        assert_eq!(look("/dev/null", None), Err(126));
        assert_eq!(look(format!("/{}", "x".repeat(300)), None), Err(126));
    }

    #[test]
    fn a_word_is_searched_in_order() {
        let folder = Folder::new("search");
        folder.file("one/tool", 0o644, b"#!/bin/sh\n");
        let good = folder.file("two/tool", 0o755, b"#!/bin/sh\n");
        folder.file("three/tool", 0o755, b"#!/bin/sh\n");
        folder.file("four/tool/inside", 0o755, b"");
        let search = |names: &[&str]| {
            std::env::join_paths(names.iter().map(|name| folder.0.join(name))).expect("a path")
        };
        let found = |names: &[&str]| look("tool", Some(&search(names)));
        assert_eq!(found(&["one", "absent", "two", "three"]), Ok(good));
        assert_eq!(found(&["absent", "one"]), Err(126));
        assert_eq!(found(&["four"]), Err(126));
        assert_eq!(found(&["absent"]), Err(127));
        assert_eq!(look("", Some(&search(&["two"]))), Err(127));
        assert_eq!(look("no-such-program-anywhere", None), Err(127));
        assert!(look("sh", None).is_ok());
    }
}
