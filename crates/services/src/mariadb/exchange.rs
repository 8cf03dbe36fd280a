//! Statements behind an engine's back: as the server's own root, by its socket, without a client
//! program.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Protocol 4.1, with a database, multiple statements and multiple results.
const FLAGS: u32 = 0x0000_0200 | 0x0000_0008 | 0x0001_0000 | 0x0002_0000 | 0x0000_8000;
const MORE_RESULTS: u16 = 8;

/// Signs in as root and runs statements; the rows of the last that has any, with `|` between two
/// columns.
pub(super) fn run(socket: &Path, database: &str, statements: &str) -> Result<Vec<String>, String> {
    let mut wire = Wire { stream: UnixStream::connect(socket).map_err(|e| e.to_string())? };
    wire.sign_in(database)?;
    let mut query = vec![3];
    query.extend_from_slice(statements.as_bytes());
    wire.write(0, &query).map_err(|why| why.to_string())?;
    let mut rows = Vec::new();
    loop {
        let head = wire.read()?;
        let status = if head.first() == Some(&0) {
            let changed = number(&head, 1).1;
            let made = number(&head, 1 + changed).1;
            short(&head, 1 + changed + made)
        } else {
            wire.skip_to_end()?;
            rows.clear();
            wire.rows(&mut rows)?
        };
        if status & MORE_RESULTS == 0 {
            return Ok(rows);
        }
    }
}

struct Wire {
    stream: UnixStream,
}

impl Wire {
    fn sign_in(&mut self, database: &str) -> Result<(), String> {
        self.read()?;
        let mut hello = Vec::new();
        hello.extend_from_slice(&FLAGS.to_le_bytes());
        hello.extend_from_slice(&(16_u32 << 20).to_le_bytes());
        hello.push(45);
        hello.extend_from_slice(&[0; 23]);
        // Root has no password here: a proof of no bytes.
        hello.extend_from_slice(b"root\0\0");
        hello.extend_from_slice(database.as_bytes());
        hello.push(0);
        self.write(1, &hello).map_err(|why| why.to_string())?;
        self.read().map(drop)
    }

    fn write(&mut self, sequence: u8, body: &[u8]) -> io::Result<()> {
        let size = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
        self.stream.write_all(&[size[0], size[1], size[2], sequence])?;
        self.stream.write_all(body)
    }

    /// Reads a packet; one that complains is the error.
    fn read(&mut self) -> Result<Vec<u8>, String> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).map_err(|why| why.to_string())?;
        let size = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut body = vec![0; size as usize];
        self.stream.read_exact(&mut body).map_err(|why| why.to_string())?;
        if body.first() == Some(&0xff) {
            let says = body.get(3..).unwrap_or_default();
            return Err(format!("{}: {}", short(&body, 1), String::from_utf8_lossy(says)));
        }
        Ok(body)
    }

    /// Reads over the columns.
    fn skip_to_end(&mut self) -> Result<(), String> {
        while !is_end(&self.read()?) {}
        Ok(())
    }

    /// Reads rows to their end, and returns the status there.
    fn rows(&mut self, rows: &mut Vec<String>) -> Result<u16, String> {
        loop {
            let row = self.read()?;
            if is_end(&row) {
                return Ok(short(&row, 3));
            }
            rows.push(values(&row).join("|"));
        }
    }
}

fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&0xfe) && packet.len() < 9
}

fn short(packet: &[u8], at: usize) -> u16 {
    match packet.get(at..at + 2) {
        Some(bytes) => u16::from_le_bytes([bytes[0], bytes[1]]),
        None => 0,
    }
}

/// A number in one to nine bytes, and how many it has.
fn number(packet: &[u8], at: usize) -> (usize, usize) {
    let rest = packet.get(at..).unwrap_or_default();
    match rest {
        [0xfc, low, high, ..] => (usize::from(u16::from_le_bytes([*low, *high])), 3),
        [0xfd, a, b, c, ..] => (u32::from_le_bytes([*a, *b, *c, 0]) as usize, 4),
        [small, ..] => (usize::from(*small), 1),
        [] => (0, 1),
    }
}

fn values(row: &[u8]) -> Vec<String> {
    let mut at = 0;
    let mut values = Vec::new();
    while at < row.len() {
        if row[at] == 0xfb {
            values.push(String::new());
            at += 1;
            continue;
        }
        let (size, width) = number(row, at);
        let value = row.get(at + width..at + width + size).unwrap_or_default();
        values.push(String::from_utf8_lossy(value).into_owned());
        at += width + size;
    }
    values
}
