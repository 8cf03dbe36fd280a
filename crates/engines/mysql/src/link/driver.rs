//! One connection at work: statements go out as they come, answers come back in their order.
//!
//! - Invariant V1: a statement whose asker has gone before it was written is not written.
//! - Invariant V2: whoever asked is told whether its statement was sent.
//! - Invariant V3: a statement that cannot be written now does not stop the reading of answers: a
//!   server that is writing a large answer reads nothing until that is read.

use std::collections::VecDeque;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::dial::Stream;
use super::wire::{Answer, Input, Reading, query};
use crate::error::Failed;

/// How many statements may wait to be written.
const WAITING: usize = 1_024;
/// How many may be under way.
const UNDER_WAY: usize = 256;
const READ_AT_ONCE: usize = 16 << 10;

type Reply = oneshot::Sender<Result<Answer, Failed>>;

struct Ask {
    text: String,
    reply: Reply,
}

/// Where to ask. It may be given away.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<Ask>);

impl Asker {
    /// Asks, and waits for the answer.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer; the statement may be carried out, if it was sent.
    pub(crate) async fn ask(&self, text: impl Into<String>) -> Result<Answer, Failed> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { text: text.into(), reply };
        self.0.send(ask).await.map_err(|_| Failed::NotSent)?;
        answer.await.unwrap_or(Err(Failed::NotSent))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// The side of a connection that works. It ends with the connection, and tells why.
pub(super) struct Driver {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    asks: mpsc::Receiver<Ask>,
    under_way: VecDeque<Reply>,
    output: Output,
    input: Input,
    reading: Reading,
}

/// The statement that is being written; empty between two of them.
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
    /// Dropping the future has written nothing.
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

/// Sets a stream to work.
pub(super) fn on(stream: Box<dyn Stream>) -> (Asker, Driver) {
    let (sender, asks) = mpsc::channel(WAITING);
    let (reader, writer) = tokio::io::split(stream);
    let driver = Driver {
        reader,
        writer,
        asks,
        under_way: VecDeque::new(),
        output: Output::default(),
        input: Input::default(),
        reading: Reading::default(),
    };
    (Asker(sender), driver)
}

impl Driver {
    /// Serves the connection until its end, and tells why it came.
    pub(super) async fn run(&mut self) -> String {
        let why = match self.serve().await {
            Ok(()) => "nobody asks any more".to_owned(),
            Err(error) => error.to_string(),
        };
        self.give_up(&why);
        why
    }

    /// Tells all who have asked.
    fn give_up(&mut self, why: &str) {
        self.asks.close();
        for reply in self.under_way.drain(..) {
            // Who has gone need not be told.
            let _ = reply.send(Err(Failed::Broken(why.to_owned())));
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

    /// Takes a statement that is to be written next.
    fn take(&mut self, ask: Ask) -> std::io::Result<()> {
        if !ask.reply.is_closed() {
            self.output = Output { bytes: query(&ask.text)?, written: 0 };
            self.under_way.push_back(ask.reply);
        }
        Ok(())
    }

    fn answer(&mut self) -> std::io::Result<()> {
        while let Some(packet) = self.input.packet()? {
            if self.under_way.is_empty() {
                // A server that ends a connection may say why.
                let words = super::wire::complaint(&packet);
                let says = format!("the server said without being asked: {words}");
                return Err(std::io::Error::other(says));
            }
            if let Some(answer) = self.reading.take(&packet)? {
                self.reading = Reading::default();
                if let Some(reply) = self.under_way.pop_front() {
                    let _ = reply.send(answer);
                }
            }
        }
        Ok(())
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

    /// The server writes an answer before it reads on, and the statement does not fit into what is
    /// on the way: two sides that only write wait for each other for ever.
    #[tokio::test]
    async fn answers_are_read_while_a_statement_is_being_written() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (asker, mut driver) = on(Box::new(near));
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
            let (first, second) = tokio::join!(asker.ask("a"), asker.ask("b".repeat(LARGE)));
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
