//! Why an engine could not be opened, and what the user can do about it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdline::engine::missing_feature;
use holdline_core::{ErrorKind, Escaped, LockError};
use holdline_local::Obstacle;

use crate::address::has_password;
use crate::config::{Address, Source};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outer_locks;

/// Explains why the local engine could not be opened. A path that is no directory is an error of
/// configuration: waiting does not help.
pub(super) fn of_open(error: LockError, directory: Option<PathBuf>) -> Failure {
    let unavailable = error.is_unavailable();
    let refused = matches!(error.kind(), ErrorKind::Refused { .. });
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let obstacle = Obstacle::of(&error);
    match (source, directory) {
        _ if unavailable && !Path::new("/proc/self").exists() => url_failure(error).fix(
            "mount /proc: the engine reads from it which processes live, and which boot this is",
        ),
        (Some(why), Some(directory)) if unavailable && !directory.is_dir() => {
            let dangling = directory.ancestors().find(|path| path.is_symlink() && !path.exists());
            let why = match dangling {
                _ if directory.exists() => "it is not a directory".to_owned(),
                Some(link) if link == directory => "it is a link that leads nowhere".to_owned(),
                Some(link) => {
                    let link = link.to_string_lossy();
                    format!("{} is a link that leads nowhere", Escaped(&link))
                }
                None => why,
            };
            let path = directory.to_string_lossy();
            let message = format!("{}: cannot be the directory of locks: {why}", Escaped(&path));
            Failure::config(message)
                .fix("name a directory of this machine: --url local:///DIRECTORY, or HOLDLINE_URL")
        }
        (Some(_), Some(directory))
            if obstacle == Some(Obstacle::Denied) && is_denied_by_sticky_bit(&directory) =>
        {
            url_failure(error).fix(format_args!(
                "{} is sticky, as /tmp is, and there the kernel keeps users from files of each \
                 other (fs.protected_regular): name a directory in it of mode 0700, or of mode \
                 2770 for a group",
                Escaped(&directory.to_string_lossy())
            ))
        }
        (Some(_), Some(directory)) if refused => {
            let directory = directory.to_string_lossy();
            let failure = url_failure(error);
            let directory = Escaped(&directory);
            match obstacle {
                Some(Obstacle::FileSizeLimit) => failure,
                Some(Obstacle::NoRoom) => {
                    failure.fix(format_args!("make room on the disk of {directory}"))
                }
                _ => failure.fix(format_args!(
                    "make {directory} usable for this user, or name another: --url \
                     local:///DIRECTORY"
                )),
            }
        }
        _ => url_failure(error),
    }
}

/// Returns whether the kernel denies a file of another user although its mode would allow it.
fn is_denied_by_sticky_bit(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    let Ok(directory) = std::fs::metadata(path) else { return false };
    let directory = FileOwnership::of(&directory);
    let Ok(files) = std::fs::read_dir(path) else { return false };
    let files = files.filter_map(|file| file.ok()?.metadata().ok());
    let mut files = files.filter(std::fs::Metadata::is_file);
    files.any(|file| is_protected(directory, FileOwnership::of(&file), us))
}

/// The mode of a file or a directory, and the user who owns it.
#[derive(Clone, Copy, Debug)]
struct FileOwnership {
    mode: u32,
    owner: u32,
}

impl FileOwnership {
    fn of(file: &std::fs::Metadata) -> FileOwnership {
        FileOwnership { mode: file.mode(), owner: file.uid() }
    }
}

/// The rule of `fs.protected_regular`: in a sticky directory that others may write to, only a
/// file's owner may open it with `O_CREAT`, unless the directory's owner owns it.
fn is_protected(directory: FileOwnership, file: FileOwnership, us: u32) -> bool {
    let sticky = directory.mode & 0o1000 != 0;
    let open_to_others = directory.mode & 0o022 != 0;
    let mode_allows = file.mode & 0o006 == 0o006;
    let foreign = file.owner != us;
    sticky && open_to_others && mode_allows && foreign && file.owner != directory.owner
}

/// Explains why a server could not be connected to. Inside a job of `run` the URL in the
/// environment has no password.
pub(super) fn of_connect(error: LockError, address: &Address) -> Failure {
    let refused = matches!(error.kind(), ErrorKind::Refused { .. });
    let failure = of_url(error, &address.url);
    let in_job = std::env::var_os(outer_locks::VARIABLE).is_some();
    let has_none = !has_password(&address.url) && !address.url.contains("password_");
    if !(refused && in_job && has_none && address.source == Source::Environment) {
        return failure;
    }
    failure.fix(
        "`holdline run` takes a password out of the HOLDLINE_URL of its job: name a file that \
         holds it there, by password_file",
    )
}

/// Explains an error of a URL. For an engine that this build lacks, it says how to install it.
pub(crate) fn of_url(error: LockError, url: &str) -> Failure {
    let failure = url_failure(error);
    match missing_feature(url) {
        Some(feature) => failure.fix(install(feature)),
        None => failure,
    }
}

/// Returns how to install the program with a cargo feature that this build lacks.
pub(crate) fn install(feature: &str) -> String {
    format!(
        "in a clone of Holdline: cargo install --path crates/cli --features {feature} (or `all`)"
    )
}

/// A URL that cannot be used is an error of configuration, not of the command line.
pub(crate) fn url_failure(error: LockError) -> Failure {
    let is_url = matches!(error.kind(), ErrorKind::Invalid { .. });
    let failure = Failure::from(error);
    if is_url {
        failure
            .exit(Exit::Config)
            .fix("give --url or HOLDLINE_URL; `holdline explain` shows what is used")
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's setting applies to the whole machine, so no test switches it on.
    #[test]
    fn another_users_file_in_a_sticky_directory_is_protected() {
        let root = 0;
        let ann = 1;
        let bob = 2;
        let owned = |mode, owner| FileOwnership { mode, owner };
        let tmp = owned(0o041_777, root);
        for (directory, file, us, protected) in [
            (tmp, owned(0o100_666, ann), bob, true),
            (tmp, owned(0o100_666, bob), bob, false),
            (tmp, owned(0o100_666, root), bob, false),
            (tmp, owned(0o100_600, ann), bob, false),
            (owned(0o040_777, root), owned(0o100_666, ann), bob, false),
            (owned(0o041_755, root), owned(0o100_666, ann), bob, false),
            (owned(0o041_770, ann), owned(0o100_666, bob), ann, true),
        ] {
            assert_eq!(is_protected(directory, file, us), protected, "{directory:?} {file:?}");
        }
    }
}
