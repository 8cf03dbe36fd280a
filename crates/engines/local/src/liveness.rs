//! Which processes live, by locked files.
//!
//! A locked file is the proof: the kernel unlocks it when the last process that has the descriptor
//! ends, in any way. A live grant has a file of its own, whose descriptor a child can inherit. Each
//! process has one more file for everything else that depends on it.
//!
//! - V1: files are created, locked, tested and removed inside the short lock only, so nobody finds
//!   one that is created and not yet locked.
//! - V2: a file is locked before the row that needs it is committed, and stays locked as long as
//!   the row's owner lives. So a row whose file is unlocked or missing belongs to the dead.
//!
//! So removing a file by hand frees what depends on it, as does removing the database. Holders
//! check their files with every renewal and notice the loss.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdline_core::{Anchor, ClientId, FencingToken};

use crate::directory::Modes;
use crate::error::Fault;
use crate::keys::Files;

/// The most files that are inspected for a count or a sweep.
const MAX_FILES: usize = 100_000;

/// The liveness files of a directory.
#[derive(Debug)]
pub(crate) struct Liveness {
    pub(crate) files: Files,
    pub(crate) modes: Modes,
}

impl Liveness {
    /// Creates and locks the file of a live grant.
    pub(crate) fn anchor(&self, token: FencingToken) -> Result<Anchor, Fault> {
        let path = self.files.grant(token);
        let file = self.make(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Fault::Foreign(format!("{} is locked by another", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(Fault::at("locking", &path, error)),
        }
        check_same(&path, &file)?;
        Ok(Anchor::new(file.into()))
    }

    /// Creates the file of a client, or shares it with other engines of the same client. Also
    /// returns whether nobody else has it.
    pub(crate) fn client(&self, client: ClientId) -> Result<(File, bool), Fault> {
        let path = self.files.client(client);
        let file = self.make(&path)?;
        let alone = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(Fault::at("locking", &path, error)),
        };
        // The lock that is kept is a shared one; inside the short lock nobody can come in between.
        file.try_lock_shared().map_err(|error| Fault::at("locking", &path, error.into()))?;
        check_same(&path, &file)?;
        Ok((file, alone))
    }

    fn make(&self, path: &Path) -> Result<File, Fault> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(path).map_err(|error| Fault::at("making", path, error))?;
        // A file that another user created has its mode already, and only its owner may change it.
        if self.modes.file != 0o600
            && let Err(error) = self.modes.apply(&file)
            && error.kind() != io::ErrorKind::PermissionDenied
        {
            return Err(Fault::at("opening to others", path, error));
        }
        Ok(file)
    }

    /// Returns whether all processes of a live grant are gone.
    pub(crate) fn is_grant_dead(&self, token: FencingToken) -> Result<bool, Fault> {
        is_dead(&self.files.grant(token))
    }

    /// Removes the file of a live grant that is over.
    pub(crate) fn remove_grant(&self, token: FencingToken) {
        remove(&self.files.grant(token));
    }

    /// Removes the files of a client that is gone.
    pub(crate) fn remove_client(&self, client: ClientId) {
        remove(&self.files.client(client));
        remove(&self.files.socket(client));
    }

    /// Returns a file that somebody still has locked, if there is one.
    pub(crate) fn some_locked(&self) -> Result<Option<PathBuf>, Fault> {
        let live = &self.files.live;
        let entries = std::fs::read_dir(live).map_err(|e| Fault::at("reading", live, e))?;
        for entry in entries {
            let path = entry.map_err(|error| Fault::at("reading", live, error))?.path();
            if !is_dead(&path)? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Removes all files: no process of this boot has created one yet.
    pub(crate) fn clear(&self) {
        for directory in [&self.files.live, &self.files.wake] {
            for path in listed(directory, MAX_FILES) {
                remove(&path);
            }
        }
    }

    /// Returns the existing files, for sweeping.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        listed(&self.files.live, MAX_FILES)
    }

    /// Removes those of these files that belong to dead processes; returns how many.
    pub(crate) fn sweep(&self, paths: &[PathBuf]) -> usize {
        let mut swept = 0;
        for path in paths {
            if !is_dead(path).unwrap_or(false) {
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(client) = name.strip_prefix("client-") {
                remove(&self.files.wake.join(client));
            }
            remove(path);
            swept += 1;
        }
        swept
    }

    /// Counts the files that are locked, of clients and of grants, and those that are not.
    pub(crate) fn count(&self) -> Counted {
        let mut counted = Counted::default();
        for path in listed(&self.files.live, MAX_FILES) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match (is_dead(&path).unwrap_or(true), name.strip_prefix("grant-")) {
                (true, _) => counted.stale += 1,
                (false, Some(token)) => {
                    counted.grants += 1;
                    counted.newest = counted.newest.max(token.parse().ok());
                }
                (false, None) => counted.clients += 1,
            }
        }
        counted
    }
}

/// The numbers of liveness files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) clients: usize,
    pub(crate) grants: usize,
    /// The largest fencing token of a grant.
    pub(crate) newest: Option<u64>,
    /// Files of dead processes that are not swept yet.
    pub(crate) stale: usize,
}

