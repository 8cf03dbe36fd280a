//! A file that accepts no late writer, and a mark in a file for data that is elsewhere.
//!
//! | step of a write | a crash right after it leaves |
//! |---|---|
//! | lock `FILE.holdline-lock` (`flock`; the file stays for ever) | the old version; the kernel frees the lock |
//! | read the mark, refuse or go on | the old version |
//! | create `FILE.holdline-next` with the new mark and data, `fsync` it | the old version and a file that the next writer removes |
//! | rename it to `FILE` | the new version; after a power loss the old or the new one |
//! | `fsync` the directory | the new version |
//!
//! Invariants: F5 in `paths`, F6 and F7 in `atomic_file`.
//! Invariant F8: a file that is not ours is reported and never replaced (`format`, `paths`).

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the feature `file` of holdline-fence needs Linux: what a rename and an fsync keep is stated \
     for its file systems only"
);

mod atomic_file;
mod disk;
mod format;
mod lock;
mod paths;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::Duration;

use holdline_core::FencingToken;

use self::atomic_file::AtomicFile;
use self::disk::RealDisk;
use self::lock::FileLock;
use super::{Access, FenceError, Fenced, Proof, Rules};

/// A file whose content and mark change together, and that accepts no late writer.
///
/// Each write reads and writes the whole content: use it for kilobytes of state, and [`FileMark`]
/// for large data. The file starts with one line of text, such as `holdline-fence 1 mark=34
/// bytes=12`, and the data follow unchanged (`tail -n +2 FILE`).
///
/// # Guarantees
/// - After a crash of any process at any step the file holds the complete old or new version.
///   Acknowledged writes survive a loss of power too, if the disk honours `fsync`.
/// - `flock` on `FILE.holdline-lock` serialises writers of several processes. Do not remove that
///   file while somebody may write. Readers need no lock.
/// - Mode is kept, owner where the system allows it; access lists and extended attributes are
///   not. Symbolic links are followed; a file with several hard links is refused.
/// - Shared file systems (NFS, SMB, FUSE …) are refused for writing: there a paused machine can
///   lose its lock without noticing.
/// - A file that does not exist is empty and has no mark. Deleting it deletes the mark.
///
/// # Examples
/// ```
/// use holdline_fence::{FenceError, Fenced, FencedFile, Proof};
/// use holdline_fence::FencingToken;
///
/// # let home = std::env::temp_dir().join(format!("holdline-doc-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&home)?;
/// let stock = FencedFile::at(home.join("stock"))?;
/// let mine = Proof::exclusive(FencingToken::new(34)?);
///
/// stock.seal(&mine)?; // before the first read
/// assert_eq!(stock.read(&mine)?, b"");
/// stock.check_and_write(&mine, |content| Ok(content.extend(b"ten apples\n")))?;
///
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let result = stock.check_and_write(&late, |content| Ok(content.clear()));
/// assert!(matches!(result, Err(FenceError::Stale(_))));
/// assert_eq!(
///     std::fs::read_to_string(home.join("stock"))?,
///     "holdline-fence 1 mark=34 bytes=11\nten apples\n",
/// );
/// # std::fs::remove_dir_all(&home)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FencedFile {
    atomic_file: AtomicFile<RealDisk>,
}

impl FencedFile {
    /// Names a file, which need not exist; its directory must. Nothing is opened or created.
    ///
    /// # Errors
    /// `Failed`: the directory does not exist or cannot be searched, or the path names no file.
    pub fn at(path: impl AsRef<Path>) -> Result<FencedFile, FenceError> {
        Ok(FencedFile { atomic_file: AtomicFile::on(RealDisk, path.as_ref())? })
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> FencedFile {
        self.atomic_file.rules = rules;
        self
    }

    /// Sets how long a seal or a write waits for another process's step; 10 s unless set. After it
    /// the error is `Busy`.
    #[must_use]
    pub fn with_lock_wait(mut self, wait: Duration) -> FencedFile {
        self.atomic_file.lock_wait = wait;
        self
    }

    /// Checks the proof and reads the content of the same version. It never waits.
    ///
    /// An exclusive holder seals before its first read.
    ///
    /// # Errors
    /// `Stale`, `OtherName`: refused. `Foreign`, `Failed`: nothing was read.
    pub fn read<A: Access>(&self, proof: &Proof<A>) -> Result<Vec<u8>, FenceError> {
        self.atomic_file.read(proof)
    }
}

impl Fenced for FencedFile {
    /// The content, without the first line.
    type Target = Vec<u8>;
    type Failure = io::Error;

    fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        self.atomic_file.mark()
    }

    fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError> {
        self.atomic_file.check(proof)
    }

    fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        self.atomic_file.seal(proof).map(drop)
    }

    fn check_and_write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<R>,
    ) -> Result<R, FenceError> {
        self.atomic_file.write(proof, write)
    }
}

