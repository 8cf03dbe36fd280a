//! Reading the small files that settings name. Some that stand in their place have no end, or
//! never begin: nothing here may hang or fill the memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// How long a file of certificates or keys may be, in bytes.
pub const LONGEST_PEM: u64 = 8 * 1024 * 1024;

/// Reads what has an end before `most` bytes.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn read_short(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(io::Error::other(format!("is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a short file that can be read again and again: no device, and no pipe, which would be
/// empty the second time or wait for somebody who writes.
///
/// # Errors
/// It cannot be read, is none such, or is longer than [`LONGEST_PEM`].
pub fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    read_short(path, LONGEST_PEM)
}
