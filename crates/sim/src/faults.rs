//! What a test can do to a server.
//!
//! Each fault looks to clients like the real thing: a crash closes every connection, a stopped
//! process keeps what arrived and runs it later, a flush says nothing to anybody.

use crate::data::Keyspace;
use crate::server::FakeRedis;
use crate::session::ConnectionId;
use crate::state::Trouble;

/// A copy of a server's data set.
#[derive(Debug, Clone)]
pub struct Snapshot(Vec<Keyspace>);

/// What a server remembers when it starts again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Memory {
    /// All of it, as with an append-only file written on every command.
    Kept,
    /// Nothing, as without persistence.
    Lost,
    /// What it knew when the copy was made, as after a restored backup.
    Restored(Snapshot),
}

impl FakeRedis {
    /// Copies the data set.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot(self.state().databases.clone())
    }

    /// Crashes the server: every connection ends, and none is accepted until [`restart`].
    ///
    /// What was sent but not read is lost.
    ///
    /// [`restart`]: Self::restart
    pub fn crash(&mut self) {
        self.set_down(true);
        self.late.clear();
        let state = self.state();
        state.frozen = false;
        state.asleep = None;
        state.pause = None;
        let all: Vec<ConnectionId> = state.connections.keys().copied().collect();
        all.into_iter().for_each(|id| state.forget(id));
    }

    /// Starts the server again, as another process: its `run_id` is new, its scripts are gone.
    pub fn restart(&mut self, memory: Memory) {
        if !self.is_down() {
            self.crash();
        }
        self.set_down(false);
        let limit = self.state().options.script_limit;
        self.scripts = crate::script::Scripts::new(limit);
        let state = self.state();
        state.run_id = state.dice.hex(40);
        state.replication_id = state.dice.hex(40);
        state.started = state.clock.common().now();
        state.troubles.clear();
        match memory {
            Memory::Kept => {}
            Memory::Lost => state.databases.iter_mut().for_each(Keyspace::clear),
            Memory::Restored(snapshot) => state.databases = snapshot.0,
        }
    }

    /// Stops the process where it is, as SIGSTOP does.
    ///
    /// Connections are still accepted and bytes still arrive; all of it is run at the
    /// [`thaw`](Self::thaw), what came on connections that have closed since included.
    pub fn freeze(&mut self) {
        self.state().frozen = true;
    }

    /// Lets a stopped process go on, and run what has arrived.
    pub fn thaw(&mut self) {
        self.state().frozen = false;
        self.resume();
    }

    /// Empties every database, as an operator's FLUSHALL does.
    pub fn flush(&mut self) {
        self.state().flush();
    }

    /// Deletes every key, one by one.
    pub fn delete_everything(&mut self) {
        let state = self.state();
        for db in 0..state.databases.len() {
            let keys: Vec<Vec<u8>> =
                state.databases[db].iter().map(|(key, _)| key.clone()).collect();
            for key in keys {
                state.databases[db].remove(&key);
                state.touched(db, &key);
            }
        }
    }

    /// Puts the server into a state that refuses commands.
    pub fn begin(&mut self, trouble: Trouble) {
        let troubles = &mut self.state().troubles;
        if !troubles.contains(&trouble) {
            troubles.push(trouble);
        }
    }

    /// Ends such a state.
    pub fn end(&mut self, trouble: Trouble) {
        self.state().troubles.retain(|own| *own != trouble);
    }

    /// Forbids the only user a command, or a whole container of them.
    pub fn forbid(&mut self, command: &str) {
        self.state().forbidden.push(command.to_ascii_lowercase());
    }

    /// Allows everything again.
    pub fn allow_all(&mut self) {
        self.state().forbidden.clear();
    }

    /// Changes a setting, as CONFIG SET does.
    ///
    /// # Errors
    /// The server's own words.
    pub fn configure(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.state().config.set(name.as_bytes(), value.as_bytes())
    }

    /// Loses this many of a million published messages. The publisher does not notice.
    pub fn lose_messages(&mut self, of_a_million: u64) {
        self.state().channels.loss_ppm = of_a_million;
    }

    /// Ends a connection from the server's side; what was not read is lost.
    pub fn kill_connection(&mut self, connection: ConnectionId) {
        self.state().kill(connection, false);
    }

    /// Keeps replies on a connection back: commands run, nobody hears of it.
    pub fn withhold_replies(&mut self, connection: ConnectionId) {
        if let Some(session) = self.state().connections.get_mut(&connection) {
            session.withheld = true;
        }
    }

    /// Lets out what was kept back.
    pub fn release_replies(&mut self, connection: ConnectionId) {
        if let Some(session) = self.state().connections.get_mut(&connection) {
            session.withheld = false;
        }
        self.wake_readers();
    }

    /// Drops what a connection has not read yet, as if the network had swallowed it.
    ///
    /// A client that goes on reading loses its place: close the connection after it.
    pub fn drop_replies(&mut self, connection: ConnectionId) {
        if let Some(session) = self.state().connections.get_mut(&connection) {
            session.output.clear();
        }
    }

    /// Returns the connections in the order in which they came.
    pub fn connections(&mut self) -> Vec<ConnectionId> {
        self.state().connections.keys().copied().collect()
    }

    /// Returns the `run_id` that INFO shows.
    pub fn run_id(&mut self) -> String {
        self.state().run_id.clone()
    }

    /// Returns how many commands were run; those of scripts count too.
    pub fn commands_run(&mut self) -> u64 {
        self.state().commands_run
    }

    /// Returns how many keys there are in a database, without those that are over.
    pub fn key_count(&mut self, db: usize) -> usize {
        let state = self.state();
        state.now_us = state.clock.now_us();
        state.expire_all();
        state.databases.get(db).map_or(0, Keyspace::len)
    }

    /// Returns what scripts wrote to the log, each line with its level.
    pub fn log(&mut self) -> &[(i64, Vec<u8>)] {
        &self.state().log
    }
}
