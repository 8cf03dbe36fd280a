//! Commands of WebDriver: JSON over HTTP, one connection for each.
//!
//! The clients of others bring either a licence that we do not take, or a feature of `serde_json`
//! that changes the order of fields in the whole workspace.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The time limit of a command. Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the driver listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    port: u16,
}

impl Driver {
    pub(super) fn at(port: u16) -> Self {
        Self { port }
    }

    pub(super) fn is_ready(self) -> bool {
        self.ask("GET", "/status", None).is_ok_and(|status| status["ready"] == true)
    }

    /// Sends a command, and returns the value of the reply.
    pub(super) fn post(self, path: &str, body: &Value) -> Result<Value, String> {
        self.ask("POST", path, Some(body))
    }

    pub(super) fn get(self, path: &str) -> Result<Value, String> {
        self.ask("GET", path, None)
    }

    pub(super) fn delete(self, path: &str) -> Result<Value, String> {
        self.ask("DELETE", path, None)
    }

    fn ask(self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let reply = self.exchange(method, path, &body).map_err(|why| format!("{path}: {why}"))?;
        let mut reply: Value =
            serde_json::from_slice(&reply).map_err(|why| format!("{path}: {why}"))?;
        let value = reply.get_mut("value").map(Value::take).unwrap_or_default();
        match value.get("error") {
            Some(error) => Err(format!("{path}: {error}: {}", value["message"])),
            None => Ok(value),
        }
    }

    fn exchange(self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let mut length = 0;
        while stream.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            line.clear();
        }
        let mut reply = Vec::new();
        stream.take(length).read_to_end(&mut reply)?;
        Ok(reply)
    }
}

/// The capabilities of a session in the browser that runs at `debugger`.
pub(super) fn capabilities(debugger: &str) -> Value {
    json!({"capabilities": {"alwaysMatch": {
        "goog:chromeOptions": {"debuggerAddress": debugger},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        "unhandledPromptBehavior": "ignore",
    }}})
}
