//! A private directory that goes with its owner.

use crate::Failure;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that only this user can enter, removed with all its files on drop.
///
/// Its name is short: a unix socket inside has room for 108 bytes in all.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(kind: &str) -> Result<Self, Failure> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdline-{kind}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed process with the same number may have left one.
        let _ = std::fs::remove_dir_all(&path);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|why| Failure::because(format!("cannot make {}", path.display()), why))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into the directory and returns its path.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        let wrote = std::fs::write(&path, text);
        wrote.map_err(|why| Failure::because(format!("cannot write {}", path.display()), why))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_private_and_goes_with_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("scratch").unwrap();
        let path = scratch.path().to_owned();
        scratch.write("a", "text").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
    }
}
