//! Drives one connection: it writes statements in the order in which they come, and reads their
//! replies in the same order.
//!
//! - Invariant V1: if the caller drops a statement's future before the statement was written, it is
//!   not written.
//! - Invariant V2: every caller learns whether its statement was sent.
//! - Invariant V3: a statement that cannot be written yet does not stop the reading of replies: a
//!   server that is writing a large reply reads nothing until that reply is read.

use std::collections::VecDeque;

use holdline_net::socket::ByteStream;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::wire::{Input, Reading, Statement};
use crate::error::Failed;
use crate::rows::{Answer, Set};

/// How many statements may wait to be written.
const WAITING: usize = 1_024;
/// How many may be under way.
const UNDER_WAY: usize = 256;
const READ_AT_ONCE: usize = 16 << 10;

type Reply = oneshot::Sender<Result<Answer, Failed>>;

struct Ask {
    statement: Statement,
    reply: Reply,
    early: Option<EarlySets>,
}

/// Receives the result sets of a statement that has not ended yet. A set for which there is no room
/// stays in the reply.
type EarlySets = mpsc::Sender<Set>;

/// A statement whose reply is being read.
struct UnderWay {
    reply: Reply,
    reading: Reading,
    early: Option<EarlySets>,
}

/// Sends statements to the connection's driver. It may be cloned.
#[derive(Clone)]
pub(crate) struct ConnectionHandle(mpsc::Sender<Ask>);

impl ConnectionHandle {
    /// Sends a statement, and waits for the reply.
    ///
    /// # Cancel safety
    /// Dropping the future loses the reply; the statement may be carried out if it was sent.
    pub(crate) async fn ask(&self, statement: impl Into<Statement>) -> Result<Answer, Failed> {
        self.send(statement.into(), None).await
    }

    /// Sends a statement as [`ask`](ConnectionHandle::ask); `early` receives its result sets before
    /// it has ended.
    pub(crate) async fn ask_early(
        &self,
        statement: impl Into<Statement>,
        early: EarlySets,
    ) -> Result<Answer, Failed> {
        self.send(statement.into(), Some(early)).await
    }

    async fn send(&self, statement: Statement, early: Option<EarlySets>) -> Result<Answer, Failed> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { statement, reply, early };
        self.0.send(ask).await.map_err(|_| Failed::NotSent)?;
        answer.await.unwrap_or(Err(Failed::NotSent))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Reads and writes the connection. It ends with the connection, and returns the reason.
pub(crate) struct Driver {
    reader: ReadHalf<Box<dyn ByteStream>>,
    writer: WriteHalf<Box<dyn ByteStream>>,
    asks: mpsc::Receiver<Ask>,
    under_way: VecDeque<UnderWay>,
    output: Output,
    input: Input,
}

/// The statement that is being written; empty between two statements.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
}

/// What one step of writing has done.
#[derive(Clone, Copy)]
enum Step {
    Wrote(usize),
    Flushed,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes as much as fits, or flushes when all is written.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing was written.
    async fn write_some(&self, writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<Step> {
        let rest = &self.bytes[self.written..];
        if rest.is_empty() {
            writer.flush().await?;
            return Ok(Step::Flushed);
        }
        match writer.write(rest).await? {
            0 => Err(std::io::ErrorKind::WriteZero.into()),
            count => Ok(Step::Wrote(count)),
        }
    }

    fn advance(&mut self, step: Step) {
        match step {
            Step::Wrote(count) => self.written += count,
            Step::Flushed => *self = Output::default(),
        }
    }
}

/// Makes the handle and the driver of a stream.
pub(crate) fn on(stream: Box<dyn ByteStream>) -> (ConnectionHandle, Driver) {
    let (sender, asks) = mpsc::channel(WAITING);
    let (reader, writer) = tokio::io::split(stream);
    let driver = Driver {
        reader,
        writer,
        asks,
        under_way: VecDeque::new(),
        output: Output::default(),
        input: Input::default(),
    };
    (ConnectionHandle(sender), driver)
}

impl Driver {
    /// Serves the connection until its end, and returns the reason.
    pub(crate) async fn run(&mut self) -> String {
        let why = match self.serve().await {
            Ok(()) => "no client is left".to_owned(),
            Err(error) => error.to_string(),
        };
        self.give_up(&why);
        why
    }

