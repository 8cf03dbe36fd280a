//! Opening a stream to a member, with or without TLS, and a session on it.

use std::io;
use std::time::Duration;

use holdline_core::{Certainty, LockError};
use holdline_net::socket::{self, ByteStream};
use holdline_net::tls::{TlsContext, TlsFiles};
use holdline_net::url::Server;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::jute::{Decoder, Encoder, Malformed};
use crate::error::{ENGINE, unavailable};

/// The names in the messages of a failed TLS handshake.
pub(crate) const TLS: TlsContext = TlsContext { engine: ENGINE, without: "zk://" };

/// The length of a session's password, and the longest reply to the first message.
const PASSWORD: usize = 16;
const LONGEST_REPLY: usize = 256;
const PROTOCOL_VERSION: i32 = 0;

/// Connects to a member.
///
/// # Errors
/// `Unavailable`: it cannot be reached. `Refused`: a matter of certificates. Nothing was applied.
pub(crate) async fn dial(
    member: &Server,
    tls: Option<&TlsFiles>,
) -> Result<Box<dyn ByteStream>, LockError> {
    let stream = socket::connect(&member.host, member.port)
        .await
        .map_err(|error| unavailable(format!("{member}: {error}"), Certainty::NotApplied))?;
    match tls {
        Some(files) => Ok(Box::new(TLS.wrap(stream, &member.host, files).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// By what a client proves that a session is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    /// 0 asks for a new session.
    pub(crate) id: i64,
    pub(crate) password: Vec<u8>,
}

impl Default for SessionKey {
    fn default() -> SessionKey {
        SessionKey { id: 0, password: vec![0; PASSWORD] }
    }
}

/// Why a member gives no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    Io(io::Error),
    /// The reply is not from a ZooKeeper server.
    Malformed(Malformed),
    /// The session has expired.
    Expired,
}

impl From<io::Error> for NoSession {
    fn from(error: io::Error) -> NoSession {
        NoSession::Io(error)
    }
}

impl From<Malformed> for NoSession {
    fn from(malformed: Malformed) -> NoSession {
        NoSession::Malformed(malformed)
    }
}

impl std::fmt::Display for NoSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        match self {
            NoSession::Io(error) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => {
                f.write_str("it closes the connection: it is no ZooKeeper server, or has no quorum")
            }
            NoSession::Io(error) => write!(f, "{error}"),
            NoSession::Malformed(Malformed(why)) => {
                write!(f, "the answer is not from a ZooKeeper server: check the port ({why})")
            }
            NoSession::Expired => f.write_str("it allows no session"),
        }
    }
}

/// Opens a session, or continues one; returns its timeout and its key.
///
/// `last_zxid` is the last transaction that the client has seen. A member that has not applied it
/// closes the connection.
pub(crate) async fn open_session(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    timeout: Duration,
    session: &SessionKey,
    last_zxid: i64,
) -> Result<(Duration, SessionKey), NoSession> {
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let hello = Encoder::default().int(PROTOCOL_VERSION).long(last_zxid).int(millis);
    let may_be_read_only = false;
    let hello = hello.long(session.id).buffer(&session.password).bool(may_be_read_only);
    stream.write_all(&hello.into_frame()).await?;
    stream.flush().await?;
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_REPLY {
        return Err(NoSession::Malformed(Malformed("the reply is too long")));
    }
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply).await?;
    let (given, opened) = decode_session(&reply)?;
    // A session that has expired has neither a timeout nor an id.
    if given.is_zero() || opened.id == 0 {
        return Err(NoSession::Expired);
    }
    if session.id != 0 && opened.id != session.id {
        return Err(NoSession::Malformed(Malformed("the reply is for another session")));
    }
    Ok((given, opened))
}

/// Decodes the reply to the first message. Old servers leave out its last field.
pub(super) fn decode_session(reply: &[u8]) -> Result<(Duration, SessionKey), Malformed> {
    let mut reply = Decoder::new(reply);
    let _protocol_version = reply.int()?;
    let millis = u64::try_from(reply.int()?).unwrap_or(0);
    let id = reply.long()?;
    let password = reply.buffer()?.to_vec();
    Ok((Duration::from_millis(millis), SessionKey { id, password }))
}
