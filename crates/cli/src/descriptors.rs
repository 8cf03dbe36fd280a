//! Room for open files, looked for before anything is begun.
//!
//! Without it some library would find out in the middle, and say so in its own words or not at
//! all. Invariant D1: nothing was asked of a store, and nothing started, when this refuses.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;

/// As many as any verb has open at once, and a few more.
const NEEDED: usize = 32;

/// Finds out whether as many files as a verb needs can be opened.
pub(crate) fn look_for_room() -> Result<(), Failure> {
    let mut open = Vec::with_capacity(NEEDED);
    for _ in 0..NEEDED {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open("/", flags | OFlags::PATH, Mode::empty()) {
            Ok(descriptor) => open.push(descriptor),
            Err(error @ (Errno::MFILE | Errno::NFILE)) => {
                let (message, fix) = told(error);
                return Err(Failure::internal(message).fix(fix));
            }
            // What else may be wrong is found by whoever needs it.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Returns what to do about an error, if it is that too many files are open.
pub(crate) fn fix(error: &io::Error) -> Option<String> {
    let errno = Errno::from_io_error(error)?;
    matches!(errno, Errno::MFILE | Errno::NFILE).then(|| told(errno).1)
}

fn told(error: Errno) -> (String, String) {
    if error == Errno::NFILE {
        let message = "the machine has too many files open".to_owned();
        return (message, "end what keeps them open, or raise fs.file-max".to_owned());
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
    fn only_a_lack_of_descriptors_is_told_so() {
        for (errno, told) in [
            (Errno::MFILE, Some("ulimit -n")),
            (Errno::NFILE, Some("fs.file-max")),
            (Errno::NOENT, None),
        ] {
            let fix = fix(&io::Error::from(errno));
            assert_eq!(fix.is_some(), told.is_some(), "{errno:?}");
            assert!(fix.is_none_or(|fix| told.is_some_and(|told| fix.contains(told))));
        }
        assert_eq!(fix(&io::Error::other("x")), None);
        assert_eq!(look_for_room(), Ok(()));
    }
}
