//! Which file systems can carry the directory.
//!
//! The database's shared memory and our file locks must mean the same to every process that
//! shares the directory. On a network, on FUSE and on a virtual machine's shared folder they do
//! not, or not always, so those are refused by name.

use std::os::fd::AsFd;

use crate::error::Fault;

/// The kinds that are refused: what they are called and their magic number.
const REFUSED: [(u32, &str); 19] = [
    (0x0000_6969, "nfs"),
    (0x0000_517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse or virtiofs"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "openafs"),
    (0x6b41_4653, "afs"),
    (0x00c3_6400, "ceph"),
    (0x7375_7245, "coda"),
    (0x0000_564c, "ncp"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x2003_0528, "orangefs"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "vmhgfs"),
];

/// The kinds that people ask about; every other one is shown by its number.
const KNOWN: [(u32, &str); 8] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlayfs"),
    (TMPFS, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];
const TMPFS: u32 = 0x0102_1994;

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
    // The field's width and sign differ from machine to machine; the numbers have 32 bits.
    judge((status.f_type as u64 & 0xffff_ffff) as u32)
}

fn judge(magic: u32) -> Result<FileSystem, Fault> {
    let named = |list: &[(u32, &'static str)]| {
        list.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
    };
    if let Some(name) = named(&REFUSED) {
        return Err(Fault::refused(format!(
            "the directory is on {name}, where locks and shared memory do not mean the same to \
             all machines: choose a directory on a local disk with `local:///DIRECTORY`, or a \
             server engine"
        )));
    }
    let name = named(&KNOWN).map_or_else(|| format!("{magic:#010x}"), str::to_owned);
    Ok(FileSystem { forgets: name == "tmpfs" || name == "ramfs", name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_refused_by_name() {
        for (magic, name) in REFUSED {
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
        assert_eq!(check(&open).map(|fs| fs.name).ok(), Some("0x00009fa0".into()));
    }
}
