//! Packets and replies of the server's protocol.
//!
//! A packet is three bytes of length, a sequence number, and a payload. The reply to a statement is
//! a row of result sets and an end: text, each value with its length before it.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::{Complaint, Failed};
use crate::rows::{Answer, Set};

/// No packet of a reply is larger.
const LARGEST: usize = 64 << 20;
const HEADER: usize = 4;
/// A packet of this length continues in the next one.
const WHOLE: usize = 0xff_ffff;
/// The status flag that another result set follows.
const MORE_RESULTS: u16 = 8;
const QUERY: u8 = 3;

fn odd(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned())
}

fn length(header: &[u8]) -> usize {
    usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16
}

/// Reads one packet before the connection is encrypted, and no byte more; returns its number with
/// it.
pub(super) async fn read_one(
    stream: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<(u8, Vec<u8>)> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    if length(&header) == WHOLE {
        return Err(odd("an initial handshake that is far too long"));
    }
    let mut body = vec![0; length(&header)];
    stream.read_exact(&mut body).await?;
    Ok((header[3], body))
}

/// Writes one packet.
pub(super) async fn write_one(
    stream: &mut (impl AsyncWrite + Unpin),
    number: u8,
    body: &[u8],
) -> std::io::Result<()> {
    stream.write_all(&packet(number, body)?).await?;
    stream.flush().await
}

fn packet(number: u8, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let size = u32::try_from(body.len()).ok().filter(|_| body.len() < WHOLE);
    let [low, middle, high, _] = size.ok_or_else(|| odd("too long to be sent"))?.to_le_bytes();
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&[low, middle, high, number]);
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// A statement, as it is sent.
pub(super) fn query(text: &str) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(1 + text.len());
    body.push(QUERY);
    body.extend_from_slice(text.as_bytes());
    packet(0, &body)
}

/// The bytes that were read so far, as packets.
#[derive(Default)]
pub(super) struct Input {
    bytes: VecDeque<u8>,
    /// The parts of a packet that continues.
    begun: Vec<u8>,
}

impl Input {
    pub(super) fn push(&mut self, read: &[u8]) {
        self.bytes.extend(read);
    }

    /// Takes the next packet, if all of it is there.
    pub(super) fn packet(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        while self.bytes.len() >= HEADER {
            let header: Vec<u8> = self.bytes.range(..HEADER).copied().collect();
            let size = length(&header);
            if self.begun.len() + size > LARGEST {
                return Err(odd("an answer that is far too long"));
            }
            if self.bytes.len() < HEADER + size {
                return Ok(None);
            }
            self.bytes.drain(..HEADER);
            self.begun.extend(self.bytes.drain(..size));
            if size < WHOLE {
                return Ok(Some(std::mem::take(&mut self.begun)));
            }
        }
        Ok(None)
    }
}

/// An answer that is being read.
#[derive(Default)]
pub(super) struct Reading {
    sets: Answer,
    stage: Stage,
}

#[derive(Default)]
enum Stage {
    #[default]
    Head,
    /// How many column definitions are still to come.
    Columns(u64),
    /// The end of the columns is.
    Between,
    Rows,
}

impl Reading {
    /// Takes a packet; returns the reply if it was the last.
    pub(super) fn take(
        &mut self,
        packet: &[u8],
    ) -> std::io::Result<Option<Result<Answer, Failed>>> {
        let first = *packet.first().ok_or_else(|| odd("an empty packet"))?;
        if first == 0xff {
            return Ok(Some(Err(Failed::Server(complaint(packet)))));
        }
        let is_end = first == 0xfe && packet.len() < 9;
        match self.stage {
            Stage::Head if first == 0 => {
                let mut body = Body(&packet[1..]);
                body.number()?;
                body.number()?;
                return Ok(self.end(body.short()?));
            }
            Stage::Head if first == 0xfb => return Err(odd("the server asks for a file")),
            Stage::Head => {
                let columns = Body(packet).number()?;
                self.sets.push(Set::default());
                self.stage = Stage::Columns(columns);
            }
            Stage::Columns(left) => {
                let name = column(packet)?;
                if let Some(set) = self.sets.last_mut() {
                    set.columns.push(name);
                }
                self.stage = if left > 1 { Stage::Columns(left - 1) } else { Stage::Between };
            }
            Stage::Between if is_end => self.stage = Stage::Rows,
            Stage::Between => return Err(odd("columns without an end")),
            Stage::Rows if is_end => {
                let mut body = Body(&packet[1..]);
                body.short()?;
                return Ok(self.end(body.short()?));
            }
            Stage::Rows => {
                let mut body = Body(packet);
                let Some(set) = self.sets.last_mut() else { return Err(odd("a row of nothing")) };
                let row = set.columns.iter().map(|_| body.value()).collect::<Result<_, _>>()?;
                set.rows.push(row);
            }
        }
        Ok(None)
    }

