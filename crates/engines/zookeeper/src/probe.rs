//! A probe of one member, before any session is used: whether it is a ZooKeeper server, and which
//! session timeouts it allows.
//!
//! The probe opens a session and closes it again, by the first two messages of the protocol. It
//! asks for a timeout that is too short or too long, so the answer is the limit. Each session costs
//! the servers two transactions.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_net::socket;
use holdline_net::tls::{TlsContext, TlsFiles};
use holdline_net::url::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::client::dial::{NoSession, SessionKey, TLS, dial, open_session};
use crate::client::messages::close_frame;
use crate::error::{not_applied, unavailable};

/// How long the probe waits for one member before it also tries the next.
const STAGGER: Duration = Duration::from_millis(150);
/// The longest answer to a four-letter word that is read.
const LONGEST_WORDS: u64 = 64 * 1024;
const SHORTEST: Duration = Duration::from_millis(1);
const FIRST_XID: i32 = 1;

/// The session timeouts that a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

/// Probes the members in parallel, [`STAGGER`] apart, for the shortest timeout, and returns the
/// first answer.
///
/// # Errors
/// `Refused`: a matter of TLS. `Unavailable`: why there is none. Nothing was applied.
pub(crate) async fn shortest_of_any(
    members: &[Server],
    tls: Option<&TlsFiles>,
    within: Duration,
) -> Result<Duration, LockError> {
    let ask = async |number: u32, member: &Server| {
        sleep(STAGGER.saturating_mul(number)).await;
        answer_within(member, tls, within, session(member, tls, SHORTEST)).await
    };
    let mut asked: FuturesUnordered<_> =
        (0..).zip(members).map(|(number, member)| ask(number, member)).collect();
    let mut errors = Vec::new();
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(shortest) => return Ok(shortest),
            Err(error) => errors.push(error),
        }
    }
    if let Some(refused) = errors.iter().position(|error: &LockError| !error.is_unavailable()) {
        return Err(errors.swap_remove(refused));
    }
    let reasons: Vec<String> = errors.iter().map(reason).collect();
    Err(unavailable(reasons.join("; "), Certainty::NotApplied))
}

/// Probes a member for the shortest and the longest timeout.
///
/// # Errors
/// As [`shortest_of_any`].
pub(crate) async fn limits(
    member: &Server,
    tls: Option<&TlsFiles>,
    within: Duration,
) -> Result<Limits, LockError> {
    let asking = async {
        let shortest = session(member, tls, SHORTEST).await?;
        Ok(Limits { shortest, longest: session(member, tls, Duration::MAX).await? })
    };
    answer_within(member, tls, within, asking).await
}

/// Waits for the answer of a member; an error says if only one side speaks TLS.
async fn answer_within<T>(
    member: &Server,
    tls: Option<&TlsFiles>,
    within: Duration,
    asking: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let error: LockError = match timeout(within, asking).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error,
        Err(_) => {
            let message = format!("{member}: no answer within {within:?}");
            return Err(unavailable(message, Certainty::NotApplied));
        }
    };
    if !error.is_unavailable() {
        return Err(error);
    }
    let checked = timeout(within, tls_mismatch(member, tls)).await;
    Err(checked.ok().flatten().unwrap_or(error))
}

/// Returns why a member failed.
pub(crate) fn reason(error: &LockError) -> String {
    match error.kind() {
        ErrorKind::Unavailable { message } | ErrorKind::Refused { message } => message.clone(),
        _ => error.to_string(),
    }
}

/// Opens and closes a session; returns its timeout.
async fn session(
    member: &Server,
    tls: Option<&TlsFiles>,
    asked: Duration,
) -> Result<Duration, LockError> {
    let no_session =
        |why: NoSession| unavailable(format!("{member}: {why}"), Certainty::NotApplied);
    let mut stream = dial(member, tls).await?;
    let opening = open_session(&mut stream, asked, &SessionKey::default(), 0).await;
    let (given, _) = opening.map_err(no_session)?;
    // It may get lost: an unused session expires by itself.
    let _ = stream.write_all(&close_frame(FIRST_XID)).await;
    let _ = stream.flush().await;
    let _ = stream.read(&mut [0; 64]).await;
    Ok(given)
}

/// Returns the error for a member of which only one side speaks TLS.
async fn tls_mismatch(member: &Server, tls: Option<&TlsFiles>) -> Option<LockError> {
    match tls {
        Some(_) => {
            // A server with TLS does not answer a word in clear text.
            let answer = ask_word(member, None, "srvr").await?;
            (!answer.is_empty()).then(|| TLS.no_tls())
        }
        None => {
            let stream = socket::connect(&member.host, member.port).await.ok()?;
            let speaks_tls = TlsContext::speaks_tls(stream, &member.host).await;
            let message = "the server speaks TLS on this port: write `zks://`".to_owned();
            speaks_tls.then(|| not_applied(ErrorKind::Refused { message }))
        }
    }
}

/// Sends a four-letter word; `None` if the member does not answer it.
pub(crate) async fn word(
    member: &Server,
    tls: Option<&TlsFiles>,
    word: &str,
    within: Duration,
) -> Option<String> {
    let reply = timeout(within, ask_word(member, tls, word)).await.ok().flatten()?;
    let refused = reply.is_empty() || reply.contains("not in the whitelist");
    (!refused).then_some(reply)
}

async fn ask_word(member: &Server, tls: Option<&TlsFiles>, word: &str) -> Option<String> {
    let mut stream = dial(member, tls).await.ok()?;
    stream.write_all(word.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    let mut reply = Vec::new();
    // A server with TLS may close the connection without the end of TLS.
    let read = stream.take(LONGEST_WORDS).read_to_end(&mut reply).await;
    (read.is_ok() || !reply.is_empty()).then(|| String::from_utf8_lossy(&reply).into_owned())
}
