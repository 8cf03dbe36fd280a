//! `kill -9` of a process at every step of a write, on the real file system.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::file::atomic_file::AtomicFile;
use crate::file::disk::{Content, Disk, Owner, RealDisk};
use crate::file::lock::FileLock;
use crate::file::paths::FilePaths;
use crate::tests::{Home, is_stale, proof, token};
use crate::{FenceError, Fenced, FencedFile};

/// More than any operation has; the test fails if it is not enough.
const MANY: usize = 40;

/// The real disk, until its process kills itself before a given step.
struct DeadlyDisk {
    steps_left: Cell<usize>,
}

impl DeadlyDisk {
    fn step(&self) {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => self.steps_left.set(left),
            None => die(),
        }
    }
}

/// As by `kill -9`: nothing is unwound, flushed or dropped.
fn die() -> ! {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("our own process");
    unreachable!("a process does not survive this");
}

impl Disk for DeadlyDisk {
    type Lock = FileLock;
    type Writer = File;

    fn lock(&self, paths: &FilePaths, wait: Duration) -> Result<FileLock, FenceError> {
        self.step();
        RealDisk.lock(paths, wait)
    }
    fn open(&self, paths: &FilePaths) -> Result<Option<Content>, FenceError> {
        self.step();
        RealDisk.open(paths)
    }
    fn create(&self, paths: &FilePaths, like: Option<Owner>) -> io::Result<File> {
        self.step();
        RealDisk.create(paths, like)
    }
    fn write(&self, writer: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.step();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        RealDisk.write(writer, first)?;
        self.step();
        RealDisk.write(writer, second)
    }
    fn sync(&self, writer: &File) -> io::Result<()> {
        self.step();
        RealDisk.sync(writer)
    }
    fn rename(&self, paths: &FilePaths, lock: &FileLock) -> io::Result<()> {
        self.step();
        RealDisk.rename(paths, lock)
    }
    fn sync_directory(&self, paths: &FilePaths) -> io::Result<()> {
        self.step();
        RealDisk.sync_directory(paths)?;
        self.step();
        Ok(())
    }
    fn remove_next(&self, paths: &FilePaths) {
        self.step();
        RealDisk.remove_next(paths);
    }
}

const PATH: &str = "HOLDLINE_TEST_FENCE_DIES";
const STEPS: &str = "HOLDLINE_TEST_FENCE_STEPS";
const VERB: &str = "HOLDLINE_TEST_FENCE_VERB";

/// The process that dies; does nothing when run by itself.
#[test]
fn one_process_that_dies() {
    let (Ok(path), Ok(steps)) = (std::env::var(PATH), std::env::var(STEPS)) else { return };
    let steps = steps.parse().expect("a number");
    let disk = DeadlyDisk { steps_left: Cell::new(steps) };
    let atomic_file = AtomicFile::on(disk, Path::new(&path)).expect("a place");
    let answer = if std::env::var(VERB).is_ok_and(|verb| verb == "seal") {
        atomic_file.seal(&proof(34)).map(drop)
    } else {
        atomic_file.write(&proof(34), |content| {
            *content = b"new".to_vec();
            Ok(())
        })
    };
    answer.expect("nobody else is here");
}

/// Runs the process; returns whether it was killed before it could end.
fn dies(path: &Path, verb: &str, steps: usize) -> bool {
    let ended = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "file::tests::kills::one_process_that_dies"])
        .env(PATH, path)
        .env(STEPS, steps.to_string())
        .env(VERB, verb)
        .output()
        .expect("a process");
    let killed = ended.status.signal() == Some(9);
    assert!(killed || ended.status.success(), "{ended:?}");
    killed
}

/// Kills at every step and looks what is left. Returns how many steps there were, and how many
/// deaths left the old version, the new one, and a file to clear away.
fn kill_everywhere(old: Option<&str>, verb: &str) -> [usize; 4] {
    let new = if verb == "seal" { old.unwrap_or_default() } else { "new" };
    let mut counts = [0; 4];
    for steps in 0..MANY {
        let home = Home::new();
        let path = home.join("file");
        let file = FencedFile::at(&path).expect("a place").with_lock_wait(Duration::ZERO);
        if let Some(old) = old {
            let put = |content: &mut Vec<u8>| {
                *content = old.as_bytes().to_vec();
                Ok(())
            };
            file.check_and_write(&proof(33), put).expect("fresh");
        }
        if !dies(&path, verb, steps) {
            assert_eq!(file.mark().expect("readable"), Some(token(34)));
            assert_eq!(file.read(&proof(34)).expect("readable"), new.as_bytes());
            return counts;
        }
        let mark = file.mark().expect("a whole version");
        let content = file.read(&proof(34)).expect("a whole version");
        let is_new = mark == Some(token(34));
        if !is_new {
            assert_eq!(mark, old.map(|_| token(33)), "step {steps}");
        }
        let wanted = if is_new { new } else { old.unwrap_or_default() };
        assert_eq!(content, wanted.as_bytes(), "step {steps}: mark and data are of one version");
        let left_behind = home.join("file.holdline-next").exists();
        counts[0] += 1;
        counts[if is_new { 2 } else { 1 }] += 1;
        counts[3] += usize::from(left_behind);

        // The next writer does not wait, and is refused or accepted by the mark.
        assert_eq!(is_stale(&file.seal(&proof(33))), is_new, "step {steps}");
        file.check_and_write(&proof(35), |content| {
            content.push(b'!');
            Ok(())
        })
        .expect("the dead hold nothing");
        assert!(!home.join("file.holdline-next").exists());
        assert_eq!(file.read(&proof(35)).expect("mine"), format!("{wanted}!").as_bytes());
    }
    panic!("the operation did not end within {MANY} steps");
}

#[test]
fn killed_at_any_step_of_a_write() {
    for old in [None, Some("old")] {
        let [steps, kept, changed, left_behind] = kill_everywhere(old, "write");
        // open, lock, open, create, 2 × 2 halves, sync, rename | directory, return
        assert_eq!((steps, kept, changed), (12, 10, 2));
        assert_eq!(left_behind, 6);
    }
}

#[test]
fn killed_at_any_step_of_a_seal() {
    for old in [None, Some("old")] {
        let [steps, kept, changed, _] = kill_everywhere(old, "seal");
        assert_eq!((steps, kept, changed), (12, 10, 2));
    }
}
