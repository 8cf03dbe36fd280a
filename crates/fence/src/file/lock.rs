//! The lock beside a fenced file: one process at a time is inside the atomic step.
//!
//! It is `flock` on a file of its own, because the fenced file itself is replaced by each write.
//! The kernel frees it when the last process that has the descriptor closes it or ends, so a
//! killed process leaves nothing locked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdline_core::shared_file_system;
use holdline_core::snapshot::coarse;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use super::paths::{FilePaths, not_plain, shown};
use crate::FenceError;

/// The pause between two attempts to lock; it doubles from the shortest to the longest. No system
/// call waits for a lock with a limit.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(25);

/// The right to replace the file, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
    inherited: AtomicBool,
}

impl FileLock {
    /// Waits at most `wait` for the lock.
    pub(super) fn take(paths: &FilePaths, wait: Duration) -> Result<FileLock, FenceError> {
        let failed = |error| FenceError::failed(format!("locking {}", shown(&paths.lock)), error);
        let since = Instant::now();
        let mut pause = SHORTEST;
        loop {
            let file = open(paths)?;
            match file.try_lock() {
                Ok(()) => {
                    let lock = FileLock { file, inherited: AtomicBool::new(false) };
                    // The file may have been removed between opening and locking it.
                    if lock.is_in_place(paths).map_err(failed)? {
                        return Ok(lock);
                    }
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let left = wait.saturating_sub(since.elapsed());
            if left.is_zero() {
                let file = shown(&paths.file);
                let waited = coarse(wait);
                let what = format!("{file}: another process has its lock, waited {waited}");
                return Err(FenceError::Busy { what });
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Returns whether the locked file is still the one at the path.
    pub(super) fn is_in_place(&self, paths: &FilePaths) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::symlink_metadata(&paths.lock) {
            Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets programs that are started from now on inherit the lock.
    pub(super) fn let_children_inherit(&self) -> io::Result<()> {
        let flags = fcntl_getfd(&self.file)?;
        fcntl_setfd(&self.file, flags.difference(FdFlags::CLOEXEC))?;
        self.inherited.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a process that another thread has forked and that
        // has not executed its program yet. An inherited lock must outlast this process.
        if !*self.inherited.get_mut() {
            let _ = self.file.unlock();
        }
    }
}

/// Opens the lock file, and creates it if there is none. It is never written.
fn open(paths: &FilePaths) -> Result<File, FenceError> {
    let path = &paths.lock;
    let foreign = |what| FenceError::Foreign { found: format!("{}: {what}", shown(path)) };
    let failed = |error| FenceError::failed(format!("opening {}", shown(path)), error);
    match path.symlink_metadata() {
        Ok(found) => not_plain(&found).map_or(Ok(()), |what| Err(foreign(what)))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match OpenOptions::new().write(true).create_new(true).open(path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(error) => return Err(failed(error)),
    }
    // Locking requires only read access, so users that share the file need not own the lock file.
    let file = File::open(path).map_err(failed)?;
    let status = rustix::fs::fstatfs(&file).map_err(|error| failed(error.into()))?;
    // The field's width and sign differ from machine to machine.
    if let Some(name) = shared_file_system(status.f_type as u64) {
        let why = format!(
            "this is {name}, where a paused machine can lose its lock without a word; put the \
             file on a local disk, or the data behind a server that checks tokens itself"
        );
        return Err(FenceError::failed(format!("opening {}", shown(path)), why));
    }
    Ok(file)
}
