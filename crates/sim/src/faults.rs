//! Faults that a test can inject into a server.
//!
//! Each fault looks real to clients. A crash closes every connection. A stopped process executes
//! what arrived when it continues. A flush notifies no client.

use crate::data::Keyspace;
use crate::server::FakeRedis;
use crate::session::ConnectionId;
use crate::state::ServerCondition;

/// A copy of a server's data set.
#[derive(Debug, Clone)]
pub struct Snapshot(Vec<Keyspace>);

/// The data of a server after a restart.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Memory {
    /// All data, as with an append-only file that is synced on every command.
    Kept,
    /// No data, as without persistence.
    Lost,
    /// The data of a snapshot, as after a restored backup.
    Restored(Snapshot),
}

impl FakeRedis {
    /// Copies the data set.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot(self.state().databases.clone())
    }

    /// Crashes the server: every connection ends, and none is accepted until [`restart`].
    ///
    /// Unread output is lost.
    ///
    /// [`restart`]: Self::restart
    pub fn crash(&mut self) {
        self.set_down(true);
        self.delayed_replies.clear();
        let state = self.state();
        state.frozen = false;
        state.asleep = None;
        state.pause = None;
        let all: Vec<ConnectionId> = state.connections.keys().copied().collect();
        all.into_iter().for_each(|id| state.forget(id));
    }

    /// Restarts the server as another process: with a new `run_id` and without scripts.
    pub fn restart(&mut self, memory: Memory) {
        if !self.is_down() {
            self.crash();
        }
        self.set_down(false);
        let limit = self.state().options.script_limit;
        self.scripts = crate::script::Scripts::new(limit);
        let state = self.state();
        state.run_id = state.rng.hex(40);
        state.replication_id = state.rng.hex(40);
        state.started = state.clock.common().now();
        state.conditions.clear();
        match memory {
            Memory::Kept => {}
            Memory::Lost => state.databases.iter_mut().for_each(Keyspace::clear),
            Memory::Restored(snapshot) => state.databases = snapshot.0,
        }
    }

    /// Stops the process, as SIGSTOP does.
    ///
    /// Connections are still accepted and bytes still arrive. They are executed at the
    /// [`thaw`](Self::thaw), including those of connections that have closed since.
    pub fn freeze(&mut self) {
        self.state().frozen = true;
    }

    /// Continues a stopped process, which executes what has arrived.
    pub fn thaw(&mut self) {
        self.state().frozen = false;
        self.resume();
    }

    /// Empties every database, as an operator's FLUSHALL does.
    pub fn flush(&mut self) {
        self.state().flush();
    }

    /// Puts the server into a condition that rejects commands.
    pub fn begin(&mut self, condition: ServerCondition) {
        let conditions = &mut self.state().conditions;
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }

    /// Ends such a condition.
    pub fn end(&mut self, condition: ServerCondition) {
        self.state().conditions.retain(|own| *own != condition);
    }

    /// Changes a setting, as CONFIG SET does.
    ///
    /// # Errors
    /// The server's message.
    pub fn configure(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.state().config.set(name.as_bytes(), value.as_bytes())
    }

    /// Loses this many of a million published messages. The publisher does not notice.
    pub fn lose_messages(&mut self, of_a_million: u64) {
        self.state().channels.loss_ppm = of_a_million;
    }

    /// Closes a connection from the server's side; unread output is lost.
    pub fn kill_connection(&mut self, connection: ConnectionId) {
        self.state().kill(connection, false);
    }

    /// Returns the connections, oldest first.
    pub fn connections(&mut self) -> Vec<ConnectionId> {
        self.state().connections.keys().copied().collect()
    }

    /// Returns the `run_id` that INFO shows.
    pub fn run_id(&mut self) -> String {
        self.state().run_id.clone()
    }

    /// Returns the number of commands that were run, including those of scripts.
    pub fn commands_run(&mut self) -> u64 {
        self.state().commands_run
    }

    /// Returns the number of commands that clients sent, without those of scripts.
    pub fn requests(&mut self) -> u64 {
        self.state().requests
    }

    /// Returns the number of keys in a database, without expired ones.
    pub fn key_count(&mut self, db: usize) -> usize {
        let state = self.state();
        state.now_us = state.clock.now_us();
        state.expire_all();
        state.databases.get(db).map_or(0, Keyspace::len)
    }

    /// Returns the log of scripts, each entry with its level.
    pub fn log(&mut self) -> &[(i64, Vec<u8>)] {
        &self.state().log
    }
}
