//! A real MariaDB server of a test's own.

mod config;
mod exchange;

pub use config::MariaDbConfig;

use crate::config::ClientCertificates;
use crate::ports::Port;
use crate::postgres::cluster::copy;
use crate::programs::of_system;
use crate::scratch::Scratch;
use crate::server_process::{ServerProcess, process_controls, process_questions};
use crate::wheel::target_directory;
use crate::{Certificates, Failure, ServerClock, spawner};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often another port is tried when a stranger took the one that was free a moment ago.
const PORTS: usize = 5;
/// Names the server program, if it is not on the search path.
const PROGRAM: &str = "HOLDLINE_MARIADBD";
/// Where Debian keeps the statements that make the server's own tables.
const STATEMENTS: &str = "/usr/share/mysql";
const PARTS: [&str; 3] =
    ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"];

/// A running `mariadbd` on a loopback port and a unix socket, in a directory of its own.
///
/// It has a database `locks`, and a user `holdline` with the password `secret` who may do all in
/// it. Dropping it ends the server and removes the directory; the end of this process, however it
/// comes, ends the server too. All methods panic with the reason if a command to the
/// server fails, which ends the test.
#[derive(Debug)]
pub struct MariaDbServer {
    process: ServerProcess,
    config: MariaDbConfig,
    program: PathBuf,
    port: Port,
    certificates: Option<Certificates>,
    clock: Option<ServerClock>,
}

process_questions!(MariaDbServer);
process_controls!(MariaDbServer);

impl MariaDbServer {
    /// The password of the user `holdline`.
    pub const PASSWORD: &'static str = "secret";

    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// The program is missing or the server does not start; the message says why.
    #[must_use]
    pub fn start(config: MariaDbConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The program is missing or the server does not start. Nothing is left behind.
    pub fn try_start(config: MariaDbConfig) -> Result<Self, Failure> {
        let program = program()?;
        let directory = Scratch::new("mariadb")?;
        let path = directory.path();
        let mut server = Self {
            port: Port::reserve()?,
            certificates: config.tls.map(|_| Certificates::write(path)).transpose()?,
            clock: config.clock.then(|| ServerClock::build(path)).transpose()?,
            process: ServerProcess::new(directory),
            program,
            config,
        };
        copy(&empty(&server.program)?, &server.data())?;
        for _ in 1..PORTS {
            match server.start_here() {
                Err(failure) if failure.to_string().contains("Address already in use") => {
                    server.port = Port::reserve()?;
                }
                done => {
                    done?;
                    return server.furnish().map(|()| server);
                }
            }
        }
        server.start_here()?;
        server.furnish().map(|()| server)
    }

    /// Where the server listens by TCP; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// The address as a URL, for the user `holdline` and the database `locks`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&format!("holdline:{}", Self::PASSWORD), "locks")
    }