/// A mark in a file, for something that is elsewhere: a directory, a device, another machine.
///
/// The file and its rules are those of [`FencedFile`] (data in it are unchanged). The guarded
/// resource is written *while the mark is locked*: [`FileMark::check_and_run`] or
/// [`FileMark::hold`]. The mark is raised before the work starts. A crash in the middle leaves the
/// work half done under the new mark, and never admits an older holder.
///
/// # Guarantees
/// If all writers use the mark: work starts in the order of tokens, never overlaps, and no work
/// with a smaller token starts after work with a larger one.
///
/// # Examples
/// ```
/// use holdline_fence::{FenceError, FileMark, Proof};
/// use holdline_fence::FencingToken;
///
/// # let home = std::env::temp_dir().join(format!("holdline-doc-mark-{}", std::process::id()));
/// # std::fs::create_dir_all(&home)?;
/// let mark = FileMark::at(home.join("site.mark"))?;
/// let mine = Proof::exclusive(FencingToken::new(34)?);
/// mark.check_and_run(&mine, || std::fs::write(home.join("index.html"), "hello"))??;
///
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let result = mark.check_and_run(&late, || unreachable!("a late holder does not get here"));
/// assert!(matches!(result, Err(FenceError::Stale(_))));
/// # std::fs::remove_dir_all(&home)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileMark {
    atomic_file: AtomicFile<RealDisk>,
}

impl FileMark {
    /// Names the file of a mark, which need not exist; its directory must.
    ///
    /// # Errors
    /// `Failed`: the directory does not exist or cannot be searched, or the path names no file.
    pub fn at(path: impl AsRef<Path>) -> Result<FileMark, FenceError> {
        Ok(FileMark { atomic_file: AtomicFile::on(RealDisk, path.as_ref())? })
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> FileMark {
        self.atomic_file.rules = rules;
        self
    }

    /// Sets how long to wait for the work of another process; 10 s unless set. After it the error
    /// is `Busy`.
    #[must_use]
    pub fn with_lock_wait(mut self, wait: Duration) -> FileMark {
        self.atomic_file.lock_wait = wait;
        self
    }

    /// Returns the mark, or `None` if the file does not exist. It never waits.
    ///
    /// # Errors
    /// `Foreign` or `Failed`. Nothing was changed.
    pub fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        self.atomic_file.mark()
    }

    /// Checks that no newer holder was here, and does not raise the mark. It never waits.
    ///
    /// It says nothing about the next moment: do not write on the strength of it.
    ///
    /// # Errors
    /// `Stale`, `OtherName`: stop. `Foreign`, `Failed`: nothing is known.
    pub fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError> {
        self.atomic_file.check(proof)
    }

    /// Raises the mark to the holder's token; it is durable when this returns.
    ///
    /// # Errors
    /// As [`Fenced::seal`]. `Busy` while another process works under [`FileMark::hold`].
    pub fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        self.atomic_file.seal(proof).map(drop)
    }

    /// Raises the mark, and runs `work` while the mark is locked.
    ///
    /// `work` must not use the same mark: it would wait for itself until the limit.
    ///
    /// # Errors
    /// As [`Fenced::seal`]; `work` did not run. The result of `work` is returned unchanged.
    pub fn check_and_run<R>(
        &self,
        proof: &Proof,
        work: impl FnOnce() -> R,
    ) -> Result<R, FenceError> {
        let _held = self.hold(proof)?;
        Ok(work())
    }

    /// Raises the mark, and keeps it locked until the result is dropped.
    ///
    /// For work of another program, see [`HeldMark::let_children_inherit`].
    ///
    /// # Errors
    /// As [`Fenced::seal`]; nothing is locked then.
    pub fn hold(&self, proof: &Proof) -> Result<HeldMark, FenceError> {
        Ok(HeldMark { lock: self.atomic_file.seal(proof)? })
    }
}

/// A mark that is raised and locked: no other work starts until this is dropped.
#[derive(Debug)]
#[must_use = "the mark is unlocked when this is dropped"]
pub struct HeldMark {
    lock: FileLock,
}

impl HeldMark {
    /// Lets every program that this process starts from now on inherit the lock, which then also
    /// lasts until the last of them has ended.
    ///
    /// Without it, killing this process would unlock the mark while the program that it started
    /// continues to write. A daemon that the program leaves behind keeps the mark locked.
    ///
    /// # Errors
    /// The error of the operating system. The mark stays locked by this process alone.
    ///
    /// # Examples
    /// ```
    /// # use holdline_fence::{FileMark, Proof};
    /// # let home = std::env::temp_dir().join(format!("holdline-doc-held-{}", std::process::id()));
    /// # std::fs::create_dir_all(&home)?;
    /// # let mark = FileMark::at(home.join("site.mark"))?;
    /// # let mine = Proof::exclusive(holdline_fence::FencingToken::MIN);
    /// let held = mark.hold(&mine)?;
    /// held.let_children_inherit()?;
    /// let mut child = std::process::Command::new("true").spawn()?;
    /// assert!(child.wait()?.success());
    /// drop(held);
    /// # std::fs::remove_dir_all(&home)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn let_children_inherit(&self) -> io::Result<()> {
        self.lock.let_children_inherit()
    }
}
