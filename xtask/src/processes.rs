//! Processes as /proc shows them: their parents, and which of them hold a pipe.
//!
//! Where there is no /proc nothing is found, and only direct children can be stopped.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Process id to that of the parent, for all processes.
pub(crate) fn parents() -> BTreeMap<u32, u32> {
    all().into_iter().filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn all() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// All that `of` started, and what they started.
pub(crate) fn descendants(of: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|&(pid, of)| *of == parent && !found.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        next += 1;
    }
    found.split_off(1)
}

/// The program's name, as far as it is known.
pub(crate) fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "a process".to_owned(), |n| n.trim_end().to_owned())
}

/// The identity of the pipe behind one of our own descriptors; both of its ends have the same.
pub(crate) fn pipe_of(descriptor: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()
}

/// The other processes that have `pipe` open.
pub(crate) fn holders(pipe: Option<&Path>) -> Vec<u32> {
    let others = all().into_iter().filter(|pid| *pid != std::process::id());
    others.filter(|pid| pipe.is_some_and(|pipe| has_open(*pid, pipe))).collect()
}

fn has_open(pid: u32, pipe: &Path) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|e| std::fs::read_link(e.path()).is_ok_and(|target| target == pipe))
}

/// Ends processes at once. One that is already gone is no fault.
pub(crate) fn kill(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let pids = pids.iter().map(u32::to_string);
    // The shell's own `kill`: a slim system has no program of that name.
    let script = ["-c", "kill -KILL \"$@\"", "sh"];
    let _ = Command::new("sh").args(script).args(pids).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_every_depth() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (9, 8)]);
        assert_eq!(descendants(2, &parents), [3, 4]);
        assert_eq!(descendants(9, &parents), Vec::<u32>::new());
    }
}
