//! A server's copy of its nodes on disk, with another count of the children that one of them has
//! reached: no test can make two thousand million nodes.

use std::path::{Path, PathBuf};

use crate::Failure;

/// A checksum, and the path `/` behind it.
const SEAL: usize = 8 + END.len();
const END: [u8; 5] = [0, 0, 0, 1, b'/'];
/// What lies between the two seals: the digest of all nodes.
const DIGEST: usize = 8 + 4 + 8;
/// Behind a node's data: its ACL, four times, and the version of the data.
const TO_CVERSION: usize = 8 + 4 * 8 + 4;

/// Changes the newest snapshot in a server's directory; the server must not run.
pub(super) fn set_creations(data: &Path, path: &str, count: i32) -> Result<(), Failure> {
    let file = newest(&data.join("version-2"))?;
    let failed = |why| Failure::because("a snapshot cannot be changed", why);
    let mut bytes = std::fs::read(&file).map_err(failed)?;
    change(&mut bytes, path, count)
        .ok_or_else(|| Failure::new(format!("{} has no {path}", file.display())))?;
    std::fs::write(&file, bytes).map_err(failed)
}

fn newest(directory: &Path) -> Result<PathBuf, Failure> {
    let listed = std::fs::read_dir(directory)
        .map_err(|why| Failure::because("the server's directory cannot be read", why))?;
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("snapshot.")?;
        u64::from_str_radix(name, 16).ok()
    };
    let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = paths.filter(|path| number(path).is_some()).max_by_key(number);
    newest.ok_or_else(|| Failure::new("the server has written no snapshot"))
}

fn change(bytes: &mut [u8], path: &str, count: i32) -> Option<()> {
    let seals = [bytes.len().checked_sub(2 * SEAL + DIGEST)?, bytes.len() - SEAL];
    let is_seal = |at: usize| bytes[at..at + SEAL] == seal(&bytes[..at]);
    if !seals.into_iter().all(is_seal) {
        return None;
    }
    let wanted = [&u32::try_from(path.len()).ok()?.to_be_bytes(), path.as_bytes()].concat();
    let behind = bytes.windows(wanted.len()).position(|part| part == wanted)? + wanted.len();
    let length = i32::from_be_bytes(bytes.get(behind..behind + 4)?.try_into().ok()?);
    // Of none it is below 0.
    let at = behind + 4 + usize::try_from(length).unwrap_or(0) + TO_CVERSION;
    bytes.get_mut(at..at + 4)?.copy_from_slice(&count.to_be_bytes());
    for at in seals {
        let seal = seal(&bytes[..at]);
        bytes[at..at + SEAL].copy_from_slice(&seal);
    }
    Some(())
}

fn seal(before: &[u8]) -> [u8; SEAL] {
    let mut seal = [0; SEAL];
    seal[..8].copy_from_slice(&u64::from(adler32(before)).to_be_bytes());
    seal[8..].copy_from_slice(&END);
    seal
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}
