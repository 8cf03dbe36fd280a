//! The steps of the crash-safe replacement, one call for each step that a crash can separate, and
//! the real disk.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::time::Duration;

use super::lock::FileLock;
use super::paths::{FilePaths, not_plain, shown};
use crate::FenceError;

/// The steps. Tests use a disk that stops or loses data instead of the real one.
pub(super) trait Disk {
    /// Excludes all other writers of the file, until it is dropped.
    type Lock;
    /// A file that is being written.
    type Writer;

    fn lock(&self, paths: &FilePaths, wait: Duration) -> Result<Self::Lock, FenceError>;
    /// Opens the file; `None` if it does not exist.
    fn open(&self, paths: &FilePaths) -> Result<Option<Content>, FenceError>;
    /// Creates the file of the next content, and replaces one that a crash left behind.
    fn create(&self, paths: &FilePaths, like: Option<Owner>) -> io::Result<Self::Writer>;
    fn write(&self, writer: &mut Self::Writer, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, writer: &Self::Writer) -> io::Result<()>;
    /// Renames the next content to the file's name, if the lock still excludes others.
    fn rename(&self, paths: &FilePaths, lock: &Self::Lock) -> io::Result<()>;
    fn sync_directory(&self, paths: &FilePaths) -> io::Result<()>;
    /// Removes a next content that is not used. Best effort: the next writer removes it.
    fn remove_next(&self, paths: &FilePaths);
}

/// An open version of the file; it stays complete while others replace it.
pub(super) struct Content {
    pub(super) reader: Box<dyn Read>,
    pub(super) bytes: u64,
    pub(super) owner: Owner,
}

/// The file's owner and mode, which are kept when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    type Lock = FileLock;
    type Writer = File;

    fn lock(&self, paths: &FilePaths, wait: Duration) -> Result<FileLock, FenceError> {
        FileLock::take(paths, wait)
    }

    fn open(&self, paths: &FilePaths) -> Result<Option<Content>, FenceError> {
        let path = &paths.file;
        let foreign = |what| FenceError::Foreign { found: format!("{}: {what}", shown(path)) };
        let failed = |error| FenceError::failed(format!("reading {}", shown(path)), error);
        // Checked before it is opened: opening a named pipe would wait for ever.
        match path.symlink_metadata() {
            Ok(found) => not_plain(&found).map_or(Ok(()), |what| Err(foreign(what)))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        let owner = Owner { user: found.uid(), group: found.gid(), mode: found.mode() & 0o7777 };
        Ok(Some(Content { reader: Box::new(file), bytes: found.len(), owner }))
    }

    fn create(&self, paths: &FilePaths, like: Option<Owner>) -> io::Result<File> {
        match fs::remove_file(&paths.next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&paths.next)?;
        let Some(like) = like else { return Ok(file) };
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.user, like.group) {
            // Only root may change the owner. A write by another user makes the file that user's,
            // as with any editor that saves by renaming.
            match fchown(&file, Some(like.user), Some(like.group)) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
        }
        file.set_permissions(Permissions::from_mode(like.mode))?;
        Ok(file)
    }

    fn write(&self, writer: &mut File, bytes: &[u8]) -> io::Result<()> {
        writer.write_all(bytes)
    }

    fn sync(&self, writer: &File) -> io::Result<()> {
        writer.sync_all()
    }

    fn rename(&self, paths: &FilePaths, lock: &FileLock) -> io::Result<()> {
        if !lock.is_in_place(paths)? {
            return Err(io::Error::other(format!(
                "{} was removed or replaced while it was locked",
                shown(&paths.lock)
            )));
        }
        fs::rename(&paths.next, &paths.file)
    }

    fn sync_directory(&self, paths: &FilePaths) -> io::Result<()> {
        File::open(&paths.directory)?.sync_all()
    }

    fn remove_next(&self, paths: &FilePaths) {
        let _ = fs::remove_file(&paths.next);
    }
}
