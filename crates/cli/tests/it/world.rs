//! A private store, a private home, and the built binary in it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long enough for any machine; reached only by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How often to poll for what sends no notification.
const LOOK: Duration = Duration::from_millis(15);

/// A directory with a store of its own. It goes with everything in it.
pub(crate) struct World {
    directory: PathBuf,
    parameters: &'static str,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_parameters("")
    }

    /// A world whose URL ends in these parameters.
    pub(crate) fn with_parameters(parameters: &'static str) -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("hl-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        World { directory, parameters }
    }

    /// The directory itself, which is also where commands run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The engine's URL.
    pub(crate) fn url(&self) -> String {
        format!("local://{}{}", self.path("store").display(), self.parameters)
    }

    /// `holdline` with these arguments and an environment that holds the store's URL only.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdline"));
        command.args(arguments).current_dir(&self.directory).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOLDLINE_URL", self.url()).env("USER", "tester");
        command
    }

    /// Runs `holdline` to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> CommandOutput {
        output(&mut self.command(arguments))
    }

    /// Runs a shell script in which `holdline` is found.
    pub(crate) fn shell(&self, script: &str) -> CommandOutput {
        self.shell_on(&self.url(), script)
    }

    /// The same with another engine.
    pub(crate) fn shell_on(&self, url: &str, script: &str) -> CommandOutput {
        let command = self.command::<&str>(&[]);
        let binary = Path::new(env!("CARGO_BIN_EXE_holdline"));
        let folder = binary.parent().expect("a folder").display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&self.directory).stdin(Stdio::null()).env_clear();
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env("PATH", path).env("HOLDLINE_URL", url);
        output(&mut shell)
    }

    /// Starts `holdline run` with these options around a job that says `up PID` and then waits
    /// for its input to end.
    pub(crate) fn hold(&self, options: &[&str]) -> Running {
        let job = ["--", "sh", "-c", "echo up $$; read line; exit 3"];
        let holder = self.start(&[&["run"], options, &job].concat());
        assert!(holder.line().starts_with("up "), "the job runs");
        holder
    }

    /// Starts `holdline`.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Running {
        self.start_command(&mut self.command(arguments))
    }

    /// Starts a command that [`World::command`] has made.
    pub(crate) fn start_command(&self, command: &mut Command) -> Running {
        Running::start(command)
    }

    /// How a name stands.
    pub(crate) fn who(&self, name: &str) -> Value {
        let output = self.run(&["--json", "who", name]);
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The fencing token of the only holder.
    pub(crate) fn token(&self, name: &str) -> String {
        self.who(name)["holders"][0]["fencing_token"].to_string()
    }

    /// Waits until this many are in the queue.
    pub(crate) fn queued(&self, name: &str, count: u64) {
        eventually("queued", || self.who(name)["queue_length"] == count);
    }

    /// Waits until the name is free.
    pub(crate) fn free(&self, name: &str) {
        eventually("free", || self.who(name)["held"] == false);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn output(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("the command starts");
    CommandOutput {
        code: code(output.status),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The code that a shell shows.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).expect("it ended")
}

/// Looks again and again until something is so.
pub(crate) fn eventually(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(LOOK); // event: another process, which notifies nobody here
    }
}

/// Returns whether a process is there and not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A running `holdline`. It is killed when this is dropped, its job with it.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    talk: mpsc::Receiver<String>,
    pub(crate) job: std::cell::Cell<u32>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        Running::start_with_stderr(command, Stdio::piped())
    }

    /// The same with another standard error than one that is read here.
    pub(crate) fn start_with_stderr(command: &mut Command, stderr: Stdio) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("it starts");
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let talk = child.stderr.take().map_or_else(|| mpsc::channel().1, lines_of);
        let stdin = child.stdin.take();
        Running { child, stdin, lines, talk, job: std::cell::Cell::new(0) }
    }

    /// The wrapper's own process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output; `up PID` also gives the job's process id.
    pub(crate) fn line(&self) -> String {
        let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
            let said: Vec<String> = self.talk.try_iter().collect();
            panic!("no line in time; it said {said:?}");
        };
        if let Some(pid) = line.strip_prefix("up ").and_then(|pid| pid.parse().ok()) {
            self.job.set(pid);
        }
        line
    }

    /// The next line of standard error.
    pub(crate) fn said(&self) -> String {
        self.next_said().expect("a line in time")
    }

    /// The next line of standard error, if one comes in time.
    pub(crate) fn next_said(&self) -> Option<String> {
        self.talk.recv_timeout(DEADLINE).ok()
    }

    /// Everything that is still said, until the end.
    pub(crate) fn rest(&self) -> String {
        let mut rest = String::new();
        while let Ok(line) = self.talk.recv_timeout(DEADLINE) {
            rest += &line;
            rest.push('\n');
        }
        rest
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Sends a line to standard input.
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    /// Ends the job's input, so that it ends with 3.
    pub(crate) fn let_go(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Waits until nobody is left who could write to standard output, so until all that was
    /// started has ended.
    pub(crate) fn expect_silence(&self) {
        let next = self.lines.recv_timeout(DEADLINE);
        assert_eq!(next, Err(mpsc::RecvTimeoutError::Disconnected));
    }

    /// Waits for the end; returns the code that a shell shows.
    pub(crate) fn code(&mut self) -> i32 {
        code(self.status())
    }

    /// Waits for the end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it never ends");
            std::thread::sleep(LOOK); // event: the end of the child, for which std can only look
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let job = self.job.get();
        if let Some(pid) = i32::try_from(job).ok().filter(|job| *job > 1).and_then(Pid::from_raw)
            && is_alive(job)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
