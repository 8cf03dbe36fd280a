//! Packets and replies of the server's protocol.
//!
//! A packet is three bytes of length, a sequence number, and a payload. The reply to a statement is
//! a row of result sets and an end: text, each value with its length before it.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::{Complaint, Failed};
use crate::keys::Value;
use crate::rows::{Answer, Set};

/// No packet of a reply is larger.
const LARGEST: usize = 64 << 20;
const HEADER: usize = 4;
/// A packet of this length continues in the next one.
const WHOLE: usize = 0xff_ffff;
/// The status flag that another result set follows.
const MORE_RESULTS: u16 = 8;
/// The status flag that a transaction is open.
const IN_TRANSACTION: u16 = 1;
const QUERY: u8 = 3;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
/// The types of parameters: a number of eight bytes, and bytes without a character set.
const LONG_LONG: u8 = 8;
const BLOB: u8 = 0xfc;

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

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Text(String),
    Prepare(String),
    /// The number of a prepared statement, and its encoded parameters.
    Execute(u32, Vec<u8>),
}

impl From<String> for Statement {
    fn from(text: String) -> Statement {
        Statement::Text(text)
    }
}

impl From<&str> for Statement {
    fn from(text: &str) -> Statement {
        Statement::Text(text.to_owned())
    }
}

impl Statement {
    /// Executes a prepared statement with these parameters.
    pub(crate) fn execute(number: u32, values: &[Value<'_>]) -> Statement {
        // No parameter is null; their types follow.
        let mut bytes = vec![0; values.len().div_ceil(8)];
        bytes.push(1);
        for value in values {
            let kind = if matches!(value, Value::Number(_)) { LONG_LONG } else { BLOB };
            bytes.extend_from_slice(&[kind, 0]);
        }
        for value in values {
            match value {
                Value::Number(number) => bytes.extend_from_slice(&number.to_le_bytes()),
                Value::Bytes(text) => {
                    bytes.push(0xfd);
                    let size = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
                    bytes.extend_from_slice(&size[..3]);
                    bytes.extend_from_slice(text);
                }
            }
        }
        Statement::Execute(number, bytes)
    }

    /// The packet that is sent.
    pub(super) fn packet(&self) -> std::io::Result<Vec<u8>> {
        let (command, text) = match self {
            Statement::Text(text) => (QUERY, text.as_bytes()),
            Statement::Prepare(text) => (PREPARE, text.as_bytes()),
            Statement::Execute(_, parameters) => (EXECUTE, parameters.as_slice()),
        };
        let mut body = Vec::with_capacity(10 + text.len());
        body.push(command);
        if let Statement::Execute(number, _) = self {
            body.extend_from_slice(&number.to_le_bytes());
            // No cursor, and one execution.
            body.extend_from_slice(&[0, 1, 0, 0, 0]);
        }
        body.extend_from_slice(text);
        packet(0, &body)
    }

    pub(super) fn reading(&self) -> Reading {
        let stage = if let Statement::Prepare(_) = self { Stage::Prepared } else { Stage::Head };
        Reading { answer: Answer::default(), stage }
    }
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
    answer: Answer,
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
    /// The reply to a statement that is to be prepared.
    Prepared,
    /// How many packets about its parameters and columns are still to come.
    Described(u32),
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
                self.answer.changed = body.number()?;
                self.answer.number = body.number()?;
                return Ok(self.end(body.short()?));
            }
            Stage::Head if first == 0xfb => return Err(odd("the server asks for a file")),
            Stage::Head => {
                let columns = Body(packet).number()?;
                self.answer.sets.push(Set::default());
                self.stage = Stage::Columns(columns);
            }
            Stage::Columns(left) => {
                let name = column(packet)?;
                if let Some(set) = self.answer.sets.last_mut() {
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
                let Some(set) = self.answer.sets.last_mut() else {
                    return Err(odd("a row of nothing"));
                };
                let row = set.columns.iter().map(|_| body.value()).collect::<Result<_, _>>()?;
                set.rows.push(row);
            }
            Stage::Prepared => {
                let mut body = Body(&packet[1..]);
                let number = [body.short()?, body.short()?].map(u32::from);
                self.answer.number = u64::from(number[0] | number[1] << 16);
                // An end follows the columns, and another one the parameters.
                let packets = |count| if count > 0 { u32::from(count) + 1 } else { 0 };
                let left = packets(body.short()?) + packets(body.short()?);
                return Ok(self.described(left));
            }
            Stage::Described(left) => return Ok(self.described(left.saturating_sub(1))),
        }
        Ok(None)
    }

    /// Takes the result set that was read last, if all of it is there.
    pub(super) fn take_set(&mut self) -> Option<Set> {
        if matches!(self.stage, Stage::Head) { self.answer.sets.pop() } else { None }
    }

    fn described(&mut self, left: u32) -> Option<Result<Answer, Failed>> {
        self.stage = Stage::Described(left);
        (left == 0).then(|| Ok(std::mem::take(&mut self.answer)))
    }

    fn end(&mut self, status: u16) -> Option<Result<Answer, Failed>> {
        if status & MORE_RESULTS != 0 {
            self.stage = Stage::Head;
            return None;
        }
        self.answer.in_transaction = status & IN_TRANSACTION != 0;
        Some(Ok(std::mem::take(&mut self.answer)))
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
        assert_eq!(answer.expect("ended").expect("good").sets, [set]);
        assert_eq!(fed(&[FINE]).expect("ended").expect("good"), Answer::default());
    }

    #[test]
    fn the_last_packet_says_what_was_changed_and_whether_it_is_committed() {
        let answer = fed(&[b"\x00\x02\xfc\x00\x01\x01\x00\x00\x00"]);
        let expected =
            Answer { changed: 2, number: 256, in_transaction: true, ..Answer::default() };
        assert_eq!(answer.expect("ended").expect("good"), expected);
    }

    #[test]
    fn a_statement_is_prepared_once_its_parameters_are_described() {
        let mut reading = Statement::Prepare("?".to_owned()).reading();
        let mut take = |packet: &[u8]| reading.take(packet).expect("a good packet");
        assert!(take(b"\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00").is_none());
        assert!(take(COLUMN).is_none());
        let answer = take(END).expect("ended").expect("good");
        assert_eq!(answer.number, 0x1_0001);
        let statement = Statement::execute(7, &[Value::Number(-2), Value::Bytes(b"ab")]);
        let expected = b"\x1e\x00\x00\x00\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x08\0\xfc\0\
            \xfe\xff\xff\xff\xff\xff\xff\xff\xfd\x02\0\0ab";
        assert_eq!(statement.packet().expect("short"), expected);
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
