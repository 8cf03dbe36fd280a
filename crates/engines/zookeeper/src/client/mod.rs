//! A client of ZooKeeper, with the requests that the engine uses.
//!
//! - Z1: each request has a limit. If its caller gives up, the request is not sent, or its outcome
//!   is unknown (C1 and C2 of `calls`, L2 of `link`).
//! - Z2: requests are executed in the order in which they were first polled.
//! - Z3: a session continues on another member, by its id, its password, and the last transaction
//!   that it has seen. It ends if the servers say so, if the client is dropped, or if no member
//!   could be reached for seven fifths of its timeout.
//!
//! | look at | for |
//! |---|---|
//! | `jute`, `messages` | the encoding, and the messages |
//! | `dial` | streams, TLS, and opening a session |
//! | `calls` | requests that were not sent yet |
//! | `link` | one connection: sending, replies, pings |
//! | `session_task` | one session: the connections one after the other |
//! | `watches` | one-shot watches |

mod calls;
pub(crate) mod dial;
pub(crate) mod jute;
mod link;
pub(crate) mod messages;
mod session_task;
#[cfg(test)]
mod tests;
mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_net::tls::TlsFiles;
use holdline_net::url::Server;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use self::calls::{Call, Calls, Deliver, Ticket};
use self::jute::Malformed;
use self::messages::Request;
use self::session_task::SessionTask;
use self::watches::WatchTable;
pub(crate) use self::watches::{Watch, Watched};
use crate::error::{RequestError, protocol};

/// How to open a session.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    pub(crate) members: Vec<Server>,
    pub(crate) tls: Option<TlsFiles>,
    /// User and password for the scheme `digest`, with a colon between them.
    pub(crate) credentials: Option<String>,
    /// The session timeout that is asked for.
    pub(crate) session_timeout: Duration,
    /// A member that does not answer for so long is left.
    pub(crate) silence: Duration,
    /// The limit of each request.
    pub(crate) request_timeout: Duration,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Connected,
    Disconnected,
    Ended,
}

/// A session, open for as long as there are clones of this.
#[derive(Clone)]
pub(crate) struct Client(Arc<Handle>);

struct Handle {
    channel: Arc<SessionChannel>,
    given: Duration,
    request_timeout: Duration,
}

/// Where the client leaves its requests for the task of its session.
struct SessionChannel {
    calls: Calls,
    /// Notified when a request was made, and when the session is to be closed.
    asked: Notify,
    closing: AtomicBool,
    watches: Arc<WatchTable>,
    state: watch::Sender<SessionState>,
}

impl SessionChannel {
    fn new() -> Arc<SessionChannel> {
        Arc::new(SessionChannel {
            calls: Calls::default(),
            asked: Notify::new(),
            closing: AtomicBool::new(false),
            watches: Arc::default(),
            state: watch::Sender::new(SessionState::Disconnected),
        })
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Records that the session has ended: fails all requests, and fires all watches.
    fn end(&self) {
        self.state.send_replace(SessionState::Ended);
        self.calls.end();
        self.watches.fire_all();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.channel.closing.store(true, Ordering::SeqCst);
        self.channel.asked.notify_one();
    }
}

/// Takes a request back when its caller gives up (C2).
struct Asked<'c> {
    channel: &'c SessionChannel,
    ticket: Ticket,
}

impl Asked<'_> {
    fn take_back(&self) -> bool {
        self.channel.calls.take_back(self.ticket)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl Client {
    /// Opens a session. Its task runs in the current runtime. Each member is tried once.
    ///
    /// # Errors
    /// `NotSent`: no member gives a session. `Error`: one refuses the client.
    pub(crate) async fn connect(options: ClientOptions) -> Result<Client, RequestError> {
        let channel = SessionChannel::new();
        let request_timeout = options.request_timeout;
        let (task, given) = SessionTask::open(options, channel.clone()).await?;
        // From here on a client that is dropped closes the session.
        let client = Client(Arc::new(Handle { channel, given, request_timeout }));
        tokio::spawn(task.run());
        Ok(client)
    }

    /// Returns the session timeout that the servers have granted.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.0.given
    }

    pub(crate) fn state(&self) -> SessionState {
        *self.0.channel.state.borrow()
    }

    /// Reports the changes of the state from now on.
    pub(crate) fn state_changes(&self) -> watch::Receiver<SessionState> {
        self.0.channel.state.subscribe()
    }

    /// Sends a request, and returns its reply.
    ///
    /// # Errors
    /// `NotSent`: it did not leave. `NoAnswer`: whether it was applied is unknown. `SessionGone`:
    /// the session has ended. All others are the servers'.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        request: Request<T>,
    ) -> Result<T, RequestError> {
        self.deliver(request, |reply| reply).await
    }

    /// As [`ask`](Self::ask), for a request that asks for a watch. If it fails there is none.
    pub(crate) async fn ask_and_watch<T: Send + 'static>(
        &self,
        request: Request<T>,
        watched: Watched,
        path: &str,
    ) -> Result<(T, Watch), RequestError> {
        let watches = self.0.channel.watches.clone();
        let path = path.to_owned();
        self.deliver(request, move |reply| (reply, watches.register(watched, path))).await
    }

    /// Sends a request. `complete` makes the answer, before any later message is handled.
    async fn deliver<T: 'static, A: Send + 'static>(
        &self,
        request: Request<T>,
        complete: impl FnOnce(T) -> A + Send + 'static,
    ) -> Result<A, RequestError> {
        let Handle { channel, request_timeout, .. } = &*self.0;
        let (answer, answered) = oneshot::channel();
        let decode = request.decode;
        let deliver: Deliver = Box::new(move |reply| {
            // The caller may have given up. An answer that nobody gets is dropped.
            let decoded = match reply {
                Ok(reply) => decode(reply),
                Err(error) => {
                    let _ = answer.send(Err(error));
                    return Ok(());
                }
            };
            match decoded {
                Ok(reply) => {
                    let _ = answer.send(Ok(complete(reply)));
                    Ok(())
                }
                Err(Malformed(why)) => {
                    let message = format!("the servers sent no valid reply: {why}");
                    let _ = answer.send(Err(protocol(message).into()));
                    Err(Malformed(why))
                }
            }
        });
        let ticket = channel.calls.push(Call { op: request.op, body: request.body, deliver })?;
        let asked = Asked { channel, ticket };
        channel.asked.notify_one();
        match timeout(*request_timeout, answered).await {
            Ok(Ok(answer)) => answer,
            // The task was dropped with its runtime.
            Ok(Err(_)) => Err(RequestError::NoAnswer("the task of the session ended".to_owned())),
            Err(_) if asked.take_back() => {
                let message = format!("no connection within {request_timeout:?}");
                Err(RequestError::NotSent(message))
            }
            Err(_) => Err(RequestError::NoAnswer(format!("no answer within {request_timeout:?}"))),
        }
    }
}
