//! Passwords: how they are read, and that no message shows them.
//!
//! A password may change while a program runs. So a file is read again for each new connection, and
//! a command is run again. If that fails, the last value is used.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use holdline_core::{Escaped, LockError, StrayCharacter};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::files::read_short;

/// The largest file that holds a password, in bytes, and the longest output of a command.
pub const MAX_SECRET_SIZE: u64 = 64 * 1024;

/// How long a command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const COMMAND_POLL: Duration = Duration::from_millis(5);
/// How long its output is used. A server that refuses connections causes no run for each of them.
const COMMAND_KEPT: Duration = Duration::from_secs(10);

/// A secret that no message shows. Clones share what was read last.
#[derive(Clone, Default)]
pub struct Secret(Option<Arc<Value>>);

struct Value {
    source: Source,
    last: Mutex<Last>,
}

enum Source {
    /// The text itself.
    Given,
    File(PathBuf),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// What was read last.
struct Last {
    text: String,
    at: Instant,
}

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: Option<String>) -> Secret {
        Secret(secret.map(|text| Secret::value(Source::Given, text)))
    }

    fn value(source: Source, text: String) -> Arc<Value> {
        Arc::new(Value { source, last: Mutex::new(Last { text, at: Instant::now() }) })
    }

    /// Returns whether there is a secret.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the secret as it was read last.
    pub fn last(&self) -> Option<String> {
        self.0.as_ref().map(|value| value.last.lock().text.clone())
    }

    /// Returns the secret for a new connection: reads its file, or runs its command. If that fails,
    /// returns the last one, and logs a warning.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: a command that runs ends by itself, or after 10 s.
    pub async fn read(&self) -> Option<String> {
        let value = self.0.as_ref()?;
        let read = match &value.source {
            Source::Given => return self.last(),
            Source::File(path) => file_line(path),
            Source::Command(_) if value.last.lock().at.elapsed() < COMMAND_KEPT => {
                return self.last();
            }
            Source::Command(words) => {
                let words = words.clone();
                let (sender, output) = oneshot::channel();
                std::thread::spawn(move || sender.send(command_line(&words, COMMAND_LIMIT)));
                output.await.unwrap_or_else(|_| Err("it was not run".to_owned()))
            }
        };
        match read {
            Ok(text) => *value.last.lock() = Last { text, at: Instant::now() },
            Err(why) => {
                let source = &value.source;
                tracing::warn!(%source, why, "cannot read the password: the last one is used");
            }
        }
        self.last()
    }

    /// Reads the secret that a parameter of a URL names: `password_env`, `password_file`,
    /// `password_command`, or another word in place of `password`.
    ///
    /// # Errors
    /// As for [`Secret::from_variable`], [`Secret::from_file`] and [`Secret::from_command`].
    pub fn from_parameter(
        engine: &'static str,
        key: &str,
        value: &str,
    ) -> Result<Secret, LockError> {
        match key.rsplit('_').next() {
            Some("file") => Secret::from_file(engine, Path::new(value)),
            Some("command") => Secret::from_command(engine, value),
            _ => Secret::from_variable(engine, value),
        }
    }

    /// Reads the secret from an environment variable.
    ///
    /// # Errors
    /// `Invalid`: it is not set, is not UTF-8, or begins or ends with white space, which is rarely
    /// meant. The message does not show the value.
    pub fn from_variable(engine: &'static str, variable: &str) -> Result<Secret, LockError> {
        let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
        let variable = Escaped(variable);
        let bad = |message| Err(LockError::invalid(engine, "password_env", message));
        let Some(value) = value else {
            return bad(format!(
                "the variable {variable} is not set, or is not UTF-8 (`holdline run` removes it \
                 from the job's environment: use `password_file` there)"
            ));
        };
        if let Some(stray) = StrayCharacter::of(&value) {
            return bad(format!(
                "the value of the variable {variable} {stray}: remove it; a password that has it \
                 can be read by `password_file`, which ignores a line feed at the end"
            ));
        }
        Ok(Secret::new(Some(value)))
    }

    /// Reads the first line of a file, as secrets are mounted, without its line end. White space
    /// before the line end is a part of the secret.
    ///
    /// # Errors
    /// `Invalid`: it cannot be read, is empty, is not UTF-8, or is longer than [`MAX_SECRET_SIZE`].
    pub fn from_file(engine: &'static str, path: &Path) -> Result<Secret, LockError> {
        let text = file_line(path).map_err(|why| {
            LockError::invalid(engine, "password_file", format!("{}: {why}", path.display()))
        })?;
        Ok(Secret(Some(Secret::value(Source::File(path.to_owned()), text))))
    }

    /// Runs a command, without a shell, and takes the first line of its output: for passwords that
    /// last for minutes, such as the tokens of cloud databases. Words are separated by blanks.
    ///
    /// # Errors
    /// `Invalid`: it cannot be run, fails, takes more than 10 s, or its output is empty, not UTF-8
    /// or too long.
    pub fn from_command(engine: &'static str, command: &str) -> Result<Secret, LockError> {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let text = command_line(&words, COMMAND_LIMIT).map_err(|why| {
            let program = words.first().map_or("", |program| program);
            LockError::invalid(engine, "password_command", format!("{program}: {why}"))
        })?;
        Ok(Secret(Some(Secret::value(Source::Command(words), text))))
    }
}

