//! File systems that several machines may share.
//!
//! On them a file lock, or memory that is shared through a file, may differ between machines, or
//! be lost silently while its holder is paused. Code that relies on such a lock rejects these
//! file systems.

/// Their magic numbers and names.
const SHARED: [(u32, &str); 19] = [
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

/// Returns the name of a file system that several machines may share; `None` for other ones.
/// `magic` is the type that `statfs` returns; only its low 32 bits count.
pub fn shared_file_system(magic: u64) -> Option<&'static str> {
    let magic = magic & 0xffff_ffff;
    SHARED.iter().find(|(number, _)| u64::from(*number) == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_ones_are_named_whatever_the_width_of_the_number() {
        assert_eq!(shared_file_system(0x6969), Some("nfs"));
        assert_eq!(shared_file_system(0x786f_4256), Some("vboxsf"));
        // Where the number is signed, its sign is spread over the upper half.
        assert_eq!(shared_file_system(0xffff_ffff_ff53_4d42), Some("cifs"));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0] {
            assert_eq!(shared_file_system(local), None, "{local:#x}");
        }
    }
}
