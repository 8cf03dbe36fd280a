//! A probe of one member, before any session is used: whether it is a ZooKeeper server, and which
//! session timeouts it allows.
//!
//! The probe opens a session and closes it again, by the first two messages of the protocol. It
//! asks for a timeout that is too short or too long, so the answer is the limit.

use std::io;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use holdline_net::url::Server;

/// The answer: protocol version, timeout, session id, password with its length, read only.
const ANSWER: usize = 4 + 4 + 8 + 4 + 16;
const LONGEST_ANSWER: usize = 64;
/// How long the probe waits for one member before it also tries the next.
const STAGGER: Duration = Duration::from_millis(150);
const CLOSE_SESSION: i32 = -11;
/// The longest answer to a four-letter word that is read.
const LONGEST_WORDS: u64 = 64 * 1024;

/// The session timeouts that a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

/// Probes the members in parallel, [`STAGGER`] apart, and returns the first answer; or why there is
/// none.
pub(crate) async fn limits_of_any(members: &[Server], within: Duration) -> Result<Limits, String> {
    let ask = async |number: u32, member: &Server| {
        sleep(STAGGER.saturating_mul(number)).await;
        limits(member, within).await
    };
    let mut asked: FuturesUnordered<_> =
        (0..).zip(members).map(|(number, member)| ask(number, member)).collect();
    let mut reasons = Vec::new();
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(limits) => return Ok(limits),
            Err(why) => reasons.push(why),
        }
    }
    Err(reasons.join("; "))
}

/// Probes a member for the shortest and the longest timeout.
pub(crate) async fn limits(member: &Server, within: Duration) -> Result<Limits, String> {
    let asking = async {
        let shortest = session(member, 1).await?;
        Ok(Limits { shortest, longest: session(member, i32::MAX).await? })
    };
    match timeout(within, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("{member}: no answer within {within:?}")),
    }
}

/// Opens and closes a session; returns its timeout.
async fn session(member: &Server, asked_ms: i32) -> Result<Duration, String> {
    let failure = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            format!(
                "{member}: it closes the connection: it is no ZooKeeper server, or has no quorum"
            )
        }
        _ => format!("{member}: {error}"),
    };
    let address = (member.host.as_str(), member.port);
    let mut stream = TcpStream::connect(address).await.map_err(failure)?;
    stream.write_all(&connect_request(asked_ms)).await.map_err(failure)?;
    let length = usize::try_from(stream.read_i32().await.map_err(failure)?).unwrap_or(0);
    if !(ANSWER..=LONGEST_ANSWER).contains(&length) {
        return Err(format!("{member}: the answer is not from a ZooKeeper server: check the port"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(failure)?;
    let given = i32::from_be_bytes(answer[4..8].try_into().unwrap_or_default());
    // It may get lost: an unused session expires by itself.
    let _ = stream.write_all(&close_request()).await;
    let _ = stream.read(&mut [0; LONGEST_ANSWER]).await;
    match u64::try_from(given) {
        Ok(given) if given > 0 => Ok(Duration::from_millis(given)),
        _ => Err(format!("{member}: it allows no session")),
    }
}

fn connect_request(asked_ms: i32) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(0_i32.to_be_bytes());
    message.extend(0_i64.to_be_bytes());
    message.extend(asked_ms.to_be_bytes());
    message.extend(0_i64.to_be_bytes());
    message.extend(16_i32.to_be_bytes());
    message.extend([0; 16]);
    message.push(0);
    framed(&message)
}

fn close_request() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(1_i32.to_be_bytes());
    message.extend(CLOSE_SESSION.to_be_bytes());
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = i32::try_from(message.len()).unwrap_or(i32::MAX);
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(message);
    frame
}

/// Sends a four-letter word; `None` if the member does not answer it.
pub(crate) async fn word(member: &Server, word: &str, within: Duration) -> Option<String> {
    let asking = async {
        let mut stream = TcpStream::connect((member.host.as_str(), member.port)).await.ok()?;
        stream.write_all(word.as_bytes()).await.ok()?;
        let mut reply = String::new();
        stream.take(LONGEST_WORDS).read_to_string(&mut reply).await.ok()?;
        Some(reply)
    };
    let reply = timeout(within, asking).await.ok().flatten()?;
    let refused = reply.is_empty() || reply.contains("not in the whitelist");
    (!refused).then_some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_format_of_the_protocol() {
        let connect_request = connect_request(i32::MAX);
        assert_eq!(connect_request.len(), 49);
        assert_eq!(connect_request[..4], [0, 0, 0, 45]);
        assert_eq!(connect_request[16..20], [0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(close_request(), [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5]);
    }
}