/// Returns whether nobody has the file locked. A missing one belongs to nobody (V2).
fn is_dead(path: &Path) -> Result<bool, Fault> {
    Ok(locked(path)?.is_none())
}

/// Opens a file if somebody has it locked.
pub(crate) fn locked(path: &Path) -> Result<Option<File>, Fault> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Fault::at("opening", path, error)),
    };
    Ok(is_locked(&file).map_err(|error| Fault::at("trying", path, error))?.then_some(file))
}

/// Returns whether somebody else has an open file locked.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a path still names an open file.
pub(crate) fn is_same(path: &Path, file: &rustix::fs::Stat) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_ok_and(|found| (found.dev(), found.ino()) == (file.st_dev, file.st_ino))
}

fn check_same(path: &Path, file: &File) -> Result<(), Fault> {
    let status = rustix::fs::fstat(file).map_err(|e| Fault::at("looking at", path, e.into()))?;
    if is_same(path, &status) {
        return Ok(());
    }
    Err(Fault::unavailable(format!("{} was removed while it was made", path.display())))
}

fn listed(directory: &Path, limit: usize) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).take(limit).collect()
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "a file could not be removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn liveness(scratch: &Scratch) -> Liveness {
        let files = Files::below(scratch.path());
        std::fs::create_dir(&files.live).expect("made");
        std::fs::create_dir(&files.wake).expect("made");
        Liveness { files, modes: Modes { directory: 0o700, file: 0o600 } }
    }

    #[test]
    fn a_grant_lives_as_long_as_any_copy_of_its_descriptor() {
        let scratch = Scratch::new();
        let liveness = liveness(&scratch);
        let token = FencingToken::MIN;
        assert_eq!(liveness.is_grant_dead(token).ok(), Some(true));
        let anchor = liveness.anchor(token).expect("made");
        let copy = anchor.descriptor().try_clone().expect("copied");
        assert_eq!(liveness.is_grant_dead(token).ok(), Some(false));
        assert!(liveness.anchor(token).is_err());
        drop(anchor);
        assert_eq!(liveness.is_grant_dead(token).ok(), Some(false));
        assert!(liveness.some_locked().expect("looked").is_some());
        drop(copy);
        assert_eq!(liveness.is_grant_dead(token).ok(), Some(true));
        assert!(liveness.some_locked().expect("looked").is_none());
    }

    #[test]
    fn engines_of_one_client_share_its_file() {
        let scratch = Scratch::new();
        let liveness = liveness(&scratch);
        let client = ClientId::from_u64(7);
        let (first, alone) = liveness.client(client).expect("made");
        assert!(alone);
        let (second, alone) = liveness.client(client).expect("shared");
        assert!(!alone);
        drop(first);
        assert_eq!(is_dead(&liveness.files.client(client)).ok(), Some(false));
        drop(second);
        assert_eq!(is_dead(&liveness.files.client(client)).ok(), Some(true));
    }

    #[test]
    fn a_sweep_removes_the_dead_and_leaves_the_living() {
        let scratch = Scratch::new();
        let liveness = liveness(&scratch);
        let dead = ClientId::from_u64(1);
        let alive = ClientId::from_u64(2);
        drop(liveness.client(dead).expect("made"));
        std::fs::write(liveness.files.socket(dead), "").expect("written");
        let _kept = liveness.client(alive).expect("made");
        let two = [7, 31].map(|token| FencingToken::new(token).expect("a token"));
        let _anchors = two.map(|token| liveness.anchor(token).expect("made"));
        let living = Counted { clients: 1, grants: 2, newest: Some(31), stale: 0 };
        assert_eq!(liveness.count(), Counted { stale: 1, ..living });
        assert_eq!(liveness.sweep(&liveness.all()), 1);
        assert!(!liveness.files.client(dead).exists() && !liveness.files.socket(dead).exists());
        assert_eq!(liveness.count(), living);
    }
}
