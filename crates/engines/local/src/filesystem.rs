//! Which file systems can carry the directory.
//!
//! The database's shared memory and our file locks must mean the same to every process that
//! shares the directory. On a network, on FUSE and on a virtual machine's shared folder they do
//! not, or not always, so those are refused by name.

use std::os::fd::AsFd;
use std::path::Path;

use holdline_core::shared_file_system;

use crate::error::Fault;

/// The kinds that people ask about; every other one is shown by its number.
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

/// What kind of file system something is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    /// It forgets everything with a reboot, the counter of tokens too.
    pub(crate) forgets: bool,
}

/// Looks what kind of file system an open directory is on, and refuses those that cannot carry
/// our locks.
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

/// Tells whether a path is on a file system that carries our locks and keeps files at all.
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
            let told = judge(magic).expect_err("refused").into_error().to_string();
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn local_ones_are_taken_and_forgetful_ones_known() {
        assert_eq!(
            judge(0xef53).map(|fs| (fs.name, fs.forgets)).ok(),
            Some(("ext4".into(), false))
        );
        assert_eq!(judge(TMPFS).map(|fs| (fs.name, fs.forgets)).ok(), Some(("tmpfs".into(), true)));
        assert_eq!(judge(7).map(|fs| fs.name).ok(), Some("0x00000007".into()));
    }

    #[test]
    fn an_open_directory_is_judged() {
        // The kernel's own file system is none of the refused ones.
        let open = std::fs::File::open("/proc").expect("every Linux has it");
        assert_eq!(check(&open).map(|fs| fs.name).ok(), Some("proc".into()));
    }
}
