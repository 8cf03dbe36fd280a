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

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use super::place::{Place, not_plain, shown};
use crate::fence::FenceError;

/// How long we sleep between two looks at a lock that another process has. There is no call that
/// waits for a lock with a limit; the wait doubles from the shortest to the longest.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(25);

/// File systems on which several machines may meet, where a lock can be lost without a word
/// while its holder is paused: the very thing that fencing is for.
const REFUSED: [(u32, &str); 11] = [
    (0x0000_6969, "nfs"),
    (0x0000_517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse or virtiofs"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "openafs"),
    (0x6b41_4653, "afs"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
];

/// The right to replace the file, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
    inherited: AtomicBool,
}

impl FileLock {
    /// Waits at most `wait` for the lock.
    pub(super) fn take(place: &Place, wait: Duration) -> Result<FileLock, FenceError> {
        let failed = |error| FenceError::failed(format!("locking {}", shown(&place.lock)), error);
        let since = Instant::now();
        let mut pause = SHORTEST;
        loop {
            let file = open(place)?;
            match file.try_lock() {
                Ok(()) => {
                    let lock = FileLock { file, inherited: AtomicBool::new(false) };
                    // Somebody may have removed the file between our opening and locking it.
                    if lock.is_in_place(place).map_err(failed)? {
                        return Ok(lock);
                    }
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let left = wait.saturating_sub(since.elapsed());
            if left.is_zero() {
                let file = shown(&place.file);
                let what = format!("{file}: another process has its lock, waited {wait:.1?}");
                return Err(FenceError::Busy { what });
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Tells whether others that come now meet this lock.
    pub(super) fn is_in_place(&self, place: &Place) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::symlink_metadata(&place.lock) {
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
        // Closing alone would leave the lock to a process that another thread has forked and
        // that has not started its program yet. An inherited lock is meant to outlive us.
        if !*self.inherited.get_mut() {
            let _ = self.file.unlock();
        }
    }
}

/// Opens the lock's file, making it if there is none. It is never written.
fn open(place: &Place) -> Result<File, FenceError> {
    let path = &place.lock;
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
    // To lock needs no more than to read, so users that share the file need not own the lock.
    let file = File::open(path).map_err(failed)?;
    let status = rustix::fs::fstatfs(&file).map_err(|error| failed(error.into()))?;
    // The field's width and sign differ from machine to machine; the numbers have 32 bits.
    if let Some(name) = refused((status.f_type as u64 & 0xffff_ffff) as u32) {
        let why = format!(
            "this is {name}, where a paused machine can lose its lock without a word; put the \
             file on a local disk, or the data behind a server that checks tokens itself"
        );
        return Err(FenceError::failed(format!("opening {}", shown(path)), why));
    }
    Ok(file)
}

fn refused(magic: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_refused_and_local_ones_taken() {
        assert_eq!(refused(0x6969), Some("nfs"));
        assert_eq!(refused(0x6573_5546), Some("fuse or virtiofs"));
        for local in [0x0000_ef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(refused(local), None, "{local:#x}");
        }
    }
}