    fn end(&mut self, status: u16) -> Option<Result<Answer, Failed>> {
        if status & MORE_RESULTS != 0 {
            self.stage = Stage::Head;
            return None;
        }
        Some(Ok(std::mem::take(&mut self.sets)))
    }
}

/// Reads an error packet. Before authentication it has no SQL state.
pub(super) fn complaint(packet: &[u8]) -> Complaint {
    let code = match packet {
        [_, low, high, ..] => u16::from_le_bytes([*low, *high]),
        _ => 0,
    };
    let says = packet.get(3..).unwrap_or_default();
    let says = if says.first() == Some(&b'#') { says.get(6..).unwrap_or_default() } else { says };
    Complaint { code, says: String::from_utf8_lossy(says).into_owned() }
}

/// The name of a column: the fifth of its texts.
fn column(packet: &[u8]) -> std::io::Result<String> {
    let mut body = Body(packet);
    for _ in 0..4 {
        body.value()?;
    }
    let name = body.value()?.unwrap_or_default();
    String::from_utf8(name).map_err(|_| odd("a column whose name is no text"))
}

/// The payload of a packet, from its front on.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn bytes(&mut self, count: usize) -> std::io::Result<&[u8]> {
        let (bytes, rest) =
            self.0.split_at_checked(count).ok_or_else(|| odd("a packet that is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn short(&mut self) -> std::io::Result<u16> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// A number in one to nine bytes.
    fn number(&mut self) -> std::io::Result<u64> {
        let first = self.bytes(1)?[0];
        let size = match first {
            ..=0xfa => return Ok(u64::from(first)),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => return Err(odd("a number that is none")),
        };
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(self.bytes(size)?);
        Ok(u64::from_le_bytes(whole))
    }

    /// A value with its length before it, or none.
    fn value(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if self.0.first() == Some(&0xfb) {
            self.bytes(1)?;
            return Ok(None);
        }
        let size = usize::try_from(self.number()?).map_err(|_| odd("a value that is too long"))?;
        Ok(Some(self.bytes(size)?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(packets: &[&[u8]]) -> Option<Result<Answer, Failed>> {
        let mut reading = Reading::default();
        let mut last = None;
        for packet in packets {
            assert!(last.is_none(), "nothing follows the end");
            last = reading.take(packet).expect("a good packet");
        }
        last
    }

    const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01a\x00\x0c";
    const END: &[u8] = b"\xfe\x00\x00\x02\x00";
    const END_AND_MORE: &[u8] = b"\xfe\x00\x00\x0a\x00";
    const FINE: &[u8] = b"\x00\x00\x00\x02\x00\x00\x00";

    #[test]
    fn the_answer_of_a_procedure_ends_with_the_procedure() {
        let answer = fed(&[b"\x01", COLUMN, END, b"\x02hi", b"\xfb", END_AND_MORE, FINE]);
        let set = Set {
            columns: vec!["a".to_owned()],
            rows: vec![vec![Some(b"hi".to_vec())], vec![None]],
        };
        assert_eq!(answer.expect("ended").expect("good"), [set]);
        assert_eq!(fed(&[FINE]).expect("ended").expect("good"), []);
    }

    #[test]
    fn an_error_behind_a_result_takes_it_back() {
        let answer = fed(&[b"\x01", COLUMN, END, b"\x02hi", b"\xff\xbd\x04#40001no"]);
        let Some(Err(Failed::Server(words))) = answer else { panic!("no error") };
        assert_eq!((words.code, words.says.as_str()), (1213, "no"));
    }

    #[test]
    fn packets_are_taken_whole_however_they_come() {
        let bytes = [packet(0, b"one").expect("short"), packet(1, b"two").expect("short")].concat();
        let mut input = Input::default();
        let mut taken = Vec::new();
        for byte in bytes {
            input.push(&[byte]);
            taken.extend(input.packet().expect("good"));
        }
        assert_eq!(taken, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn bytes_that_are_no_answer_are_errors_and_nothing_worse() {
        for bytes in [&b""[..], b"\xfb", b"\x00", b"\x00\xff", b"\xfc\x01"] {
            assert!(Reading::default().take(bytes).is_err(), "{bytes:?}");
        }
        let mut reading = Reading::default();
        reading.take(b"\x01").expect("one column");
        assert!(reading.take(b"\x09short").is_err());
        assert_eq!(complaint(b"\xff").code, 0);
    }
}
