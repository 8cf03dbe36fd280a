//! One fake server process.
//!
//! It is a value: nothing runs unless a method is called, and its only time is the given clock. The
//! same calls with the same seed produce the same bytes.
//!
//! Invariant S1: commands run one after the other, each as a whole.
//! Invariant S2: a connection's commands run in the order in which they arrived.
//! Read next: `dispatch` (how a command runs), `checks` (when it is rejected), `faults`.

use std::sync::Arc;

use holdline_core::{Clock, Moment};

use crate::clock::WallClock;
use crate::errors::{ErrorReply, MAX_CLIENTS};
use crate::options::RedisOptions;
use crate::resp::{Protocol, Reply};
use crate::script::Scripts;
use crate::session::{Connection, ConnectionId, ReplyMode};
use crate::state::ServerData;

/// The replies of a command: usually one, one for each channel of a subscription, none if the
/// client wants none.
pub type Replies = Vec<Reply>;

/// A fake Redis server: the memory of one server process.
///
/// It has the commands of Debian's Redis 7.0 that our engine uses, and a test compares the two. It
/// has no clusters and no replicas.
pub struct FakeRedis {
    /// `None` only while a script has it.
    state: Option<Box<ServerData>>,
    pub(crate) scripts: Scripts,
    down: bool,
    /// The replies to send when DEBUG SLEEP ends.
    pub(crate) delayed_replies: Vec<(ConnectionId, Reply)>,
}

impl std::fmt::Debug for FakeRedis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = self.state.as_ref().map_or(0, |state| state.connections.len());
        f.debug_struct("FakeRedis").field("connections", &connections).finish_non_exhaustive()
    }
}

/// The server does not accept connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsDown;

impl std::fmt::Display for IsDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server is down")
    }
}

impl std::error::Error for IsDown {}

