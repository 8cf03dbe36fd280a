//! The demonstration: servers, contenders and faults, and the dashboard that shows them.
//!
//! `cargo xtask demo` runs it. All actors are processes of the program `holdline`, so that what is
//! seen is what a user gets.
//!
//! - D1: whatever was started ends with [`Demo`], also if a later step of the start fails. Jobs are
//!   asked to end first, then killed.
//! - D2: actors read no configuration of the user, and write to a private directory.

mod actor;
mod scene;

use crate::server_process::ServerProcess;
use crate::wait::{LIMIT, until};
use crate::{Failure, PostgresConfig, PostgresServer, RedisConfig, RedisServer, Scratch, spawner};
use actor::{Actor, Program};
use rustix::process::Signal;
use scene::{CONTENDERS, FREEZE, PAUSED_JOB, Store};
use std::path::Path;
use std::time::{Duration, Instant};

/// The servers of the quorum.
const SERVERS: usize = 5;
/// How long the holder stays paused: longer than its lease, and a look at the dashboard.
const PAUSED_FOR: Duration = Duration::from_secs(20);
/// How long a holder is left alone before it is paused, so that the dashboard has seen it.
const SEEN_AFTER: Duration = Duration::from_secs(5);
/// How long the killed server stays down, and how long it then runs until it is killed again.
const DOWN_FOR: Duration = Duration::from_secs(30);
const UP_FOR: Duration = Duration::from_secs(120);

/// Five Redis servers, a PostgreSQL, contenders, a paused holder, a killed server, a frozen name,
/// and `holdline serve` with the dashboard. All of it ends when this is dropped.
#[derive(Debug)]
pub struct Demo {
    contenders: Vec<Actor>,
    paused: Paused,
    server: ServerProcess,
    url: String,
    killed: Killed,
    redis: Vec<RedisServer>,
    postgres: PostgresServer,
}

/// The holder that is paused past its lease, again and again.
#[derive(Debug)]
struct Paused {
    actor: Actor,
    stopped: Option<Instant>,
}

/// The last server of the quorum, which is killed and started again.
#[derive(Debug)]
struct Killed {
    is_down: bool,
    since: Instant,
}

impl Demo {
    /// Starts everything and returns when the dashboard answers and a server was killed.
    ///
    /// `holdline` is the program, built with the features `server`, `redis` and `postgres`.
    ///
    /// # Errors
    /// A program is missing, and the message names the Debian package; or a step failed. Nothing is
    /// left behind.
    pub fn start(holdline: &Path) -> Result<Self, Failure> {
        if !holdline.is_file() {
            let says = format!("{} is missing: run `cargo xtask demo`", holdline.display());
            return Err(Failure::new(says));
        }
        let redis = (0..SERVERS).map(|_| RedisServer::try_start(RedisConfig::default()));
        let redis = redis.collect::<Result<Vec<_>, _>>()?;
        let postgres = PostgresServer::try_start(PostgresConfig::default())?;
        let addresses: Vec<_> = redis.iter().map(|server| server.address().to_string()).collect();
        let urls = [postgres.url(), format!("redlock://{}", addresses.join(","))];
        let program = Program::new(holdline, urls);
        program.run(Store::Quorum, &["quorum", "init", "--max-lease", "30s"])?;
        // Fresh servers grant nothing for minutes otherwise: earlier leases might be held.
        program.run(Store::Quorum, &["quorum", "vouch", "--yes"])?;
        program.run(Store::Database, FREEZE)?;
        let (server, url) = serve(&program)?;
        let paused = Paused { actor: program.actor(Store::Database, PAUSED_JOB)?, stopped: None };
        let contenders = CONTENDERS.iter().flat_map(|(store, count, arguments)| {
            (0..*count).map(|_| program.actor(*store, arguments))
        });
        let contenders = contenders.collect::<Result<Vec<_>, _>>()?;
        let killed = Killed { is_down: false, since: Instant::now() };
        let mut demo = Self { contenders, paused, server, url, killed, redis, postgres };
        demo.kill_server();
        Ok(demo)
    }

    /// The address of the dashboard.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What to look at, a page a line.
    #[must_use]
    pub fn script(&self) -> String {
        scene::script(&self.url)
    }

    /// The process numbers of everything that runs now, except for jobs and workers.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let actors = self.contenders.iter().chain([&self.paused.actor]).filter_map(Actor::pid);
        let redis = self.redis.iter().filter(|server| server.is_running()).map(RedisServer::pid);
        let own = [self.server.pid(), self.postgres.pid()];
        actors.chain(redis).chain(own).collect()
    }

    /// Does what is due: starts actors that have ended again, pauses the holder, and kills or
    /// starts the server. To be called a few times a second.
    ///
    /// # Errors
    /// The dashboard's server has ended, or an actor does not start.
    pub fn keep_going(&mut self) -> Result<(), Failure> {
        if self.server.child().as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None))) {
            return Err(Failure::because("holdline serve has ended", self.server.log()));
        }
        for actor in &mut self.contenders {
            actor.start_again()?;
        }
        self.paused.keep_going()?;
        match (self.killed.is_down, self.killed.since.elapsed()) {
            (false, up) if up > UP_FOR => self.kill_server(),
            (true, down) if down > DOWN_FOR => {
                self.killed = Killed { is_down: false, since: Instant::now() };
                self.redis.iter().skip(SERVERS - 1).for_each(RedisServer::restart);
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_server(&mut self) {
        self.killed = Killed { is_down: true, since: Instant::now() };
        self.redis.iter().skip(SERVERS - 1).for_each(RedisServer::kill);
    }
}

impl Paused {
    fn keep_going(&mut self) -> Result<(), Failure> {
        match self.stopped {
            None if self.actor.has_held_for(SEEN_AFTER) => {
                self.actor.signal(Signal::STOP);
                self.stopped = Some(Instant::now());
            }
            // It learns of the loss and stops its job.
            Some(at) if at.elapsed() > PAUSED_FOR => {
                self.actor.signal(Signal::CONT);
                self.stopped = None;
                self.actor.forget_hold();
            }
            None => self.actor.start_again()?,
            Some(_) => {}
        }
        Ok(())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let actors: Vec<&Actor> = self.contenders.iter().chain([&self.paused.actor]).collect();
        for signal in [Signal::TERM, Signal::CONT] {
            actors.iter().for_each(|actor| actor.signal(signal));
        }
        // One that does not end is killed when it is dropped.
        let _ = until(actor::END, || actors.iter().all(|actor| actor.has_ended()).then_some(()));
        if let Some(child) = self.server.child().as_mut() {
            let _ = spawner::signal(child, Signal::TERM);
            let _ = until(actor::END, || child.try_wait().transpose());
        }
    }
}

/// Starts `holdline serve` for both stores on a free port.
fn serve(program: &Program) -> Result<(ServerProcess, String), Failure> {
    let server = ServerProcess::new(Scratch::new("demo")?);
    let mut command = program.command(server.directory());
    let [database, quorum] = &program.urls;
    command.args(["serve", "--listen", "127.0.0.1:0", "--url", database]);
    command.args(["--url", &format!("quorum={quorum}")]);
    server.start("holdline serve", command, || server.log().contains("serves http"))?;
    let url = until(LIMIT, || {
        let log = server.log();
        let (_, rest) = log.split_once("serves ")?;
        // The whole line, since a part of it may be written.
        let (url, _) = rest.split_once('\n')?;
        Some(format!("{}/dashboard", url.trim()))
    });
    let url =
        url.ok_or_else(|| Failure::because("holdline serve names no address", server.log()))?;
    Ok((server, url))
}
