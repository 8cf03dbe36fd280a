//! A Prometheus that scrapes what a test serves.

use crate::ports::Port;
use crate::scratch::Scratch;
use crate::wait::{LIMIT, until};
use crate::{Failure, programs, spawner};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The Debian package with all programs of Prometheus.
const PACKAGE: &str = "prometheus";
/// The time limit of a question.
const ANSWER: Duration = Duration::from_secs(30);

/// A running `prometheus`, which scrapes its targets every 200 ms at `/metrics` and evaluates rules
/// every second. It ends with this value.
#[derive(Debug)]
pub struct Prometheus {
    port: Port,
    child: Child,
    directory: Scratch,
}

impl Prometheus {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// The program is missing or does not start; the message says why.
    #[must_use]
    pub fn start(rules: &Path, targets: &[SocketAddr]) -> Self {
        Self::try_start(rules, targets).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// As [`Prometheus::start`], without a panic.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn try_start(rules: &Path, targets: &[SocketAddr]) -> Result<Self, Failure> {
        let program = programs::of_system("prometheus", PACKAGE, "HOLDLINE_PROMETHEUS")?;
        let port = Port::reserve()?;
        let directory = Scratch::new("prometheus")?;
        let file = directory.write("prometheus.yml", configuration(rules, targets))?;
        let log = File::create(directory.path().join("log"));
        let log = log.map_err(|why| Failure::because("cannot make a log", why))?;
        let mut command = spawner::mortal(&program);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{}", port.number()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = Self { port, child: spawner::spawn(command)?, directory };
        let answers = until(LIMIT, || match server.child.try_wait() {
            Ok(None) => {
                server.ask("/-/ready").is_ok_and(|says| says.contains("200")).then_some(true)
            }
            _ => Some(false),
        });
        if answers == Some(true) {
            return Ok(server);
        }
        let log = std::fs::read_to_string(server.directory.path().join("log"));
        Err(Failure::because("prometheus does not answer", log.unwrap_or_default()))
    }

    /// Returns the URL of its pages and its API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// Returns the answer to a query, as JSON.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    pub fn query(&self, query: &str) -> String {
        let quoted: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.body(&format!("/api/v1/query?query={quoted}"))
    }

    /// Returns its rules and what became of each, as JSON.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    pub fn rules(&self) -> String {
        self.body("/api/v1/rules")
    }

    fn body(&self, path: &str) -> String {
        let answer = self.ask(path).unwrap_or_else(|why| panic!("prometheus, {path}: {why}"));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        body.to_owned()
    }

    /// Asks by HTTP/1.0, where the end of the connection is the end of the answer.
    fn ask(&self, path: &str) -> std::io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Returns the path of `promtool`, which tests rules without a server.
///
/// # Panics
/// It is missing; the message names the Debian package.
#[must_use]
pub fn promtool() -> PathBuf {
    let found = programs::of_system("promtool", PACKAGE, "HOLDLINE_PROMTOOL");
    found.unwrap_or_else(|failure| panic!("{failure}"))
}

fn configuration(rules: &Path, targets: &[SocketAddr]) -> String {
    let mut text = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}}\n\
         rule_files: ['{}']\nscrape_configs:\n- job_name: holdline\n  static_configs:\n  \
         - targets:\n",
        rules.display()
    );
    for target in targets {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    - '{target}'");
    }
    text
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Only a process that is gone already cannot be killed, and it still must be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
