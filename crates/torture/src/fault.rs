//! The faults for workers, network and servers, and their names on the command line.

use std::fmt;
use std::str::FromStr;

use holdline_core::nearest;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A holder is stopped between its read and its write, until another has taken the name and
    /// written, or long past the lease; then it goes on.
    PauseHolder,
    /// Any worker is stopped for a while.
    Pause,
    /// A worker is killed; every second time one that holds. Another is started in its slot.
    Kill,
    /// Nothing passes between a worker, or all of them, and a node, or all of them.
    Cut,
    /// Requests do not arrive.
    CutRequests,
    /// Replies do not arrive: what was asked for is done.
    CutReplies,
    /// Connections are reset.
    Reset,
    /// Everything arrives late.
    Delay,
    /// A node is killed and started again with what it has stored.
    Restart,
    /// A node is stopped for a while.
    PauseNode,
    /// A node is killed and started again without anything.
    RestartEmpty,
    /// A node's wall clock jumps.
    ClockStep,
    /// A node's wall clock runs faster or slower, within what the lock allows for.
    ClockRate,
    /// A node forgets its scripts.
    ScriptFlush,
    /// A node ends the connections of all its clients.
    ClientKill,
    /// The session of a client is ended by another client, and all its grants with it.
    EndSession,
    /// A node's data is erased.
    FlushAll,
    /// A replica takes over from a node, which hands over its data.
    Failover,
    /// What a node has of the names is moved to another.
    Reshard,
}

/// Who can inject a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// Signals to our own workers.
    Signal,
    /// Our own proxies.
    Network,
    /// The owner of the servers: [`crate::Nemesis`].
    Servers,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 19] = [
        Fault::PauseHolder,
        Fault::Pause,
        Fault::Kill,
        Fault::Cut,
        Fault::CutRequests,
        Fault::CutReplies,
        Fault::Reset,
        Fault::Delay,
        Fault::Restart,
        Fault::PauseNode,
        Fault::RestartEmpty,
        Fault::ClockStep,
        Fault::ClockRate,
        Fault::ScriptFlush,
        Fault::ClientKill,
        Fault::EndSession,
        Fault::FlushAll,
        Fault::Failover,
        Fault::Reshard,
    ];

    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Fault::PauseHolder => "pause-holder",
            Fault::Pause => "pause",
            Fault::Kill => "kill",
            Fault::Cut => "cut",
            Fault::CutRequests => "cut-requests",
            Fault::CutReplies => "cut-replies",
            Fault::Reset => "reset",
            Fault::Delay => "delay",
            Fault::Restart => "restart",
            Fault::PauseNode => "pause-node",
            Fault::RestartEmpty => "restart-empty",
            Fault::ClockStep => "clock-step",
            Fault::ClockRate => "clock-rate",
            Fault::ScriptFlush => "script-flush",
            Fault::ClientKill => "client-kill",
            Fault::EndSession => "end-session",
            Fault::FlushAll => "flush-all",
            Fault::Failover => "failover",
            Fault::Reshard => "reshard",
        }
    }

    pub(crate) fn means(self) -> Means {
        match self {
            Fault::PauseHolder | Fault::Pause | Fault::Kill => Means::Signal,
            Fault::Cut | Fault::CutRequests | Fault::CutReplies | Fault::Reset | Fault::Delay => {
                Means::Network
            }
            _ => Means::Servers,
        }
    }

    /// Returns whether only proxies between workers and store can do it.
    pub fn needs_network(self) -> bool {
        self.means() == Means::Network
    }

    /// Returns whether only the owner of the servers can inject it.
    pub fn needs_servers(self) -> bool {
        self.means() == Means::Servers
    }

    /// Returns whether the node forgets what it has acknowledged.
    pub fn forgets(self) -> bool {
        matches!(self, Fault::RestartEmpty | Fault::FlushAll)
    }

    /// Returns whether it lasts, and so must be healed.
    pub fn lasts(self) -> bool {
        !matches!(
            self,
            Fault::Kill
                | Fault::Reset
                | Fault::Restart
                | Fault::RestartEmpty
                | Fault::ClockStep
                | Fault::ScriptFlush
                | Fault::ClientKill
                | Fault::EndSession
                | Fault::FlushAll
                | Fault::Failover
                | Fault::Reshard
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word is no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultError {
    word: String,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = holdline_core::Escaped(&self.word);
        let words = Fault::ALL.map(Fault::word);
        match nearest(&self.word, words) {
            Some(near) => write!(f, "'{word}' is no fault: did you mean '{near}'?"),
            None => write!(f, "'{word}' is no fault: known are {}", words.join(", ")),
        }
    }
}

impl std::error::Error for FaultError {}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(word: &str) -> Result<Fault, FaultError> {
        let known = Fault::ALL.into_iter().find(|fault| fault.word() == word);
        known.ok_or_else(|| FaultError { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_is_written() {
        for fault in Fault::ALL {
            assert_eq!(fault.word().parse(), Ok(fault));
        }
        let error = "flush-al".parse::<Fault>().expect_err("no fault").to_string();
        assert_eq!(error, "'flush-al' is no fault: did you mean 'flush-all'?");
    }
}
