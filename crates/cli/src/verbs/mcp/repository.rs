//! The repository whose files and branches agents share.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The longest file of Git that is read.
const MAX_FILE: u64 = 4096;

/// A repository, as lock names begin with it.
#[derive(Debug)]
pub(super) struct Repository {
    /// The directory that paths are relative to.
    pub(super) top: PathBuf,
    /// What distinguishes its locks from those of other repositories.
    pub(super) name: String,
    /// What other names begin with that its agents may lock; all names if there is none.
    pub(super) names: Vec<String>,
}

impl Repository {
    /// Finds the repository around a directory. Without Git it is the directory itself.
    ///
    /// All worktrees of a clone have one name, so that their agents share files and branches.
    ///
    /// # Errors
    /// A directory or a file of Git cannot be read.
    pub(super) fn around(directory: &Path, name: Option<&str>) -> io::Result<Repository> {
        let directory = directory.canonicalize()?;
        let git = directory.ancestors().map(|above| above.join(".git")).find(|git| git.exists());
        let top = git.as_ref().and_then(|git| git.parent()).unwrap_or(&directory).to_owned();
        let name = match (name, &git) {
            (Some(name), _) => name.to_owned(),
            (None, Some(git)) => clone_of(git, &top)?.to_string_lossy().into_owned(),
            (None, None) => top.to_string_lossy().into_owned(),
        };
        Ok(Repository { top, name, names: Vec::new() })
    }
}

/// Returns the directory of the clone that a worktree or submodule belongs to.
fn clone_of(git: &Path, top: &Path) -> io::Result<PathBuf> {
    if git.is_dir() {
        return Ok(top.to_owned());
    }
    let text = read(git)?;
    let own = top.join(text.strip_prefix("gitdir:").unwrap_or(&text).trim());
    let common = match read(&own.join("commondir")) {
        Ok(common) => own.join(common.trim()).canonicalize()?,
        // A submodule has a directory of its own.
        Err(error) if error.kind() == io::ErrorKind::NotFound => own.canonicalize()?,
        Err(error) => return Err(error),
    };
    Ok(match common.parent() {
        Some(above) if common.ends_with(".git") => above.to_owned(),
        _ => common,
    })
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}
