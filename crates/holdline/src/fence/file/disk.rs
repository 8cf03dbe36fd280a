//! What the crash-safe replacement asks of a disk, one call for each step that a crash can
//! separate, and the real one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::time::Duration;

use super::lock::FileLock;
use super::place::{Place, not_plain, shown};
use crate::fence::FenceError;

/// The steps. Tests put a disk that dies or forgets in the real one's place.
pub(super) trait Disk {
    /// Excludes all others that would replace the file, until it is dropped.
    type Lock;
    /// A file that is being written.
    type Writer;

    fn lock(&self, place: &Place, wait: Duration) -> Result<Self::Lock, FenceError>;
    /// Opens what stands at the file's place; `None` if nothing does.
    fn open(&self, place: &Place) -> Result<Option<Content>, FenceError>;
    /// Makes the file of the next content, in the place of one that a crash left behind.
    fn create(&self, place: &Place, like: Option<Owner>) -> io::Result<Self::Writer>;
    fn write(&self, writer: &mut Self::Writer, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, writer: &Self::Writer) -> io::Result<()>;
    /// Gives the next content the file's name, if the lock still excludes others.
    fn rename(&self, place: &Place, lock: &Self::Lock) -> io::Result<()>;
    fn sync_directory(&self, place: &Place) -> io::Result<()>;
    /// Removes the next content that will not be used. Best effort: the next writer removes it.
    fn remove_next(&self, place: &Place);
}

/// An open version of the file: it stays whole while others replace it.
pub(super) struct Content {
    pub(super) reader: Box<dyn Read>,
    pub(super) bytes: u64,
    pub(super) owner: Owner,
}

/// Whose the file is, and who may do what: kept when it is replaced.
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

    fn lock(&self, place: &Place, wait: Duration) -> Result<FileLock, FenceError> {
        FileLock::take(place, wait)
    }

    fn open(&self, place: &Place) -> Result<Option<Content>, FenceError> {
        let path = &place.file;
        let foreign = |what| FenceError::Foreign { found: format!("{}: {what}", shown(path)) };
        let failed = |error| FenceError::failed(format!("reading {}", shown(path)), error);
        // Looked at before it is opened: to open a named pipe would wait for ever.
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

    fn create(&self, place: &Place, like: Option<Owner>) -> io::Result<File> {
        match fs::remove_file(&place.next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&place.next)?;
        let Some(like) = like else { return Ok(file) };
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.user, like.group) {
            // Only root may give files away. Another user's write then makes the file that
            // user's, as every editor does that saves by renaming.
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

    fn rename(&self, place: &Place, lock: &FileLock) -> io::Result<()> {
        if !lock.is_in_place(place)? {
            return Err(io::Error::other(format!(
                "{} was removed or replaced while it was locked",
                shown(&place.lock)
            )));
        }
        fs::rename(&place.next, &place.file)
    }

    fn sync_directory(&self, place: &Place) -> io::Result<()> {
        File::open(&place.directory)?.sync_all()
    }

    fn remove_next(&self, place: &Place) {
        let _ = fs::remove_file(&place.next);
    }
}