    /// The address as a URL for a user, with its password behind a `:` if it has one, and a
    /// database.
    #[must_use]
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}@{}/{database}", self.address())
    }

    /// The certificates that the server and its clients use.
    ///
    /// # Panics
    /// The server was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the server was started with TLS")
    }

    /// The unix socket on which the server listens too.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory().join("s")
    }

    /// Runs statements behind the engine's back, as the server's own root, in the database `locks`,
    /// and returns the rows of the last that has any, with `|` between two columns.
    ///
    /// # Panics
    /// The server refuses a statement, or does not answer.
    pub fn sql(&self, statements: &str) -> Vec<String> {
        let done = self.try_sql(statements);
        done.unwrap_or_else(|says| panic!("{statements}: {says}\n{}", self.log()))
    }

    /// As [`sql`](Self::sql).
    ///
    /// # Errors
    /// What the server has said.
    pub fn try_sql(&self, statements: &str) -> Result<Vec<String>, String> {
        exchange::run(&self.socket(), "locks", statements)
    }

    /// Copies what the server has stored, into its directory; returns where the copy lies. The
    /// server is ended in order for it, and started again.
    ///
    /// # Panics
    /// The server does not run, its copy cannot be written, or it does not start again.
    #[must_use]
    pub fn save(&self) -> PathBuf {
        let saved = self.directory().join("copy");
        self.shutdown();
        copy(&self.data(), &saved).unwrap_or_else(|failure| panic!("{failure}"));
        self.restart();
        saved
    }

    /// Kills the server, puts an old copy in place of what it has stored, and starts it again.
    ///
    /// # Panics
    /// `saved` is none, or the server does not start with it; the message says why.
    pub fn restore(&self, saved: &Path) {
        self.kill();
        let data = self.data();
        let removed = std::fs::remove_dir_all(&data);
        removed.unwrap_or_else(|why| panic!("{}: {why}", data.display()));
        copy(saved, &data).unwrap_or_else(|failure| panic!("{failure}"));
        self.restart();
    }

    fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    /// Makes the database and the user of the tests.
    fn furnish(&self) -> Result<(), Failure> {
        let proof = match self.config.tls {
            Some(ClientCertificates::Required) => " require x509",
            _ => "",
        };
        let statements = format!(
            "create database locks; \
             create user holdline@'%' identified by '{}'{proof}; \
             grant all on locks.* to holdline@'%'",
            Self::PASSWORD
        );
        let made = exchange::run(&self.socket(), "mysql", &statements);
        made.map(drop).map_err(|says| Failure::because("the server cannot be furnished", says))
    }

    fn start_here(&self) -> Result<(), Failure> {
        let directory = self.process.directory();
        let text = self.config.text(directory, self.port.number());
        let file = self.process.write("my.cnf", text)?;
        let mut command = spawner::mortal(&self.program);
        command.arg(format!("--defaults-file={}", file.display())).args(as_root());
        command.envs(self.clock.iter().flat_map(ServerClock::environment));
        command.current_dir(directory);
        self.process.start("mariadbd", command, || self.answers())
    }

    /// By the socket, which lies in a directory of ours: no other server can answer there. A node
    /// of a Galera cluster refuses access to tables until it has joined (error 1047).
    fn answers(&self) -> bool {
        exchange::run(&self.socket(), "mysql", "select count(*) from mysql.db").is_ok()
    }
}

fn program() -> Result<PathBuf, Failure> {
    // Debian keeps servers apart from what users run.
    let kept = Path::new("/usr/sbin/mariadbd");
    match of_system("mariadbd", "mariadb-server-core", PROGRAM) {
        Err(_) if std::env::var_os(PROGRAM).is_none() && kept.is_file() => Ok(kept.to_owned()),
        found => found,
    }
}

/// The server runs as root only if a user is set.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// An empty data directory. Making one takes a second; it is done once, kept in the target
/// directory and copied.
fn empty(program: &Path) -> Result<PathBuf, Failure> {
    let home = target_directory().join("tools").join("servers");
    let cannot = |why: std::io::Error| Failure::because("cannot keep an empty database", why);
    let version = Command::new(program).arg("--version").output().map_err(cannot)?;
    let version: String = String::from_utf8_lossy(&version.stdout)
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let kept = home.join(format!("mariadb-{version}"));
    std::fs::create_dir_all(&home).map_err(cannot)?;
    let lock = File::create(home.join("mariadb-lock")).map_err(cannot)?;
    lock.lock().map_err(cannot)?;
    if !kept.is_dir() {
        let unfinished = home.join("mariadb-unfinished");
        let _ = std::fs::remove_dir_all(&unfinished);
        std::fs::create_dir_all(unfinished.join("mysql")).map_err(cannot)?;
        make(program, &unfinished)?;
        std::fs::rename(&unfinished, &kept).map_err(cannot)?;
    }
    drop(lock);
    Ok(kept)
}

/// Makes the server's own tables, without what a person would need.
fn make(program: &Path, data: &Path) -> Result<(), Failure> {
    let mut text = b"use mysql;\n".to_vec();
    for part in PARTS {
        let path = Path::new(STATEMENTS).join(part);
        let read = std::fs::read(&path).map_err(|why| Failure::because(path.display(), why))?;
        text.extend_from_slice(&read);
        text.push(b'\n');
    }
    let input = Scratch::new("mariadb-make")?;
    let input = input
        .write("statements", text)
        .and_then(|path| File::open(&path).map_err(|why| Failure::because(path.display(), why)))?;
    let mut command = spawner::mortal(program);
    command.args(["--no-defaults", "--bootstrap", "--innodb-log-file-size=8M"]).args(as_root());
    command.arg(format!("--datadir={}", data.display())).stdin(input);
    crate::postgres::cluster::run(&mut command)
}
