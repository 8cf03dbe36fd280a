//! The directory that the processes of one user share.
//!
//! Our own directory is created with mode 0700 and must stay private: every user with write access
//! can acquire locks and forge wake-ups. For an explicit directory its owner decides: files in it
//! are open to the users to whom the directory is open.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags};

use crate::error::Fault;
use crate::filesystem::{self, FileSystem};
use crate::keys::Files;
use crate::user;

/// The longest path of a directory: SQLite takes 512 bytes with the names that it appends.
const MAX_PATH: usize = 480;

/// An open directory that was checked.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) files: Files,
    pub(crate) modes: Modes,
    pub(crate) file_system: FileSystem,
}

/// The modes of the files that we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) directory: u32,
    pub(crate) file: u32,
}

impl Modes {
    /// Files are open to the users to whom the directory is open, and always to their owner.
    fn like(directory: u32) -> Modes {
        // In a sticky directory nobody could remove the files of another user's dead process.
        Modes { directory: directory & 0o6777, file: directory & 0o666 | 0o600 }
    }

    /// Sets the mode of an open file, independent of the umask.
    pub(crate) fn apply(self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.file))
    }
}

/// Finds, creates and checks the directory. Two processes may do so at once.
pub(crate) fn open(explicit: Option<&Path>) -> Result<Directory, Fault> {
    let path = match explicit {
        Some(path) => path.to_owned(),
        None => user::directory()?,
    };
    if let Ok((existing, _)) = nearest(&path) {
        // Before anything is created there.
        filesystem::check_at(&existing)?;
    }
    // Existing files are left unchanged, so creating them concurrently is harmless.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.map_err(|error| Fault::at("making the directory", &path, error))?;
    let (path, open) = enter(&path).map_err(|error| Fault::at("opening", &path, error))?;
    if path.as_os_str().len() > MAX_PATH {
        let message = format!("may have {MAX_PATH} bytes, this one has {}", path.as_os_str().len());
        return Err(Fault::invalid("dir", message));
    }
    let status = open.metadata().map_err(|error| Fault::at("looking at", &path, error))?;
    if explicit.is_none() {
        check_private(&path, status.uid(), status.mode())?;
    }
    rustix::fs::accessat(rustix::fs::CWD, &path, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|error| Fault::at("writing into", &path, error.into()))?;
    let directory = Directory {
        file_system: filesystem::check(&open)?,
        files: Files::below(&path),
        modes: Modes::like(status.mode()),
    };
    let database = &directory.files.database;
    if is_dangling(database) {
        let path = database.display();
        let message =
            format!("{path} is a link that leads nowhere: remove it, or restore what it leads to");
        return Err(Fault::invalid("dir", message));
    }
    for below in [&directory.files.live, &directory.files.wake] {
        make_below(below, directory.modes.directory)
            .map_err(|error| Fault::at("making the directory", below, error))?;
    }
    Ok(directory)
}

/// Finds the directory, or the nearest existing path above it.
///
/// # Errors
/// That path is a dangling link, or cannot be inspected.
pub(crate) fn nearest(directory: &Path) -> Result<(PathBuf, Metadata), Fault> {
    let exists = |existing: &&Path| std::fs::symlink_metadata(existing).is_ok();
    let existing = directory.ancestors().find(exists).unwrap_or(directory);
    match std::fs::metadata(existing) {
        Ok(status) => Ok((existing.to_owned(), status)),
        Err(_) if is_dangling(existing) => {
            let message = format!("{} is a link that leads nowhere", existing.display());
            Err(Fault::invalid("dir", message))
        }
        Err(error) => Err(Fault::at("following", existing, error)),
    }
}

/// Returns whether a path is a link to something that does not exist.
fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

/// Returns whether this process could create the directory, or a store in it.
pub(crate) fn can_be_made(directory: &Path) -> bool {
    nearest(directory).is_ok_and(|(existing, status)| {
        let needed = Access::WRITE_OK | Access::EXEC_OK;
        let may = rustix::fs::accessat(rustix::fs::CWD, &existing, needed, AtFlags::EACCESS);
        status.is_dir() && may.is_ok() && filesystem::keeps_files(&existing)
    })
}

fn enter(path: &Path) -> io::Result<(PathBuf, File)> {
    let path = path.canonicalize()?;
    let open = File::open(&path)?;
    Ok((path, open))
}

fn check_private(path: &Path, owner: u32, mode: u32) -> Result<(), Fault> {
    let user = rustix::process::geteuid().as_raw();
    if owner != user {
        return Err(Fault::refused(format!(
            "{} belongs to user {owner}, not to user {user}: name another directory with \
             `local:///DIRECTORY`",
            path.display()
        )));
    }
    if mode & 0o077 != 0 {
        return Err(Fault::refused(format!(
            "{} has mode {:04o}, so others could take or forge locks: run `chmod 700` on it",
            path.display(),
            mode & 0o7777
        )));
    }
    Ok(())
}

/// Creates a directory with exactly this mode, unless it exists.
fn make_below(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) if mode == 0o700 => Ok(()),
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_open_to_the_users_of_the_directory() {
        for (directory, file) in
            [(0o40700, 0o600), (0o42770, 0o660), (0o40755, 0o644), (0o41777, 0o666), (0, 0o600)]
        {
            assert_eq!(Modes::like(directory).file, file, "{directory:o}");
        }
        assert_eq!(Modes::like(0o42770).directory, 0o2770);
        assert_eq!(Modes::like(0o41777).directory, 0o777);
    }

    #[test]
    fn a_directory_that_others_can_enter_is_not_private() {
        let user = rustix::process::geteuid().as_raw();
        let path = Path::new("/x");
        assert!(check_private(path, user, 0o40700).is_ok());
        for (owner, mode, says) in [
            (user + 1, 0o40700, "belongs to user"),
            (user, 0o40750, "mode 0750"),
            (user, 0o701, "chmod"),
        ] {
            let error = check_private(path, owner, mode).expect_err("refused").into_error();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
