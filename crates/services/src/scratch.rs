//! A private directory that goes with its owner.

use crate::Failure;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);
static SWEPT: Once = Once::new();

const PREFIX: &str = "holdline-";
/// Locked by the owner for as long as it lives: by the kernel, across namespaces of processes.
const OWNER: &str = ".test-ground";

/// A directory that only this user can enter, removed with all its files on drop.
///
/// Its name is short: a unix socket inside has room for 108 bytes in all. A process that is
/// killed leaves its directories; the next one to use this module removes them.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _owner: File,
}

impl Scratch {
    pub(crate) fn new(kind: &str) -> Result<Self, Failure> {
        let home = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&home));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(format!("{PREFIX}{kind}-{}-{number}", std::process::id()));
        let cannot = |why| Failure::because(format!("cannot make {}", path.display()), why);
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot)?;
        let owner = own(&path).map_err(cannot)?;
        Ok(Self { path, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the directory and returns its path.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        let wrote = std::fs::write(&path, text);
        wrote.map_err(|why| Failure::because(format!("cannot write {}", path.display()), why))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning of temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Locked before it has its name, so that it is never found without its owner.
fn own(path: &Path) -> std::io::Result<File> {
    let young = path.join(".young");
    let owner = File::create(&young)?;
    owner.lock()?;
    std::fs::rename(young, path.join(OWNER))?;
    Ok(owner)
}

/// Removes what processes left that could not do it themselves.
fn sweep(home: &Path) {
    let entries = std::fs::read_dir(home).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Without the file it is none of ours, or so new that its owner has not come to it yet.
        let Ok(owner) = File::open(entry.path().join(OWNER)) else { continue };
        if owner.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{LIMIT, until};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_scratch_directory_is_private_and_goes_with_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("scratch").unwrap();
        let path = scratch.path().to_owned();
        scratch.write("a", "text").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_being_made_is_not_swept() {
        let home = Scratch::new("home").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        sweep(home.path());
                    }
                });
            }
            for number in 0..2_000 {
                let path = home.path().join(format!("holdline-redis-{number}"));
                std::fs::create_dir(&path).unwrap();
                let owner = own(&path);
                let there = path.exists();
                let _ = std::fs::remove_dir_all(&path);
                if owner.is_err() || !there {
                    done.store(true, Ordering::Relaxed);
                    panic!("{number}: it was taken for a dead one's ({owner:?})");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn directories_of_dead_processes_are_removed_and_others_stay() {
        let home = Scratch::new("home").unwrap();
        let directory = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let dead = directory("holdline-redis-1-0");
        drop(own(&dead).unwrap());
        let living = directory("holdline-redis-1-1");
        let _owner = own(&living).unwrap();
        let young = directory("holdline-redis-1-2");
        let foreign = directory("other");
        File::create(foreign.join(OWNER)).unwrap();
        // A child that was forked in between keeps the lock until it becomes its program.
        assert!(
            until(LIMIT, || {
                sweep(home.path());
                (!dead.exists()).then_some(())
            })
            .is_some()
        );
        assert!(living.exists() && young.exists() && foreign.exists());
    }
}
