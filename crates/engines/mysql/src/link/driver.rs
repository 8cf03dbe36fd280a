//! One connection at work: statements go out as they come, answers come back in their order.
//!
//! - Invariant V1: a statement whose asker has gone before it was written is not written.
//! - Invariant V2: whoever asked is told whether its statement was sent.

use std::collections::VecDeque;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
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
    input: Input,
    reading: Reading,
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
            let may_send = self.under_way.len() < UNDER_WAY;
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
                ask = self.asks.recv(), if may_send => match ask {
                    Some(ask) => self.send(ask).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    async fn send(&mut self, ask: Ask) -> std::io::Result<()> {
        if ask.reply.is_closed() {
            return Ok(());
        }
        let bytes = query(&ask.text)?;
        self.under_way.push_back(ask.reply);
        self.writer.write_all(&bytes).await?;
        self.writer.flush().await
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
