//! Checks that enough files can be opened, before any work starts.
//!
//! Otherwise a library would fail in the middle, with its own message or none. Invariant D1: when
//! this check fails, no request was sent to a store and nothing was started.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// More descriptors than any verb has open at once.
const NEEDED: usize = 32;

/// Checks that a verb can open as many files as it needs.
///
/// # Errors
/// The message, and what to do about it.
pub(crate) fn check() -> Result<(), (String, String)> {
    let mut open = Vec::with_capacity(NEEDED);
    for _ in 0..NEEDED {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open("/", flags | OFlags::PATH, Mode::empty()) {
            Ok(descriptor) => open.push(descriptor),
            Err(error @ (Errno::MFILE | Errno::NFILE)) => {
                return Err(explain(error));
            }
            // Other errors are reported where the descriptor is needed.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Returns what to do about an error, if too many files are open.
pub(crate) fn fix(error: &io::Error) -> Option<String> {
    let errno = Errno::from_io_error(error)?;
    matches!(errno, Errno::MFILE | Errno::NFILE).then(|| explain(errno).1)
}

fn explain(error: Errno) -> (String, String) {
    if error == Errno::NFILE {
        let message = "the machine has too many files open".to_owned();
        return (message, "end the programs that keep them open, or raise fs.file-max".to_owned());
    }
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(|| "no number".to_owned(), |limit| limit.to_string());
    let message = format!("too many open files: this process may have {limit} (ulimit -n)");
    (message, format!("raise the limit: ulimit -n 256; holdline itself needs {NEEDED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_has_this_fix() {
        for (errno, expected) in [
            (Errno::MFILE, Some("ulimit -n")),
            (Errno::NFILE, Some("fs.file-max")),
            (Errno::NOENT, None),
        ] {
            let fix = fix(&io::Error::from(errno));
            assert_eq!(fix.is_some(), expected.is_some(), "{errno:?}");
            assert!(fix.is_none_or(|fix| expected.is_some_and(|part| fix.contains(part))));
        }
        assert_eq!(fix(&io::Error::other("x")), None);
        assert_eq!(check(), Ok(()));
    }
}
