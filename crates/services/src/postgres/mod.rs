//! A real PostgreSQL server of a test's own.

pub(crate) mod cluster;
mod config;
mod pooler;

pub use config::{PostgresConfig, PostgresFlavour};
pub use pooler::PgBouncer;

use crate::ports::Port;
use crate::scratch::Scratch;
use crate::server_process::{ServerProcess, process_questions};
use crate::wait::{LIMIT, until};
use crate::{Certificates, Failure, ServerClock, spawner};
use cluster::Programs;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How often another port is tried when a stranger took the one that was free a moment ago.
const PORTS: usize = 5;
/// How long a server that is dropped may take to end by itself before it is killed.
const END: Duration = Duration::from_secs(5);

/// How many transactions a file of `pg_xact` has the state of, at two bits each.
const XACT_SEGMENT_IDS: u32 = 1 << 20;
const XACT_SEGMENT_BYTES: usize = 1 << 18;

/// A running `postgres` on a loopback port and a unix socket, in a directory of its own.
///
/// Dropping it ends the server and removes the directory. The end of this process, however it
/// comes, ends the server too; the directory is then left to the next that starts one. All
/// methods panic with the reason if a command to the server fails, which ends the test.
#[derive(Debug)]
pub struct PostgresServer {
    process: ServerProcess,
    config: PostgresConfig,
    programs: Programs,
    port: Port,
    certificates: Option<Certificates>,
    clock: Option<ServerClock>,
}

/// A program that takes the stream of changes; its end is the end of that.
#[derive(Debug)]
pub struct ChangeStream(Child);

