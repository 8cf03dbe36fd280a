//! The directory in which the processes of one user meet.
//!
//! Our own is made with mode 0700 and must stay ours: whoever can write there can take locks and
//! forge wake-ups. An explicit directory is its owner's affair: what we make in it may be used
//! by whoever the directory itself is open to.

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
const LONGEST: usize = 480;

/// An open directory that was found fit.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) files: Files,
    pub(crate) modes: Modes,
    pub(crate) file_system: FileSystem,
}

/// Who may use what we make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) directory: u32,
    pub(crate) file: u32,
}

impl Modes {
    /// Files are open to whoever the directory is open to, and always to their owner.
    fn like(directory: u32) -> Modes {
        // In a sticky directory nobody could remove what a dead process of another user left.
        Modes { directory: directory & 0o6777, file: directory & 0o666 | 0o600 }
    }

    /// Gives an open file the mode for files, whatever the umask left of it.
    pub(crate) fn apply(self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.file))
    }
}

/// Finds, makes and checks the directory. Two processes may do so at once.
pub(crate) fn open(explicit: Option<&Path>) -> Result<Directory, Fault> {
    let path = match explicit {
        Some(path) => path.to_owned(),
        None => user::directory()?,
    };
    if let Ok((place, _)) = nearest(&path) {
        // Before anything is made there.
        filesystem::check_at(&place)?;
    }
    // What exists already is left as it is, so making it twice at once does no harm.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.map_err(|error| Fault::at("making the directory", &path, error))?;
    let (path, open) = enter(&path).map_err(|error| Fault::at("opening", &path, error))?;
    if path.as_os_str().len() > LONGEST {
        let message = format!("may have {LONGEST} bytes, this one has {}", path.as_os_str().len());
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
    for below in [&directory.files.live, &directory.files.wake] {
        make_below(below, directory.modes.directory)
            .map_err(|error| Fault::at("making the directory", below, error))?;
    }
    Ok(directory)
}

/// Finds the directory, or else the nearest place above it that exists.
///
/// # Errors
/// That place is a link that leads nowhere, or cannot be looked at.
pub(crate) fn nearest(directory: &Path) -> Result<(PathBuf, Metadata), Fault> {
    let exists = |place: &&Path| std::fs::symlink_metadata(place).is_ok();
    let place = directory.ancestors().find(exists).unwrap_or(directory);
    match std::fs::metadata(place) {
        Ok(status) => Ok((place.to_owned(), status)),
        Err(error) => Err(Fault::at("following", place, error)),
    }
}

/// Tells whether this process could make the directory, or a store in it.
pub(crate) fn can_be_made(directory: &Path) -> bool {
    nearest(directory).is_ok_and(|(place, status)| {
        let needed = Access::WRITE_OK | Access::EXEC_OK;
        let may = rustix::fs::accessat(rustix::fs::CWD, &place, needed, AtFlags::EACCESS);
        status.is_dir() && may.is_ok() && filesystem::keeps_files(&place)
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

/// Makes a directory with exactly this mode, unless it is there.
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
    fn files_are_open_to_whom_the_directory_is_open() {
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
            let told = check_private(path, owner, mode).expect_err("refused").into_error();
            assert!(told.to_string().contains(says), "{told}");
        }
    }
}