    /// Fails all outstanding statements.
    fn give_up(&mut self, why: &str) {
        self.asks.close();
        for asked in self.under_way.drain(..) {
            // A caller that is gone needs no error.
            let _ = asked.reply.send(Err(Failed::Broken(why.to_owned())));
        }
        while let Ok(ask) = self.asks.try_recv() {
            let _ = ask.reply.send(Err(Failed::NotSent));
        }
    }

    async fn serve(&mut self) -> std::io::Result<()> {
        let mut buffer = vec![0; READ_AT_ONCE];
        loop {
            let may_take = self.output.is_empty() && self.under_way.len() < UNDER_WAY;
            tokio::select! {
                biased;
                read = self.reader.read(&mut buffer) => {
                    let count = read?;
                    if count == 0 {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    self.input.push(&buffer[..count]);
                    self.answer()?;
                }
                wrote = self.output.write_some(&mut self.writer), if !self.output.is_empty() => {
                    let step = wrote?;
                    self.output.advance(step);
                }
                ask = self.asks.recv(), if may_take => match ask {
                    Some(ask) => self.take(ask)?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Takes the statement to write next.
    fn take(&mut self, ask: Ask) -> std::io::Result<()> {
        if !ask.reply.is_closed() {
            self.output = Output { bytes: ask.statement.packet()?, written: 0 };
            let reading = ask.statement.reading();
            self.under_way.push_back(UnderWay { reply: ask.reply, reading, early: ask.early });
        }
        Ok(())
    }

    fn answer(&mut self) -> std::io::Result<()> {
        while let Some(packet) = self.input.packet()? {
            let Some(asked) = self.under_way.front_mut() else {
                // A server that ends a connection may send the reason.
                let words = super::wire::complaint(&packet);
                let says = format!("the server sent an unexpected message: {words}");
                return Err(std::io::Error::other(says));
            };
            match asked.reading.take(&packet)? {
                Some(answer) => {
                    if let Some(asked) = self.under_way.pop_front() {
                        let _ = asked.reply.send(answer);
                    }
                }
                None => asked.send_early(),
            }
        }
        Ok(())
    }
}

impl UnderWay {
    fn send_early(&mut self) {
        let Some(early) = &self.early else { return };
        if let Ok(room) = early.try_reserve()
            && let Some(set) = self.reading.take_set()
        {
            room.send(set);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.give_up("it was given up");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::{read_one, write_one};
    use super::*;

    const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01a\x00\x0c";
    const END: &[u8] = b"\xfe\x00\x00\x02\x00";
    const LARGE: usize = 64 << 10;

    /// The server writes a reply before it reads on, and the statement does not fit into the
    /// buffers: if both sides only write, they wait for each other for ever.
    #[tokio::test]
    async fn answers_are_read_while_a_statement_is_being_written() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (handle, mut driver) = on(Box::new(near));
        let server = async move {
            read_one(&mut far).await.expect("the first statement");
            let mut header = [0; 4];
            far.read_exact(&mut header).await.expect("the second has begun");
            let row = [&[0xfd, 0, 0, 1][..], &[b'r'; LARGE]].concat();
            for (number, packet) in [&b"\x01"[..], COLUMN, END, &row, END].iter().enumerate() {
                let number = u8::try_from(number).expect("few");
                write_one(&mut far, number, packet).await.expect("written");
            }
            let mut rest = vec![0; LARGE + 1];
            far.read_exact(&mut rest).await.expect("the rest of the second");
            write_one(&mut far, 1, b"\x00\x00\x00\x02\x00\x00\x00").await.expect("written");
            // Kept until both are answered.
            std::future::pending::<()>().await;
        };
        let asked = async {
            let (first, second) = tokio::join!(handle.ask("a"), handle.ask("b".repeat(LARGE)));
            (first.expect("answered")[0].rows.len(), second.expect("answered").len())
        };
        let limit = Duration::from_secs(20);
        let answered = tokio::select! {
            answered = tokio::time::timeout(limit, asked) => answered,
            why = driver.run() => panic!("{why}"),
            () = server => unreachable!("it waits"),
        };
        assert_eq!(answered.expect("neither side waits for the other"), (1, 0));
    }
}
