//! Who has a name, and by which processes: what is said about it is true now.
//!
//! A holder tells the process that asked, for `run` the wrapper. A live grant may outlive that
//! one. As long as it lives it is named; once it is gone, those that keep the grant are.
//! Invariant H1: a number is said to belong to nobody only where the kernel says so.

use std::fmt;

use holdline_core::snapshot::coarse;
use holdline_core::{Escaped, HolderFields, HolderSummary, HolderView};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// One holder, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// What the store tells.
    pub(crate) summary: HolderSummary,
    /// The processes that keep the grant, where the one that asked is gone.
    pub(crate) keepers: Option<Vec<u32>>,
}

impl Holder {
    /// Takes a holder as the store tells it.
    pub(crate) fn told(summary: HolderSummary) -> Holder {
        Holder { summary, keepers: None }
    }

    /// Takes a holder that was looked at.
    pub(crate) fn seen(view: &HolderView) -> Holder {
        let gone = is_gone(&view.summary.metadata.fields(), &view.pids);
        Holder { summary: view.summary.clone(), keepers: gone.then(|| view.pids.clone()) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.summary.metadata.fields();
        let program = if fields.program.is_empty() { "another" } else { &fields.program };
        write!(f, "{:.80}", Escaped(program))?;
        let by = match (&self.keepers, fields.pid) {
            (Some(pids), _) if pids.is_empty() => None,
            (Some(pids), _) => Some(format!("kept by pid {}", numbers(pids))),
            (None, pid) => pid.map(|pid| format!("asked by pid {pid}")),
        };
        match (by, fields.host.is_empty()) {
            (Some(by), false) => write!(f, " ({by} on {:.64})", Escaped(&fields.host))?,
            (Some(by), true) => write!(f, " ({by})")?,
            (None, false) => write!(f, " (on {:.64})", Escaped(&fields.host))?,
            (None, true) => {}
        }
        if let Some(held_for) = self.summary.held_for {
            write!(f, " for {}", coarse(held_for))?;
        }
        if fields.reason.is_empty() {
            return Ok(());
        }
        write!(f, ": {:.200}", Escaped(&fields.reason))
    }
}

/// Tells whether the process that asked has ended while others, `keepers`, keep the grant.
pub(crate) fn is_gone(fields: &HolderFields, keepers: &[u32]) -> bool {
    let Some(pid) = fields.pid else { return false };
    // A number means something on its own machine only.
    if keepers.contains(&pid) || fields.host != host() {
        return false;
    }
    // One that we may look into, and that keeps nothing, is another process by now.
    let is_another = !keepers.is_empty() && std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok();
    is_another || !exists(pid)
}

/// The name of this machine, as holders tell it.
pub(crate) fn host() -> String {
    cut(&rustix::system::uname().nodename().to_string_lossy(), 64)
}

/// Cuts a text to at most `bytes`, between two characters.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[..end].to_owned()
}

fn exists(pid: u32) -> bool {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(process) == Err(Errno::SRCH) {
        return false;
    }
    // The kernel keeps the number of one that has ended until its parent has asked how.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Writes process ids with a space between them.
pub(crate) fn numbers(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    pids.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::{FencingToken, LeaseId, Metadata, Mode};

    use super::*;

    /// No process has it: the kernel's numbers end far below.
    const NOBODY: u32 = i32::MAX as u32;

    fn fields(pid: Option<u32>, host: &str) -> HolderFields {
        HolderFields { pid, host: host.into(), program: "a\u{1b}".into(), ..Default::default() }
    }

    #[test]
    fn only_the_kernel_says_who_is_gone() {
        let (me, here) = (std::process::id(), host());
        for (pid, on, keepers, gone) in [
            (Some(me), &*here, &[][..], false),
            (Some(me), &here, &[me, 7], false),
            // My number, and I keep nothing: whoever asked under it is gone.
            (Some(me), &here, &[NOBODY], true),
            (Some(NOBODY), &here, &[], true),
            (Some(NOBODY), &here, &[me], true),
            (Some(NOBODY), "elsewhere", &[], false),
            (None, &here, &[me], false),
        ] {
            assert_eq!(is_gone(&fields(pid, on), keepers), gone, "{pid:?} {on} {keepers:?}");
        }
    }

    #[test]
    fn the_line_names_who_is_there() {
        let metadata = |pid| Metadata::new(&fields(pid, "h")).expect("short");
        let holder = |pid| HolderSummary {
            lease_id: LeaseId::from_bytes([7; 16]).short(),
            token: FencingToken::new(7).ok(),
            mode: Mode::Exclusive,
            held_for: Some(Duration::from_secs(61)),
            left: None,
            metadata: metadata(pid),
        };
        for (pid, keepers, expected) in [
            (Some(9), None, "a\\u{1b} (asked by pid 9 on h) for 1m01s"),
            (Some(9), Some(vec![5, 6]), "a\\u{1b} (kept by pid 5 6 on h) for 1m01s"),
            (Some(9), Some(vec![]), "a\\u{1b} (on h) for 1m01s"),
            (None, None, "a\\u{1b} (on h) for 1m01s"),
        ] {
            let holder = Holder { summary: holder(pid), keepers };
            assert_eq!(holder.to_string(), expected);
        }
    }
}
