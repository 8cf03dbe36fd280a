//! A bare HTTP/1.1 client: one connection that is kept, one request at a time.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rounds::Failure;

/// A connection.
pub(crate) struct Http {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    /// Returns the text of a field of the body, which has it once.
    pub(crate) fn field(&self, name: &str) -> Result<&str, Failure> {
        let begin = format!("\"{name}\":\"");
        let rest = self.body.split_once(&begin).map(|(_, rest)| rest);
        let value = rest.and_then(|rest| rest.split_once('"')).map(|(value, _)| value);
        value.ok_or_else(|| format!("no {name}: {self:?}").into())
    }

    /// Returns the number of a field of the body, which has it once.
    pub(crate) fn number(&self, name: &str) -> Result<u64, Failure> {
        let begin = format!("\"{name}\":");
        let rest = self.body.split_once(&begin).map(|(_, rest)| rest);
        let digits = rest.and_then(|rest| rest.split([',', '}']).next());
        let digits = digits.ok_or_else(|| format!("no {name}: {self:?}"))?;
        Ok(digits.parse()?)
    }

    /// Checks that the request was done.
    pub(crate) fn done(self) -> Result<Response, Failure> {
        if self.status == 200 { Ok(self) } else { Err(format!("{self:?}").into()) }
    }
}

impl Http {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Http, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Http { stream, read: Vec::new() })
    }

    /// Sends a request and returns its answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Response, Failure> {
        self.send(method, path, body).await?;
        self.response().await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(), Failure> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Reads until the headers are here, and takes them.
    pub(crate) async fn head(&mut self) -> Result<(u16, String), Failure> {
        let end = self.until(0, b"\r\n\r\n").await?;
        let head: Vec<u8> = self.read.drain(..end).collect();
        let head = String::from_utf8(head)?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        Ok((status, head))
    }

    pub(crate) async fn response(&mut self) -> Result<Response, Failure> {
        let (status, head) = self.head().await?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = match length {
            Some(length) => self.take(length.trim().parse()?).await?,
            None => self.chunks().await?,
        };
        Ok(Response { status, body: String::from_utf8(body)? })
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            let end = self.until(0, b"\r\n").await?;
            let line: Vec<u8> = self.read.drain(..end).collect();
            let length = usize::from_str_radix(String::from_utf8(line)?.trim(), 16)?;
            let mut chunk = self.take(length + 2).await?;
            if length == 0 {
                return Ok(body);
            }
            chunk.truncate(length);
            body.append(&mut chunk);
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        while self.read.len() < length {
            self.fill().await?;
        }
        Ok(self.read.drain(..length).collect())
    }

    /// Reads until these bytes are here, and returns where they end.
    async fn until(&mut self, mut from: usize, bytes: &[u8]) -> Result<usize, Failure> {
        loop {
            let place = self.read[from..].windows(bytes.len()).position(|window| window == bytes);
            if let Some(at) = place {
                return Ok(from + at + bytes.len());
            }
            from = self.read.len().saturating_sub(bytes.len());
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}