fn file_line(path: &Path) -> Result<String, String> {
    first_line(read_short(path, MAX_SECRET_SIZE).map_err(|error| error.to_string())?)
}

fn command_line(words: &[String], limit: Duration) -> Result<String, String> {
    let [program, arguments @ ..] = words else { return Err("names no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let stdout = child.stdout.take();
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = match stdout {
            Some(stdout) => stdout.take(MAX_SECRET_SIZE + 1).read_to_end(&mut bytes),
            None => Ok(0),
        };
        sender.send(read.map(|_| bytes))
    });
    wait_for(&mut child, limit)?;
    // A process that the command has started may keep the pipe open.
    let bytes = output.recv_timeout(limit).map_err(|_| "its output does not end".to_owned())?;
    let bytes = bytes.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_SECRET_SIZE {
        return Err(format!("its output is longer than {MAX_SECRET_SIZE} bytes"));
    }
    first_line(bytes)
}

/// Waits until a command has succeeded; ends it after a while.
fn wait_for(child: &mut Child, limit: Duration) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if begun.elapsed() < limit => std::thread::sleep(COMMAND_POLL),
            Ok(None) => {
                // It may end by itself just now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it takes longer than {limit:?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn first_line(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err("is empty".to_owned()),
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Given => f.write_str("the URL"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Command(words) => f.write_str(words.first().map_or("", |program| program)),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "(set)" } else { "(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("holdline-secret-{}-{name}", std::process::id()))
    }

    async fn read(secret: &Secret) -> String {
        secret.read().await.expect("set")
    }

    #[test]
    fn a_secret_shows_only_whether_it_is_set() {
        let set = Secret::new(Some("hers".to_owned()));
        assert_eq!(format!("{set:?} {:?}", Secret::default()), "(set) (none)");
        assert_eq!(set.last().as_deref(), Some("hers"));
    }

    #[test]
    fn read_errors_do_not_show_the_content() {
        for (path, says) in
            [("/dev/zero", "longer"), ("/dev/null", "empty"), ("/no/where", "No such")]
        {
            let error =
                Secret::from_file("test", Path::new(path)).expect_err("refused").to_string();
            assert!(error.contains(says) && error.contains(path), "{error}");
        }
        let error =
            Secret::from_variable("test", "HOLDLINE_NO_SUCH_VARIABLE").expect_err("refused");
        assert!(error.to_string().contains("HOLDLINE_NO_SUCH_VARIABLE"), "{error}");
    }

    #[tokio::test]
    async fn a_file_is_read_for_each_connection_and_its_last_value_is_used_while_it_is_away() {
        let file = scratch("file");
        std::fs::write(&file, "first\n").expect("written");
        let secret = Secret::from_file("test", &file).expect("read");
        std::fs::write(&file, "second\r\n").expect("written");
        assert_eq!(
            (secret.last().as_deref(), read(&secret).await.as_str()),
            (Some("first"), "second")
        );
        for broken in [true, false] {
            if broken {
                std::fs::write(&file, "").expect("written");
            } else {
                std::fs::remove_file(&file).expect("removed");
            }
            assert_eq!(read(&secret.clone()).await, "second");
        }
    }

    #[tokio::test]
    async fn a_command_is_run_again_once_its_output_is_old() {
        let file = scratch("command");
        std::fs::write(&file, "first\nnot this\n").expect("written");
        let secret = Secret::from_command("test", &format!("cat {}", file.display()));
        let secret = secret.expect("run");
        std::fs::write(&file, "second").expect("written");
        assert_eq!(read(&secret).await, "first", "it has just been run");
        let age = |secret: &Secret| {
            let value = secret.0.as_ref().expect("set");
            value.last.lock().at -= COMMAND_KEPT;
        };
        age(&secret);
        assert_eq!(read(&secret).await, "second");
        std::fs::remove_file(&file).expect("removed");
        age(&secret);
        assert_eq!(read(&secret).await, "second", "the last one");
    }

    #[test]
    fn a_command_ends_in_time_also_if_it_hangs_or_leaves_a_process_with_its_output() {
        let run = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned);
            command_line(&words, Duration::from_millis(300)).expect_err("refused")
        };
        let hangs = run("exec sleep 20");
        assert!(hangs.contains("longer than"), "{hangs}");
        let leaves = run("echo secret; sleep 20 &");
        assert!(leaves.contains("does not end"), "{leaves}");
    }

    #[test]
    fn a_command_that_fails_or_says_nothing_is_refused() {
        for (command, says) in [
            ("", "no program"),
            ("/no/where -x", "No such"),
            ("false", "exit status: 1"),
            ("true", "empty"),
            ("cat /dev/zero", "signal"),
        ] {
            let error = Secret::from_command("test", command).expect_err("refused").to_string();
            assert!(error.contains(says), "{command}: {error}");
        }
    }
}
