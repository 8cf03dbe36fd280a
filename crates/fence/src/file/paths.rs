//! The paths of a fenced file and its two companions.
//!
//! Invariant F5: every process that reaches the file by any path finds the same companions. So
//! symbolic links in the path are resolved first, and a file with several hard links is refused:
//! each of its names would have a lock of its own.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use holdline_core::Escaped;

use crate::FenceError;

/// The file and its companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePaths {
    pub(super) file: PathBuf,
    /// The lock file; its holder may replace the file.
    pub(super) lock: PathBuf,
    /// The next content, until it is renamed to the file.
    pub(super) next: PathBuf,
    pub(super) directory: PathBuf,
}

impl FilePaths {
    /// Resolves `path`, whose directory must exist.
    pub(super) fn of(path: &Path) -> Result<FilePaths, FenceError> {
        let failed = |error| FenceError::failed(format!("looking for {}", shown(path)), error);
        let file = match path.symlink_metadata() {
            // A dangling link fails here, instead of being replaced by a file.
            Ok(found) if found.is_symlink() => path.canonicalize().map_err(failed)?,
            Ok(_) => plain(path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => plain(path).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        let beside = |ending: &str| {
            let mut name = file.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        let directory = file.parent().unwrap_or(Path::new("/")).to_path_buf();
        let lock = beside(".holdline-lock");
        let next = beside(".holdline-next");
        Ok(FilePaths { file, lock, next, directory })
    }
}

/// Returns the path with all links of its directory resolved.
fn plain(path: &Path) -> io::Result<PathBuf> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
    let name = path.file_name().ok_or_else(no_name)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(directory.canonicalize()?.join(name))
}

/// Formats a path for people, escaped.
pub(super) fn shown(path: &Path) -> String {
    Escaped(&path.to_string_lossy()).to_string()
}

/// Describes what is at a path if it is not a regular file with one name.
pub(super) fn not_plain(found: &Metadata) -> Option<String> {
    let kind = found.file_type();
    if kind.is_file() {
        // No name at all: it was replaced meanwhile, and is still a complete old version.
        let names = found.nlink();
        return (names > 1).then(|| {
            format!("a file with {names} names (hard links), of which only one would be replaced")
        });
    }
    let what = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Some(what.to_owned())
}
