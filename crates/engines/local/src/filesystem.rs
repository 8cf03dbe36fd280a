//! The file systems that are suitable for the directory.
//!
//! The database's shared memory and our file locks must work for every process that shares the
//! directory. On network file systems, on FUSE and on shared folders of virtual machines they do
//! not, or not always, so those are refused by name.

use std::os::fd::AsFd;
use std::path::Path;

use holdline_core::shared_file_system;

use crate::error::Fault;

/// The known kinds; any other one is shown by its number.
const KNOWN: [(u64, &str); 10] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlayfs"),
    (TMPFS, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];
const TMPFS: u64 = 0x0102_1994;

/// A kind of file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    /// A reboot erases it, with the counter of tokens.
    pub(crate) forgets: bool,
}

/// Returns the file system of an open directory, and refuses unsuitable ones.
pub(crate) fn check(directory: impl AsFd) -> Result<FileSystem, Fault> {
    let status = rustix::fs::fstatfs(directory)
        .map_err(|error| Fault::file("asking which file system this is", error.into()))?;
    judge(magic(&status))
}

/// The same for a path.
pub(crate) fn check_at(path: &Path) -> Result<FileSystem, Fault> {
    let status = rustix::fs::statfs(path)
        .map_err(|error| Fault::at("asking for the file system of", path, error.into()))?;
    judge(magic(&status))
}

/// The field's width and sign differ from machine to machine; the numbers have 32 bits.
fn magic(status: &rustix::fs::StatFs) -> u64 {
    status.f_type as u64 & 0xffff_ffff
}

/// Returns whether a path is on a suitable file system that stores files at all.
pub(crate) fn keeps_files(path: &Path) -> bool {
    check_at(path).is_ok_and(|kind| kind.name != "proc" && kind.name != "sysfs")
}

fn judge(magic: u64) -> Result<FileSystem, Fault> {
    if let Some(name) = shared_file_system(magic) {
        return Err(Fault::refused(format!(
            "the directory is on {name}, where locks and shared memory do not mean the same to \
             all machines: choose a directory on a local disk with `local:///DIRECTORY`, or a \
             server engine"
        )));
    }
    let known = KNOWN.iter().find(|(number, _)| *number == magic);
    let name = known.map_or_else(|| format!("{magic:#010x}"), |(_, name)| (*name).to_owned());
    Ok(FileSystem { forgets: name == "tmpfs" || name == "ramfs", name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_refused_by_name() {
        for (magic, name) in [(0x6969, "nfs"), (0x6573_5546, "fuse"), (0x0102_1997, "9p")] {
            let error = judge(magic).expect_err("refused").into_error().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn local_file_systems_are_accepted_and_volatile_ones_marked() {
        assert_eq!(
            judge(0xef53).map(|fs| (fs.name, fs.forgets)).ok(),
            Some(("ext4".into(), false))
        );
        assert_eq!(judge(TMPFS).map(|fs| (fs.name, fs.forgets)).ok(), Some(("tmpfs".into(), true)));
        assert_eq!(judge(7).map(|fs| fs.name).ok(), Some("0x00000007".into()));
    }

    #[test]
    fn an_open_directory_is_checked() {
        // The kernel's own file system is none of the refused ones.
        let open = std::fs::File::open("/proc").expect("every Linux has it");
        assert_eq!(check(&open).map(|fs| fs.name).ok(), Some("proc".into()));
    }
}
