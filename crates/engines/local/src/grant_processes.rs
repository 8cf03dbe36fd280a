//! The processes that keep a live grant: those that have its liveness file open with its lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdline_core::{FencingToken, LockError, Snapshot};

use crate::keys::Files;

/// How many processes, and how many descriptors of each, are inspected.
const PROCESSES: usize = 100_000;
const DESCRIPTORS: usize = 10_000;

/// Returns whether a snapshot shows live grants.
pub(crate) fn is_wanted(snapshot: &Snapshot) -> bool {
    snapshot.holders.iter().any(|holder| holder.live)
}

/// Finds the processes that keep the live grants, on a thread of its own, since it reads all of
/// `/proc`.
pub(crate) async fn with_processes(
    snapshot: Result<Snapshot, LockError>,
    files: Files,
) -> Result<Snapshot, LockError> {
    let mut snapshot = snapshot?;
    if !is_wanted(&snapshot) {
        return Ok(snapshot);
    }
    let plain = snapshot.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("holdline-who".into());
    let look = move || {
        add(&mut snapshot, &files);
        // The caller may have dropped its future.
        let _ = sender.send(snapshot);
    };
    match thread.spawn(look) {
        Ok(_) => Ok(receiver.await.unwrap_or(plain)),
        Err(_) => Ok(plain),
    }
}

/// Adds the processes that keep each live grant, as far as this user can see them.
fn add(snapshot: &mut Snapshot, files: &Files) {
    let mut grant_processes: BTreeMap<OsString, Vec<u32>> = BTreeMap::new();
    let tokens = snapshot.holders.iter().filter(|h| h.live).filter_map(|h| h.summary.token);
    grant_processes.extend(tokens.map(|token| (name_of(token, files), Vec::new())));
    for pid in numbers(Path::new("/proc"), PROCESSES) {
        let directory = format!("/proc/{pid}/fd");
        for descriptor in numbers(Path::new(&directory), DESCRIPTORS) {
            let path = PathBuf::from(format!("{directory}/{descriptor}"));
            // The name is checked first: it is cheap, and few files have such a name.
            let Ok(target) = std::fs::read_link(&path) else { continue };
            let pids = target.file_name().and_then(|name| grant_processes.get_mut(name));
            if let (Some(pids), Some(name)) = (pids, target.file_name())
                && pids.last() != Some(&pid)
                && is_same(&path, &files.live.join(name))
                && has_the_lock(pid, descriptor)
            {
                pids.push(pid);
            }
        }
    }
    for holder in snapshot.holders.iter_mut().filter(|holder| holder.live) {
        let pids =
            holder.summary.token.and_then(|token| grant_processes.get(&name_of(token, files)));
        holder.pids = pids.cloned().unwrap_or_default();
    }
}

fn name_of(token: FencingToken, files: &Files) -> OsString {
    files.grant(token).file_name().unwrap_or_default().to_owned()
}

fn is_same(open: &Path, path: &Path) -> bool {
    let inode = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    inode(open).is_some_and(|open| Some(open) == inode(path))
}

/// Returns whether a descriptor has the lock. Contenders have the file open too, to check it.
fn has_the_lock(pid: u32, descriptor: u32) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
    about.is_ok_and(|about| about.lines().any(|line| line.starts_with("lock:")))
}

/// The names in a directory that are numbers.
fn numbers(directory: &Path, most: usize) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(|entry| number(entry.ok()?)).take(most).collect()
}
