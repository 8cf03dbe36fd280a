//! The short lock around every transaction, and who sits inside.
//!
//! The database has a lock of its own, but whoever waits for it sleeps up to 100 ms between two
//! looks. So all our processes first take a lock on the directory itself, which the kernel frees
//! when its holder dies. It is held for tens of microseconds. If it is not, its holder is most
//! likely stopped in the middle, and the error of the others names that process: the kernel
//! knows it (`/proc/locks`), so that nothing need be written on the way in.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdline_core::Escaped;

use crate::error::Fault;

/// Between two looks whether the lock is free. A blocking wait has no limit, and wakes all that
/// wait at each release; a transaction takes about as long as the shortest pause.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How often we look who is inside, when nobody is seen there.
const LOOKS: usize = 10;

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
        let (device, inode) = (status.dev(), status.ino());
        Ok(ShortLock { directory, path: path.to_owned(), device, inode })
    }

    /// Takes the lock if it is free.
    fn try_lock(&self) -> io::Result<bool> {
        match self.directory.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock if it is free at once.
    pub(crate) fn lock_now(&self) -> Result<Option<Kept<'_>>, Fault> {
        let locked = self.try_lock().map_err(|e| Fault::at("locking", &self.path, e))?;
        Ok(locked.then_some(Kept(self)))
    }

    /// Takes the lock, waiting no longer than `deadline`.
    pub(crate) fn lock_by(&self, deadline: Instant, limit: Duration) -> Result<Kept<'_>, Fault> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let locked = self.try_lock().map_err(|e| Fault::at("locking", &self.path, e))?;
            if locked {
                return Ok(Kept(self));
            }
            if Instant::now() >= deadline {
                return Err(self.waited_too_long(limit));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the error of one that has waited too long.
    pub(crate) fn waited_too_long(&self, limit: Duration) -> Fault {
        Fault::unavailable(format!("{} (waited {limit:?})", self.who_is_inside()))
    }

    /// Gives the lock back. If the kernel refuses, it does so for a closed descriptor only, and
    /// then the lock is gone as well.
    fn unlock(&self) {
        if let Err(error) = self.directory.unlock() {
            tracing::error!(%error, "the short lock could not be given back");
        }
    }

    /// Says who sits inside.
    fn who_is_inside(&self) -> String {
        let directory = self.path.display();
        // The kernel gives its list away page by page, and a line may slip from one to another
        // while locks come and go elsewhere.
        let look = || std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut looks = (0..LOOKS).map(|_| holder_in(&look(), self.device, self.inode));
        let Some(pid) = looks.find_map(|found| found) else {
            return format!("a process that we cannot see keeps {directory} in a transaction");
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

/// The short lock, kept until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept<'a>(&'a ShortLock);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Finds who holds the lock on a file in the kernel's list of locks.
///
/// Some file systems show another device number there than to `stat`; then a lock on the same
/// inode number must do, if there is only one.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let held = locks.lines().filter_map(parse_lock).filter(|lock| lock.inode == inode);
    let held: Vec<Lock> = held.collect();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
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

/// Reads a line such as `7: FLOCK  ADVISORY  WRITE 1234 fe:00:131073 0 EOF`. Lines of those that
/// wait have an arrow in the second place.
fn parse_lock(line: &str) -> Option<Lock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
    let mut numbers = file.split(':');
    let major = u32::from_str_radix(numbers.next()?, 16).ok()?;
    let minor = u32::from_str_radix(numbers.next()?, 16).ok()?;
    Some(Lock { pid: pid.parse().ok()?, major, minor, inode: numbers.next()?.parse().ok()? })
}

/// Reads program and state of `PID (program) STATE …`; the program's name may hold anything.
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
    fn the_state_is_read_behind_any_program_name() {
        let stopped = "14 (a) T (x) T 1 14 14 0";
        assert_eq!(parse_status(stopped), Some(("a) T (x".into(), 'T')));
        assert_eq!(parse_status(""), None);
    }

    #[test]
    fn two_descriptors_exclude_each_other_and_the_holder_is_named() {
        let directory = crate::scratch::Scratch::new();
        let open = || ShortLock::open(directory.path()).expect("opened");
        let (first, second) = (open(), open());
        let kept = first.lock_now().expect("asked").expect("free");
        assert!(second.lock_now().expect("asked").is_none());
        let told = second.lock_by(Instant::now(), Duration::ZERO).expect_err("taken").into_error();
        assert!(told.to_string().contains(&format!("process {} ", std::process::id())), "{told}");
        drop(kept);
        assert!(second.lock_now().expect("asked").is_some());
    }
}
