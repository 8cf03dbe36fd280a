//! Reads the small files that settings name. A device or a pipe may be endless or never deliver a
//! byte: nothing here may hang or fill the memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The largest file of certificates or keys, in bytes.
pub const MAX_PEM_SIZE: u64 = 8 * 1024 * 1024;

/// Reads a file of at most `most` bytes.
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

/// Reads a short regular file. A pipe would be empty the second time, or wait for a writer.
///
/// # Errors
/// It cannot be read, is no regular file, or is longer than [`MAX_PEM_SIZE`].
pub fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    read_short(path, MAX_PEM_SIZE)
}
