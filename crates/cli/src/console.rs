//! The only module that prints: data on stdout, messages on stderr.
//!
//! Invariant C1: external text is escaped where a message is made. In addition every line is
//! cleaned of control characters here, before our own colours are added. Read next: `docs/json.md`,
//! which describes what `--json` prints.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use holdline_core::Escaped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use serde::Serialize;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::table::cut;

/// How long a message may block: much less than the margin before a lease ends.
const WRITE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where and how to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    json: bool,
    quiet: bool,
    verbose: bool,
    color: Color,
    non_blocking: bool,
}

/// The level of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Detail,
    Info,
    Warning,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Detail => "detail",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// Where messages about an action go.
pub(crate) trait Messages: Sync {
    /// Takes a message that nothing is wrong with.
    fn info(&self, message: &str);
    /// Takes a warning.
    fn warn(&self, message: &str);
}

impl Messages for Console {
    fn info(&self, message: &str) {
        Console::info(self, message);
    }

    fn warn(&self, message: &str) {
        Console::warn(self, message);
    }
}

impl Console {
    /// Makes a console.
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool, color: Color) -> Console {
        Console { json, quiet, verbose, color, non_blocking: false }
    }

    /// Returns a console that drops a message instead of blocking for long. A holder or waiter has
    /// leases to renew and perhaps a job to stop, and a terminal after `^S`, or a pipe whose reader
    /// is stuck, accepts nothing.
    pub(crate) fn non_blocking(self) -> Console {
        Console { non_blocking: true, ..self }
    }

    /// Returns whether data and messages are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether `--verbose` was given.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Returns whether a line on stderr may be redrawn, because it is a terminal.
    pub(crate) fn has_status_line(&self) -> bool {
        !self.json && !self.quiet && io::stderr().is_terminal()
    }

    /// Returns whether stdout was closed when this process started.
    ///
    /// In that case the standard library opens the null device for reading and writing before
    /// `main`. A shell's `>/dev/null` is open for writing only, so it is not mistaken for it.
    pub(crate) fn stdout_is_closed(&self) -> bool {
        let stdout = io::stdout();
        let null = rustix::fs::stat("/dev/null");
        let is_null = match (rustix::fs::fstat(&stdout), null) {
            (Ok(stdout), Ok(null)) => {
                FileType::from_raw_mode(stdout.st_mode) == FileType::CharacterDevice
                    && stdout.st_rdev == null.st_rdev
            }
            _ => false,
        };
        let flags = rustix::fs::fcntl_getfl(&stdout);
        is_null && flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
    }

    /// Returns whether the reader of stdout has gone, as `head` does when it has its line.
    pub(crate) fn reader_is_gone(&self) -> bool {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let found = poll(&mut polled, Some(&Timespec::default()));
        found.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Writes data to stdout unchanged; the caller escapes it.
    ///
    /// # Errors
    /// Stdout cannot be written. A closed pipe is no error.
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::internal(format_args!("cannot write to stdout: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Writes data that must not get lost: a closed pipe is an error.
    pub(crate) fn deliver(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|error| Failure::internal(format_args!("cannot write to stdout: {error}")))
    }

    /// Writes one JSON object on a line of stdout.
    pub(crate) fn object(&self, object: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_string(object).map_err(Failure::internal)?;
        line.push('\n');
        self.data(&line)
    }

    /// Prints data: an object, or without `--json` a text.
    pub(crate) fn print(&self, object: &impl Serialize, text: &str) -> Result<(), Failure> {
        if self.json { self.object(object) } else { self.data(text) }
    }

    /// Prints what a verb has done: an object, or without `--json` a message.
    pub(crate) fn done(&self, object: &impl Serialize, message: &str) -> Outcome {
        if self.json {
            self.object(object)?;
        } else {
            self.info(message);
        }
        Ok(Exit::Success)
    }

    /// Prints an object with `--json`, and nothing without.
    pub(crate) fn only_object(&self, object: &impl Serialize) -> Outcome {
        if self.json {
            self.object(object)?;
        }
        Ok(Exit::Success)
    }

    /// Prints a message that only `-v` shows.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose {
            self.talk(Level::Detail, text);
        }
    }

    /// Prints an informational message.
    pub(crate) fn info(&self, text: &str) {
        self.talk(Level::Info, text);
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        self.talk(Level::Warning, text);
    }

    /// Prints a failure.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            return self.say(&failure_object(failure).to_string());
        }
        self.talk(Level::Error, &failure.message);
        if let Some(fix) = &failure.fix {
            self.say(&format!("  {}", clean(fix)));
        }
    }

    /// Redraws the status line, cut to the terminal's width; an empty text removes it.
    pub(crate) fn status_line(&self, text: &str) {
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
        let width = if columns == 0 { 80 } else { usize::from(columns.max(20)) };
        self.write(&format!("\r\x1b[K{}", cut(&clean(text), width - 1)));
    }

    fn talk(&self, level: Level, text: &str) {
        if self.quiet && level != Level::Error {
            return;
        }
        let text = clean(text);
        if self.json {
            return self.say(&json!({ "level": level.word(), "message": text }).to_string());
        }
        let (on, off) = if self.colors(&io::stderr()) { paint(level) } else { ("", "") };
        match level {
            Level::Error | Level::Warning => {
                self.say(&format!("holdline: {on}{}:{off} {text}", level.word()));
            }
            Level::Detail | Level::Info => self.say(&format!("holdline: {text}")),
        }
    }

    /// Writes one line to stderr.
    fn say(&self, line: &str) {
        self.write(&format!("{line}\n"));
    }

    /// Writes to stderr, in one piece. A failure cannot be reported anywhere, so it is ignored.
    fn write(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        if !self.non_blocking || has_room(&stderr) {
            let _ = stderr.write_all(text.as_bytes());
        }
    }

    /// Returns whether a stream gets colours.
    pub(crate) fn colors(&self, stream: &impl IsTerminal) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
            }
        }
    }

    /// Formats the heading of a table in bold on a terminal.
    pub(crate) fn heading(&self, text: &str) -> String {
        if self.colors(&io::stdout()) { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn paint(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::Error => ("\x1b[1;31m", "\x1b[0m"),
        Level::Warning => ("\x1b[1;33m", "\x1b[0m"),
        Level::Detail | Level::Info => ("", ""),
    }
}

/// Returns a failure as `docs/json.md` describes it.
pub(crate) fn failure_object(failure: &Failure) -> serde_json::Value {
    json!({
        "level": "error",
        "kind": failure.kind,
        "exit": failure.exit.code(),
        "message": failure.message,
        "fix": failure.fix,
        "certainty": failure.certainty,
    })
}

/// Returns whether a line can be written, now or within [`WRITE_WAIT`].
fn has_room(stream: impl AsFd) -> bool {
    let mut stream = [PollFd::new(&stream, PollFlags::OUT)];
    // A stream that cannot be polled does not block.
    poll(&mut stream, Some(&WRITE_WAIT)) != Ok(0)
}

/// Escapes all control characters except the line feed.
fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            cleaned.push_str(&Escaped(character.encode_utf8(&mut [0; 4])).to_string());
        } else {
            cleaned.push(character);
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_that_were_not_escaped_are_removed() {
        assert_eq!(clean("a\u{1b}[31mb\nc\u{9b}"), "a\\u{1b}[31mb\nc\\u{9b}");
    }
}
