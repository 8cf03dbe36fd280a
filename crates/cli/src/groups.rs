//! Process groups and sessions, as the kernel reports them.
//!
//! The kernel returns 0 for a group or session outside our process-id namespace. The first process
//! of a container, and the processes that it started without `setsid`, may be in one. Such a group
//! has no id here, so it is `None`: no process in here can signal it or give it a terminal, and 0
//! would mean "my own" to `kill`. `rustix` assumes that the answer is never 0, so this module uses
//! `nix`.

use rustix::process::Pid;

/// Our own group.
pub(crate) fn own() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// The group of a process: an error if there is no such process.
pub(crate) fn of(process: Pid) -> nix::Result<Option<Pid>> {
    nix::unistd::getpgid(Some(raw(process))).map(|group| Pid::from_raw(group.as_raw()))
}

/// Returns whether a process is in our session: an error if there is no such process.
pub(crate) fn shares_our_session(process: Pid) -> nix::Result<bool> {
    Ok(nix::unistd::getsid(Some(raw(process)))? == nix::unistd::getsid(None)?)
}

fn raw(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(process.as_raw_nonzero().get())
}
