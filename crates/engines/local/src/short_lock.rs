//! The short lock around every transaction, and its holder.
//!
//! The database has a lock of its own, but a waiter for it sleeps up to 100 ms between two
//! attempts. So all our processes first lock the directory itself, and the kernel unlocks it if the
//! holder dies. The lock is held for tens of microseconds. A longer hold most likely means that the
//! holder is stopped in the middle; the error of the others then names that process. The kernel
//! knows it (`/proc/locks`), so nothing need be written before a transaction.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdline_core::Escaped;

use crate::error::Fault;

/// The pauses between two attempts. A blocking wait has no limit, and each release wakes all
/// waiters; a transaction takes about as long as the shortest pause.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How often the holder is looked up, if none is found.
const MAX_LOOKUPS: usize = 10;

/// The short lock of a directory; one open descriptor for each engine.
#[derive(Debug)]
pub(crate) struct ShortLock {
    directory: File,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl ShortLock {
    pub(crate) fn open(path: &Path) -> io::Result<ShortLock> {
        let directory = File::open(path)?;
        let status = directory.metadata()?;
        let device = status.dev();
        let inode = status.ino();
        Ok(ShortLock { directory, path: path.to_owned(), device, inode })
    }

    /// Acquires the lock if it is free.
    fn try_lock(&self) -> io::Result<bool> {
        match self.directory.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Acquires the lock if it is free.
    pub(crate) fn lock_now(&self) -> Result<Option<ShortLockGuard<'_>>, Fault> {
        let locked = self.try_lock().map_err(|e| Fault::at("locking", &self.path, e))?;
        Ok(locked.then_some(ShortLockGuard(self)))
    }

    /// Acquires the lock, waiting until `deadline`.
    pub(crate) fn lock_by(
        &self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<ShortLockGuard<'_>, Fault> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let locked = self.try_lock().map_err(|e| Fault::at("locking", &self.path, e))?;
            if locked {
                return Ok(ShortLockGuard(self));
            }
            if Instant::now() >= deadline {
                return Err(self.waited_too_long(limit));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the error for a wait that was too long.
    pub(crate) fn waited_too_long(&self, limit: Duration) -> Fault {
        Fault::unavailable(format!("{} (waited {limit:?})", self.describe_holder()))
    }

    /// Releases the lock. The kernel refuses that for a closed descriptor only, and then the lock
    /// is gone as well.
    fn unlock(&self) {
        if let Err(error) = self.directory.unlock() {
            tracing::error!(%error, "the short lock could not be released");
        }
    }

    /// Describes the holder of the lock.
    fn describe_holder(&self) -> String {
        let directory = self.path.display();
        // The kernel returns its list page by page, and a line may move between pages while other
        // locks change.
        let look = || std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut looks = (0..MAX_LOOKUPS).map(|_| holder_in(&look(), self.device, self.inode));
        let Some(pid) = looks.find_map(|found| found) else {
            return format!("a process that we cannot see has {directory} in a transaction");
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        match parse_status(&status) {
            Some((program, 'T' | 't')) => format!(
                "process {pid} ({}) is stopped inside a transaction of {directory}: continue it \
                 with `kill -CONT {pid}`, or end it",
                Escaped(&program)
            ),
            Some((program, state)) => format!(
                "process {pid} ({}, state {state}) keeps {directory} in a transaction",
                Escaped(&program)
            ),
            None => format!(
                "process {pid} is gone, but one that it forked keeps {directory} in a transaction"
            ),
        }
    }
}

/// The guard of the short lock.
#[derive(Debug)]
pub(crate) struct ShortLockGuard<'a>(&'a ShortLock);

impl Drop for ShortLockGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Finds the holder of the lock on a file in the kernel's list of locks.
///
/// Some file systems show another device number there than to `stat`; then a lock on the same inode
/// number is used, if there is only one.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let held = locks.lines().filter_map(parse_lock).filter(|lock| lock.inode == inode);
    let held: Vec<Lock> = held.collect();
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    let exact = held.iter().find(|lock| (lock.major, lock.minor) == (major, minor));
    match (exact, held.as_slice()) {
        (Some(lock), _) | (None, [lock]) => Some(lock.pid),
        _ => None,
    }
}

struct Lock {
    pid: u32,
    major: u32,
    minor: u32,
    inode: u64,
}

/// Parses a line such as `7: FLOCK  ADVISORY  WRITE 1234 fe:00:131073 0 EOF`. Lines of waiters have
/// an arrow as the second word.
fn parse_lock(line: &str) -> Option<Lock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
    let mut numbers = file.split(':');
    let major = u32::from_str_radix(numbers.next()?, 16).ok()?;
    let minor = u32::from_str_radix(numbers.next()?, 16).ok()?;
    Some(Lock { pid: pid.parse().ok()?, major, minor, inode: numbers.next()?.parse().ok()? })
}

/// Parses program and state of `PID (program) STATE …`; the program's name may contain anything.
fn parse_status(text: &str) -> Option<(String, char)> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, program) = before.split_once('(')?;
    Some((program.to_owned(), after.trim_start().chars().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: POSIX  ADVISORY  WRITE 7 fe:00:42 0 EOF\n\
        2: FLOCK  ADVISORY  WRITE 11 fe:00:43 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 12 fe:00:42 0 EOF\n\
        3: FLOCK  ADVISORY  READ 13 fe:00:42 0 EOF\n\
        4: FLOCK  ADVISORY  WRITE 14 fe:01:42 0 EOF\n\
        5: FLOCK  ADVISORY  WRITE 15 fe:00:42 0 EOF\n";

    #[test]
    fn the_holder_is_found_among_other_locks() {
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(holder_in(LOCKS, device, 42), Some(15));
        assert_eq!(holder_in(LOCKS, device, 43), Some(11));
        assert_eq!(holder_in(LOCKS, rustix::fs::makedev(0, 9), 43), Some(11));
        assert_eq!(holder_in(LOCKS, rustix::fs::makedev(0, 9), 42), None);
        assert_eq!(holder_in(LOCKS, device, 44), None);
        assert_eq!(holder_in("", device, 42), None);
    }

    #[test]
    fn the_state_is_parsed_after_any_program_name() {
        let stopped = "14 (a) T (x) T 1 14 14 0";
        assert_eq!(parse_status(stopped), Some(("a) T (x".into(), 'T')));
        assert_eq!(parse_status(""), None);
    }

    #[test]
    fn two_descriptors_exclude_each_other_and_the_holder_is_named() {
        let directory = crate::scratch::Scratch::new();
        let open = || ShortLock::open(directory.path()).expect("opened");
        let first = open();
        let second = open();
        let guard = first.lock_now().expect("asked").expect("free");
        assert!(second.lock_now().expect("asked").is_none());
        let error = second.lock_by(Instant::now(), Duration::ZERO).expect_err("taken").into_error();
        assert!(error.to_string().contains(&format!("process {} ", std::process::id())), "{error}");
        drop(guard);
        assert!(second.lock_now().expect("asked").is_some());
    }
}
