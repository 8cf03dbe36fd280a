//! Process groups and sessions, as the kernel tells them.
//!
//! The kernel answers 0 for a group or session that lies outside our process-id namespace: the
//! first process of a container, and whatever it started without `setsid`, may be in one. Such a
//! group has no number here, so it is `None`: nobody in here can signal it or give it a terminal,
//! and 0 would mean "my own" to `kill`. `rustix` takes the answer to be never 0, hence `nix`.

use rustix::process::Pid;

/// Our own group.
pub(crate) fn own() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// The group of a process: an error if there is no such process.
pub(crate) fn of(process: Pid) -> nix::Result<Option<Pid>> {
    nix::unistd::getpgid(Some(raw(process))).map(|group| Pid::from_raw(group.as_raw()))
}

/// Tells whether a process is in our session: an error if there is no such process.
pub(crate) fn shares_our_session(process: Pid) -> nix::Result<bool> {
    Ok(nix::unistd::getsid(Some(raw(process)))? == nix::unistd::getsid(None)?)
}

fn raw(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(process.as_raw_nonzero().get())
}
