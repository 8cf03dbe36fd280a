//! The holder of a name and its processes, as they are now.
//!
//! A holder reports the process that requested the lock; for `run` that is the wrapper. A live
//! grant may outlive it. While that process lives it is named; afterwards the processes that keep
//! the grant are. Invariant H1: a process id is reported as unused only if the kernel says so.

use std::fmt;

use holdline_core::snapshot::coarse;
use holdline_core::{Escaped, HolderFields, HolderSummary, HolderView};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// One holder, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// What the store reports.
    pub(crate) summary: HolderSummary,
    /// The processes that keep the grant, if the one that requested it is gone.
    pub(crate) keepers: Option<Vec<u32>>,
}

impl Holder {
    /// Makes a holder of what the store reports.
    pub(crate) fn reported(summary: HolderSummary) -> Holder {
        Holder { summary, keepers: None }
    }

    /// Makes a holder of an inspection, which lists the processes that keep the grant.
    pub(crate) fn inspected(view: &HolderView) -> Holder {
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
            (Some(pids), _) if !pids.is_empty() => Some(format!("kept by pid {}", join_pids(pids))),
            (_, Some(pid)) if is_gone(&fields, &[]) => {
                Some(format!("pid {pid}, not running here,"))
            }
            (_, pid) => pid.map(|pid| format!("pid {pid}")),
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
        if self.summary.no_expiry {
            f.write_str(", without an expiry")?;
        }
        if fields.reason.is_empty() {
            return Ok(());
        }
        write!(f, ": {:.200}", Escaped(&fields.reason))
    }
}

/// Returns whether the process that requested the grant has ended. `keepers` are the processes that
/// keep the grant.
pub(crate) fn is_gone(fields: &HolderFields, keepers: &[u32]) -> bool {
    let Some(pid) = fields.pid else { return false };
    // A process id is valid on its own machine only.
    if keepers.contains(&pid) || fields.host != host() {
        return false;
    }
    // A process that we can inspect, and that keeps nothing, has reused the process id.
    let is_another = !keepers.is_empty() && std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok();
    is_another || !exists(pid)
}

/// The name of this machine, as holders report it.
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
    // The kernel keeps the id of a zombie until its parent has reaped it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Writes process ids with a space between them.
pub(crate) fn join_pids(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    pids.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::{FencingToken, LeaseId, Metadata, Mode};

    use super::*;

    /// No process has this id: the kernel's ids end far below.
    const NOBODY: u32 = i32::MAX as u32;

    fn fields(pid: Option<u32>, host: &str) -> HolderFields {
        HolderFields { pid, host: host.into(), program: "a\u{1b}".into(), ..Default::default() }
    }

    #[test]
    fn a_process_is_gone_only_if_the_kernel_says_so() {
        let me = std::process::id();
        let here = host();
        for (pid, on, keepers, gone) in [
            (Some(me), &*here, &[][..], false),
            (Some(me), &here, &[me, 7], false),
            // Our id, and we keep nothing: the process that requested the lock is gone.
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
    fn the_text_names_the_living_processes() {
        let metadata = |pid, host: &str| Metadata::new(&fields(pid, host)).expect("short");
        let holder = |pid, host: &str| HolderSummary {
            lease_id: LeaseId::from_bytes([7; 16]).short(),
            token: FencingToken::new(7).ok(),
            mode: Mode::Exclusive,
            held_for: Some(Duration::from_secs(61)),
            left: None,
            no_expiry: false,
            metadata: metadata(pid, host),
        };
        for (pid, keepers, expected) in [
            (Some(9), None, "a\\u{1b} (pid 9 on h) for 1m01s"),
            (Some(9), Some(vec![5, 6]), "a\\u{1b} (kept by pid 5 6 on h) for 1m01s"),
            (None, None, "a\\u{1b} (on h) for 1m01s"),
        ] {
            let holder = Holder { summary: holder(pid, "h"), keepers };
            assert_eq!(holder.to_string(), expected);
        }
        for keepers in [None, Some(vec![])] {
            let holder = Holder { summary: holder(Some(NOBODY), &host()), keepers };
            let expected =
                format!("a\\u{{1b}} (pid {NOBODY}, not running here, on {}) for 1m01s", host());
            assert_eq!(holder.to_string(), expected);
        }
    }
}