impl FakeRedis {
    /// Starts a server without data, with the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>, options: RedisOptions) -> FakeRedis {
        let scripts = Scripts::new(options.script_limit);
        let state = ServerData::new(WallClock::new(clock), options);
        FakeRedis {
            state: Some(Box::new(state)),
            scripts,
            down: false,
            delayed_replies: Vec::new(),
        }
    }

    pub(crate) fn state(&mut self) -> &mut ServerData {
        self.state.as_mut().expect("only a running script has the state, and it gives it back")
    }

    pub(crate) fn lend(&mut self) -> (&mut Option<Box<ServerData>>, &mut Scripts) {
        (&mut self.state, &mut self.scripts)
    }

    /// Opens a connection. Beyond the limit it gets an error and is closed, as on the server.
    ///
    /// # Errors
    /// [`IsDown`] after a crash and before the restart.
    pub fn connect(&mut self) -> Result<ConnectionId, IsDown> {
        if self.down {
            return Err(IsDown);
        }
        let state = self.state();
        let id = ConnectionId(state.next_connection);
        state.next_connection += 1;
        let full = state.connections.len() >= state.config.number("maxclients");
        let mut connection = Connection::new(id, state.config.password().is_none());
        if full {
            connection.send(&ErrorReply::from(MAX_CLIENTS).into());
            connection.closing = true;
        }
        state.connections.insert(id, connection);
        Ok(id)
    }

    /// Runs one command and returns its replies as values.
    ///
    /// Pushed messages go to the output of their connections. A stopped server does not reply: use
    /// [`receive`](Self::receive) for it.
    pub fn execute(&mut self, connection: ConnectionId, args: &[&[u8]]) -> Replies {
        let replies = self.run_command(connection, args);
        self.wake_readers();
        replies
    }

    /// Receives bytes on a connection, and runs the complete commands.
    pub fn receive(&mut self, connection: ConnectionId, bytes: &[u8]) {
        self.tick();
        let Some(session) = self.state().connections.get_mut(&connection) else { return };
        session.input.feed(bytes);
        self.work(connection);
    }

    /// Takes at most `limit` bytes of the output of a connection.
    pub fn take_output(&mut self, connection: ConnectionId, limit: usize) -> Vec<u8> {
        let state = self.state();
        let still = state.frozen || state.asleep.is_some();
        let Some(session) = state.connections.get_mut(&connection) else { return Vec::new() };
        if still {
            return Vec::new();
        }
        let end = session.output.len().min(limit);
        let bytes = session.output[..end].to_vec();
        session.output.drain(..end);
        if session.output.is_empty() && session.closing {
            state.forget(connection);
        }
        bytes
    }

    /// Returns whether the server still has the connection.
    pub fn is_open(&self, connection: ConnectionId) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.connections.contains_key(&connection))
    }

    /// Closes the client's end of a connection.
    ///
    /// A running server drops it at once, including a command that a pause of clients delays. A
    /// stopped server runs the received bytes when it continues, as after SIGSTOP.
    pub fn close(&mut self, connection: ConnectionId) {
        let state = self.state();
        let still = state.frozen || state.asleep.is_some();
        match state.connections.get_mut(&connection) {
            Some(session) if still => session.peer_gone = true,
            _ => state.forget(connection),
        }
    }

    /// Returns the protocol of a connection.
    pub fn protocol(&self, connection: ConnectionId) -> Protocol {
        let state = self.state.as_ref();
        let session = state.and_then(|state| state.connections.get(&connection));
        session.map_or(Protocol::Resp2, |session| session.protocol)
    }

    /// Returns the server's wall clock, to make it wrong.
    pub fn clock(&mut self) -> &mut WallClock {
        &mut self.state().clock
    }

    /// Returns when the server must act by itself, if ever: call [`tick`](Self::tick) then.
    pub fn next_wake(&mut self) -> Option<Moment> {
        let state = self.state();
        let pause = state.pause.map(|(_, until)| until);
        pause.into_iter().chain(state.asleep).min()
    }

    /// Ends sleeps and pauses that are due.
    pub fn tick(&mut self) {
        let state = self.state();
        let now = state.clock.common().now();
        let slept = state.asleep.is_some_and(|until| until <= now);
        let paused = state.pause.is_some_and(|(_, until)| until <= now);
        if slept {
            state.asleep = None;
        }
        if paused {
            state.pause = None;
        }
        if slept || paused {
            self.resume();
        }
    }

    /// Continues everything that was delayed.
    pub(crate) fn resume(&mut self) {
        for (id, reply) in std::mem::take(&mut self.delayed_replies) {
            if let Some(session) = self.state().connections.get_mut(&id) {
                session.send(&reply);
            }
        }
        let all: Vec<ConnectionId> = self.state().connections.keys().copied().collect();
        for id in all {
            self.work(id);
            if self.state().connections.get(&id).is_some_and(|c| c.peer_gone) {
                self.state().forget(id);
            }
        }
        self.wake_readers();
    }

    /// Runs the complete commands in the input of a connection.
    fn work(&mut self, id: ConnectionId) {
        loop {
            let state = self.state();
            if state.frozen || state.asleep.is_some() {
                return;
            }
            let Some(session) = state.connections.get_mut(&id) else { return };
            if session.closing {
                return;
            }
            let next = match session.postponed.take() {
                Some(command) => Ok(Some(command)),
                None => session.input.next(),
            };
            match next {
                Ok(None) => break,
                Ok(Some(command)) => self.run_and_send(id, &command),
                Err(text) => {
                    session.send(&ErrorReply::from(text).into());
                    session.closing = true;
                }
            }
            if self.state().connections.get(&id).is_some_and(|c| c.postponed.is_some()) {
                break;
            }
        }
        self.wake_readers();
    }

    fn run_and_send(&mut self, id: ConnectionId, command: &[Vec<u8>]) {
        let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let replies = self.run_command(id, &args);
        let asleep = self.state().asleep.is_some();
        for reply in replies {
            if asleep {
                self.delayed_replies.push((id, reply));
            } else if let Some(session) = self.state().connections.get_mut(&id) {
                session.send(&reply);
            }
        }
    }

    /// Runs one command under the client's reply mode.
    fn run_command(&mut self, id: ConnectionId, args: &[&[u8]]) -> Replies {
        let state = self.state();
        state.now_us = state.clock.now_us();
        if let Some(session) = state.connections.get_mut(&id)
            && session.reply_mode == ReplyMode::SkipNext
        {
            session.reply_mode = ReplyMode::Skip;
        }
        let replies = self.process(id, args);
        let Some(session) = self.state().connections.get_mut(&id) else { return replies };
        let silent = session.reply_mode != ReplyMode::On;
        if session.reply_mode == ReplyMode::Skip {
            session.reply_mode = ReplyMode::On;
        }
        if silent { Vec::new() } else { replies }
    }

    pub(crate) fn wake_readers(&mut self) {
        let state = self.state();
        let still = state.frozen || state.asleep.is_some();
        if still || !state.may_read {
            return;
        }
        state.may_read = false;
        for session in state.connections.values_mut().filter(|session| session.waker.is_some()) {
            let something = !session.output.is_empty() || session.closing;
            match session.waker.take_if(|_| something) {
                Some(waker) => waker.wake(),
                None => state.may_read = true,
            }
        }
    }

    pub(crate) fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Returns whether the server has crashed and was not restarted.
    pub fn is_down(&self) -> bool {
        self.down
    }
}
