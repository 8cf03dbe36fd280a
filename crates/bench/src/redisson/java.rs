//! A Java process with Redisson, behind `interop/java/RedissonDriver.java`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::turns::{Crowd, Turn};
use crate::rounds::Failure;

/// A running process with Redisson's own defaults; killed when dropped.
pub(super) struct Java {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The version of Redisson.
    pub(super) version: String,
}

impl Java {
    /// Starts it for one server.
    pub(super) fn start(peers: &Path, url: &str) -> Result<Java, Failure> {
        let place = peers.join("redisson-4");
        let path = format!("{0}/classes:{0}/jars/*", place.display());
        let mut java = Command::new("java");
        java.args(["-cp", &path, "RedissonDriver", "single", url, "pool=default"]);
        // It says that it found no logger.
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = java.spawn().map_err(|why| format!("{java:?}: {why}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for")
        };
        let output = BufReader::new(output);
        let version = String::new();
        let mut java = Java { child, input, output, version };
        let ready = java.line()?;
        let Some(version) = ready.strip_prefix("ready ").and_then(|rest| rest.split(' ').next())
        else {
            return Err(format!("Java began with {ready:?}").into());
        };
        java.version = version.to_owned();
        Ok(java)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the Java process has ended".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Lets a crowd of threads take and release.
    pub(super) fn run(
        &mut self,
        kind: &str,
        crowd: Crowd,
        time: Duration,
    ) -> Result<Vec<Turn>, Failure> {
        self.begin(kind, crowd, time)?;
        self.end()
    }

    /// Starts what [`Java::end`] returns.
    pub(super) fn begin(
        &mut self,
        kind: &str,
        crowd: Crowd,
        time: Duration,
    ) -> Result<(), Failure> {
        let Crowd { size, own } = crowd;
        let own = if own { " own" } else { "" };
        let millis = time.as_millis();
        writeln!(self.input, "bench storm {kind} hand-off {size} {millis} 0 -1{own}")?;
        Ok(self.input.flush()?)
    }

    /// Waits for all threads, and returns their turns.
    pub(super) fn end(&mut self) -> Result<Vec<Turn>, Failure> {
        let mut turns = Vec::new();
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["bench", "hold", contender, asked, start, _, done, _] => turns.push(Turn {
                    ours: false,
                    contender: contender.parse()?,
                    asked: asked.parse()?,
                    start: start.parse()?,
                    done: done.parse()?,
                }),
                ["bench", "done", _, "0", ..] => return Ok(turns),
                _ => return Err(format!("Java said {line:?}").into()),
            }
        }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // A process that has already ended must still be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
