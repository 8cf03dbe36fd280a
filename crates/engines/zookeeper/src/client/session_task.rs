//! The task of one session: connects to one member after the other, until the session ends.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_net::url::Server;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep, timeout_at};

use super::dial::{NoSession, SessionKey, dial, open_session};
use super::link::{End, Link, Silence};
use super::{ClientOptions, SessionChannel, SessionState};
use crate::error::{RequestError, unavailable};

/// The pause after all members have failed once; it doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A session, with the connection to one member.
pub(super) struct SessionTask {
    options: ClientOptions,
    channel: Arc<SessionChannel>,
    key: SessionKey,
    /// The session timeout that the servers have granted.
    given: Duration,
    link: Link,
}

/// Why a try at one member has failed.
enum Failed {
    Member(LockError),
    /// The session has expired.
    Expired,
}

impl SessionTask {
    /// Opens a new session on the first member that grants one; returns it with its timeout. Each
    /// member is tried once.
    pub(super) async fn open(
        options: ClientOptions,
        channel: Arc<SessionChannel>,
    ) -> Result<(SessionTask, Duration), RequestError> {
        let error = match try_members(&options, &channel, &SessionKey::default(), 0, None).await {
            Ok((link, key, given)) => {
                channel.state.send_replace(SessionState::Connected);
                let task = SessionTask { options, channel, key, given, link };
                return Ok((task, given));
            }
            Err(Failed::Member(error)) => error,
            Err(Failed::Expired) => {
                unavailable("the members allow no session", Certainty::NotApplied)
            }
        };
        match error.kind() {
            ErrorKind::Unavailable { message } => Err(RequestError::NotSent(message.clone())),
            _ => Err(error.into()),
        }
    }

    /// Serves the session until it ends.
    pub(super) async fn run(mut self) {
        // Also if the runtime drops this task.
        let _ended = EndOnDrop(self.channel.clone());
        loop {
            match self.link.run(&self.channel).await {
                End::Broken(why) => {
                    tracing::debug!(why, "the connection to a ZooKeeper member ended");
                }
                End::Closed => return,
                End::SessionGone | End::Refused(_) => {
                    tracing::debug!("the servers have ended a session");
                    return;
                }
            }
            self.channel.state.send_replace(SessionState::Disconnected);
            self.channel.watches.fire_all();
            if !self.reconnect().await {
                return;
            }
        }
    }

    /// Continues the session on another connection; returns whether it has not ended.
    async fn reconnect(&mut self) -> bool {
        // The servers have ended it by then, unless none of them ran.
        let end = self.link.last_received + self.given * 7 / 5;
        let zxid = self.link.last_zxid;
        let mut pauses = Pauses::new(self.options.silence);
        loop {
            match try_members(&self.options, &self.channel, &self.key, zxid, Some(end)).await {
                Ok((_, _, given)) if given < self.given => {
                    tracing::warn!(?given, "a member grants a shorter session than the others");
                }
                Ok((link, key, _)) => {
                    self.link = link;
                    self.key = key;
                    self.channel.state.send_replace(SessionState::Connected);
                    return true;
                }
                Err(Failed::Expired) => return false,
                Err(Failed::Member(error)) => {
                    tracing::debug!(%error, "no ZooKeeper member can be reached");
                }
            }
            if Instant::now() >= end {
                return false;
            }
            pauses.wait().await;
        }
    }
}

/// Records the end of the session.
struct EndOnDrop(Arc<SessionChannel>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The pauses between two rounds over the members.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn new(silence: Duration) -> Pauses {
        Pauses { next: FIRST_PAUSE, longest: LONGEST_PAUSE.min(silence / 2) }
    }

    async fn wait(&mut self) {
        // A random part, so that many clients do not come at once.
        sleep(self.next.mul_f64(rand::random_range(0.5..1.0))).await;
        self.next = (self.next * 2).min(self.longest);
    }
}

/// A connection on which a session was opened, the session's key and its timeout.
type Opened = (Link, SessionKey, Duration);

/// Tries each member once, in random order, but not after `end`.
///
/// # Errors
/// If no member gives a session: why one refuses the client, or why the last cannot be reached.
async fn try_members(
    options: &ClientOptions,
    channel: &SessionChannel,
    session: &SessionKey,
    last_zxid: i64,
    end: Option<Instant>,
) -> Result<Opened, Failed> {
    let mut members: Vec<_> = options.members.iter().collect();
    members.shuffle(&mut rand::rng());
    let mut failure = unavailable("no member is named", Certainty::NotApplied);
    for member in members {
        let trying = try_member(options, channel, member, session, last_zxid);
        let silence_ends = Instant::now() + options.silence;
        let error = match timeout_at(end.unwrap_or(silence_ends).min(silence_ends), trying).await {
            Err(_) => silent(member, format_args!("no answer within {:?}", options.silence)),
            Ok(Err(Failed::Member(error))) => error,
            Ok(outcome) => return outcome,
        };
        if failure.is_unavailable() {
            failure = error;
        }
    }
    Err(Failed::Member(failure))
}

/// Opens the session on one member, or continues it there.
async fn try_member(
    options: &ClientOptions,
    channel: &SessionChannel,
    member: &Server,
    session: &SessionKey,
    last_zxid: i64,
) -> Result<Opened, Failed> {
    let mut stream = dial(member, options.tls.as_ref()).await.map_err(Failed::Member)?;
    let opening = open_session(&mut stream, options.session_timeout, session, last_zxid).await;
    let (given, key) = opening.map_err(|why| match why {
        NoSession::Expired if session.id != 0 => Failed::Expired,
        why => Failed::Member(silent(member, why)),
    })?;
    let mut link = Link::new(stream, Silence::of(given, options.silence), last_zxid);
    if let Some(credentials) = &options.credentials {
        link.authenticate(channel, credentials).await.map_err(|end| match end {
            End::Broken(why) => Failed::Member(silent(member, why)),
            End::Refused(code) => Failed::Member(RequestError::of_code(code).into_error()),
            End::Closed | End::SessionGone => Failed::Expired,
        })?;
    }
    Ok((link, key, given))
}

fn silent(member: &Server, why: impl Display) -> LockError {
    unavailable(format!("{member}: {why}"), Certainty::NotApplied)
}
