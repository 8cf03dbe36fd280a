//! Real servers for the examples of a document: started for it, and ended with it.
//!
//! An example names the server of the reader, such as `redis://locks.example`. When it is run, that
//! text is replaced by the URL of a server of this machine, which the test ground starts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The URL in a document, and what the test ground calls such a server.
const SERVERS: [(&str, &str); 5] = [
    ("redis://locks.example", "redis"),
    ("postgres://app@db.example/app", "postgres"),
    ("mysql://app@db.example/app", "mariadb"),
    ("etcd://etcd.example", "etcd"),
    ("zk://zookeeper.example", "zookeeper"),
];

/// The servers of one document.
pub(super) struct Servers {
    program: PathBuf,
    running: RefCell<BTreeMap<&'static str, Server>>,
}

/// It ends when its input does.
struct Server {
    child: Child,
    url: String,
}

impl Servers {
    pub(super) fn new(binaries: &Path) -> Self {
        let program = binaries.join("holdline-services");
        Self { program, running: RefCell::default() }
    }

    /// The text of an example with the URLs of real servers.
    ///
    /// # Errors
    /// A server did not start.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for (shown, kind) in SERVERS {
            if !text.contains(shown) {
                continue;
            }
            let mut running = self.running.borrow_mut();
            if !running.contains_key(kind) {
                running.insert(kind, Server::start(&self.program, kind)?);
            }
            let url = running.get(kind).map_or("", |server| &server.url);
            text = text.replace(shown, url);
        }
        Ok(text)
    }
}

impl Server {
    fn start(program: &Path, kind: &str) -> Result<Self, String> {
        let cannot = |why: &dyn std::fmt::Display| format!("no {kind} for the examples: {why}");
        let mut command = Command::new(program);
        command.arg(kind).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| cannot(&why))?;
        let mut url = String::new();
        if let Some(output) = child.stdout.take() {
            // It ends at once if the server does not start, and so does this.
            BufReader::new(output).read_line(&mut url).map_err(|why| cannot(&why))?;
        }
        let server = Self { child, url: url.trim().to_owned() };
        if server.url.is_empty() { Err(cannot(&"it printed no URL")) } else { Ok(server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(why) = self.child.wait() {
            eprintln!("a server for the examples stays behind: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_servers_starts_none() {
        let servers = Servers::new(Path::new("no-such-directory"));
        let other = "echo redis://other.example";
        assert_eq!(servers.fill(other).as_deref(), Ok(other));
        assert!(servers.fill("redis-cli -u redis://locks.example").unwrap_err().contains("redis"));
    }

    #[test]
    fn a_program_that_prints_no_url_is_an_error() {
        assert!(
            Server::start(Path::new("true"), "redis").err().expect("no URL").contains("no URL")
        );
        let server = Server::start(Path::new("echo"), "redis").expect("it prints one");
        assert_eq!(server.url, "redis");
    }
}