impl Drop for ChangeStream {
    fn drop(&mut self) {
        // Only a process that is gone already cannot be killed, and it still must be reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

process_questions!(PostgresServer);

impl PostgresServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// The program is missing or the server does not start; the message says why.
    #[must_use]
    pub fn start(config: PostgresConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The program is missing or the server does not start. Nothing is left behind.
    pub fn try_start(config: PostgresConfig) -> Result<Self, Failure> {
        let programs = Programs::find(config.flavour)?;
        let directory = Scratch::new("postgres")?;
        let path = directory.path();
        let mut server = Self {
            port: Port::reserve()?,
            certificates: config.tls.map(|_| Certificates::write(path)).transpose()?,
            clock: config.clock.then(|| ServerClock::build(path)).transpose()?,
            process: ServerProcess::new(directory),
            programs,
            config,
        };
        server.prepare()?;
        for _ in 1..PORTS {
            match server.start_here() {
                Err(failure) if failure.to_string().contains("Address already in use") => {
                    server.port = Port::reserve()?;
                }
                done => return done.map(|()| server),
            }
        }
        server.start_here().map(|()| server)
    }

    /// Where the server listens by TCP; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// The address as a URL, for the user and the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres", "postgres")
    }

    /// The address as a URL for a user, with its password behind a `:` if it has one, and a
    /// database.
    #[must_use]
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.address())
    }

    /// The certificates that the server and its clients use.
    ///
    /// # Panics
    /// The server was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the server was started with TLS")
    }

    /// Runs statements behind the engine's back, as the server's own user, and returns the rows
    /// of the last, with `|` between two columns.
    ///
    /// # Panics
    /// The server refuses a statement, or does not answer.
    pub fn sql(&self, statements: &str) -> Vec<String> {
        self.try_sql("postgres", statements).unwrap_or_else(|says| panic!("{statements}: {says}"))
    }

    /// As [`sql`](Self::sql), in a database.
    ///
    /// # Errors
    /// What the server, or `psql`, has said.
    pub fn try_sql(&self, database: &str, statements: &str) -> Result<Vec<String>, String> {
        let done = self.ask(database, statements).map_err(|why| why.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        Ok(String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect())
    }

    /// Plants functions and operators in `public` as a stranger could, and puts `public` before
    /// the server's own catalog in the search path of all later sessions. Each trap notes when a
    /// session whose `application_name` is `holdline` calls it: see [`sprung`](Self::sprung).
    ///
    /// # Panics
    /// The server refuses.
    pub fn plant_traps(&self) {
        self.sql(include_str!("traps.sql"));
        self.sql("alter database postgres set search_path = public, pg_catalog");
    }

    /// The traps that a session of Holdline has called.
    ///
    /// # Panics
    /// The server refuses.
    #[must_use]
    pub fn sprung(&self) -> Vec<String> {
        self.sql("select distinct what from public.ran order by 1")
    }

    fn ask(&self, database: &str, statements: &str) -> std::io::Result<Output> {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        psql.arg("-h").arg(self.directory()).args(["-p", &self.port.number().to_string()]);
        psql.args(["-d", database, "-c", statements]).env_remove("PGOPTIONS");
        psql.stdin(Stdio::null()).output()
    }

    /// Takes the stream of changes from the server, as a standby does, until it is dropped.
    ///
    /// # Panics
    /// The server gives none.
    #[must_use]
    pub fn stream_changes(&self) -> ChangeStream {
        let kept = self.directory().join("stream");
        std::fs::create_dir_all(&kept).expect("a directory of ours");
        self.programs.hand_over(&kept).unwrap_or_else(|failure| panic!("{failure}"));
        let mut command = self.programs.mortal("pg_receivewal");
        command.arg("-h").arg(self.directory()).args(["-p", &self.port.number().to_string()]);
        command.args(["-U", "postgres", "--no-loop", "-D"]).arg(&kept).stdin(Stdio::null());
        let child = spawner::spawn(command).unwrap_or_else(|failure| panic!("{failure}"));
        let streams = || {
            let count = self.sql("select count(*) from pg_stat_replication");
            (count == ["1"]).then_some(())
        };
        until(LIMIT, streams).expect("the server sends its changes");
        ChangeStream(child)
    }

    /// Waits until the server's log holds `text`.
    ///
    /// # Panics
    /// It does not within 30 s; the message shows the log.
    pub fn await_log(&self, text: &str) {
        self.process.await_log(text);
    }

    /// Stops the server (`SIGSTOP`), all its processes: connections stay, nothing is
    /// answered. Returns when it stands.
    ///
    /// # Panics
    /// The server does not run.
    pub fn stop(&self) {
        self.process.stop();
        // The first process makes no others now.
        self.signal_workers(Signal::STOP);
    }

    /// Lets a stopped server go on.
    ///
    /// # Panics
    /// The server does not run.
    pub fn cont(&self) {
        self.signal_workers(Signal::CONT);
        self.process.cont();
    }

    /// Kills one process of the server (`SIGKILL`), such as the one that serves a connection; the
    /// server then ends all others and recovers.
    ///
    /// # Panics
    /// There is no such process of this server.
    pub fn kill_worker(&self, pid: u32) {
        assert!(self.try_kill_worker(pid), "{pid} is no process of this server");
    }

    /// Does as [`PostgresServer::kill_worker`], unless that process has ended by itself: then
    /// nothing is done, and the result is `false`.
    pub fn try_kill_worker(&self, pid: u32) -> bool {
        let lives = self.workers().contains(&pid);
        if lives {
            self.signal(pid, Signal::KILL);
        }
        lives
    }

    /// Waits until the server answers again, after it has recovered from a loss of a process.
    ///
    /// # Panics
    /// It does not within 30 s.
    pub fn await_answer(&self) {
        if until(LIMIT, || self.answers().then_some(())).is_none() {
            panic!("the server does not answer\n{}", self.log());
        }
    }

    /// Makes the server end without writing down what it has in memory, as in a crash, and waits
    /// until it has.
    ///
    /// # Panics
    /// The server does not run, or does not end.
    pub fn crash(&self) {
        self.process.end_by(Signal::QUIT);
    }

    /// Kills all processes of the server (`SIGKILL`), as when memory runs out, and waits
    /// until they are gone. What it had written to its files stays.
    ///
    /// # Panics
    /// The server does not run, or does not end.
    pub fn kill(&self) {
        // Standing still, it makes no process that would be missed here.
        self.stop();
        self.signal_workers(Signal::KILL);
        self.process.kill();
    }

    /// Asks the server to end at once but in order, and waits until it has.
    ///
    /// # Panics
    /// The server does not run, or does not end.
    pub fn shutdown(&self) {
        self.process.end_by(Signal::INT);
    }

    /// Starts the server again in its directory and on its port; ends it first if it runs.
    ///
    /// # Panics
    /// The server does not start; the message says why.
    pub fn restart(&self) {
        if self.process.is_running() {
            self.shutdown();
        }
        // Processes of one that was killed may take a moment to end.
        let started = until(LIMIT, || match self.start_here() {
            Err(why) if why.to_string().contains("shared memory block") => None,
            started => Some(started),
        });
        match started {
            Some(Ok(())) => {}
            Some(Err(why)) => panic!("{why}"),
            None => panic!("processes of the server that was killed do not end"),
        }
    }

    /// Ends the server in order, sets the id of its next transaction, as if all before had been
    /// used, and starts it again.
    ///
    /// # Panics
    /// The server does not end or start, or `pg_resetwal` refuses.
    pub fn skip_transactions(&self, next: u32) {
        if self.process.is_running() {
            self.shutdown();
        }
        let data = self.directory().join("data");
        let mut reset = self.programs.mortal("pg_resetwal");
        // No transaction is older than 3: the first ids are reserved.
        reset.args(["-u", "3", "-x", &next.to_string(), "-D"]).arg(&data).current_dir("/");
        let segment = data.join("pg_xact").join(format!("{:04X}", next / XACT_SEGMENT_IDS));
        let done = cluster::run(&mut reset)
            .and_then(|()| self.write_empty_segment(&segment))
            .and_then(|()| self.programs.hand_over(&data));
        if let Err(why) = done {
            panic!("{why}");
        }
        self.restart();
    }

    /// The server looks up the state of the newest transactions in this file.
    fn write_empty_segment(&self, path: &Path) -> Result<(), Failure> {
        let written = std::fs::write(path, vec![0; XACT_SEGMENT_BYTES]);
        written.map_err(|why| Failure::because(path.display(), why))
    }

    fn signal_workers(&self, signal: Signal) {
        self.workers().into_iter().for_each(|pid| self.signal(pid, signal));
    }

    /// A worker that has ended meanwhile is no fault.
    fn signal(&self, pid: u32, signal: Signal) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process number");
        let _ = kill_process(pid, signal);
    }

    /// The processes that the first one has started.
    fn workers(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Fills the directory, and gives it to the user that the server runs as.
    fn prepare(&self) -> Result<(), Failure> {
        self.programs.cluster(self.process.directory())?;
        self.process.write("hba.conf", self.config.access())?;
        self.process.write("ident.conf", "")?;
        if let Some(certificates) = &self.certificates {
            use std::os::unix::fs::PermissionsExt;
            let (_, key) = certificates.server();
            let private = std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600));
            private.map_err(|why| Failure::because(key.display(), why))?;
        }
        self.programs.hand_over(self.process.directory())
    }

    fn start_here(&self) -> Result<(), Failure> {
        let directory = self.process.directory();
        let text = self.config.text(directory, self.port.number());
        let file = self.process.write("server.conf", text)?;
        let mut command = self.programs.mortal("postgres");
        command.arg("-D").arg(directory.join("data"));
        command.arg(format!("--config_file={}", file.display())).current_dir(directory);
        command.envs(self.clock.iter().flat_map(ServerClock::environment));
        self.process.start("postgres", command, || self.answers())
    }

    /// By the socket, which lies in a directory of ours: no other server can answer there.
    fn answers(&self) -> bool {
        let socket = format!(".s.PGSQL.{}", self.port.number());
        self.process.directory().join(socket).exists()
            && self.ask("postgres", "select 1").is_ok_and(|done| done.status.success())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if !self.process.is_running() {
            return;
        }
        // A stopped one has to run to end. It ends its other processes and takes its
        // shared memory with it, which a kill would leave.
        self.signal_workers(Signal::CONT);
        let mut child = self.process.child();
        let Some(child) = child.as_mut() else { return };
        let _ = spawner::signal(child, Signal::QUIT);
        let _ = spawner::signal(child, Signal::CONT);
        // One that does not end is killed with its directory.
        until(END, || child.try_wait().transpose());
    }
}
