//! The state of one connection.

use std::task::Waker;

use crate::resp::{Protocol, Reply, RequestParser, encode};

/// Identifies one connection of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// Returns the number of `CLIENT ID`.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The reply mode of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// Off for the command after this one.
    SkipNext,
    /// Off for this command.
    Skip,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) name: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) authenticated: bool,
    pub(crate) protocol: Protocol,
    pub(crate) db: usize,
    pub(crate) input: RequestParser,
    pub(crate) output: Vec<u8>,
    pub(crate) channels: Vec<Vec<u8>>,
    pub(crate) shard_channels: Vec<Vec<u8>>,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) no_evict: bool,
    /// A command that CLIENT PAUSE delays.
    pub(crate) postponed: Option<Vec<Vec<u8>>>,
    /// The server closes it once the output is read.
    pub(crate) closing: bool,
    /// The client has closed; commands that arrived before may still run.
    pub(crate) peer_gone: bool,
    pub(crate) waker: Option<Waker>,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, authenticated: bool) -> Connection {
        Connection {
            id,
            name: Vec::new(),
            user: b"default".to_vec(),
            authenticated,
            protocol: Protocol::Resp2,
            db: 0,
            input: RequestParser::default(),
            output: Vec::new(),
            channels: Vec::new(),
            shard_channels: Vec::new(),
            reply_mode: ReplyMode::On,
            no_evict: false,
            postponed: None,
            closing: false,
            peer_gone: false,
            waker: None,
        }
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        !self.channels.is_empty() || !self.shard_channels.is_empty()
    }

    /// Returns whether only commands about subscriptions are allowed.
    pub(crate) fn is_subscriber_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.is_subscribed()
    }

    /// Appends a reply or a message to the output.
    pub(crate) fn send(&mut self, reply: &Reply) {
        if !self.peer_gone {
            encode(reply, self.protocol, &mut self.output);
        }
    }
}
