//! Other processes of a test: this program again, in a role that a variable names.
//!
//! A player reads one command a line and answers each with one line that begins with `@`:
//!
//! | command | answer |
//! |---|---|
//! | `acquire NAME NUMBER HOLD` | `granted TOKEN`, `queued POSITION`, `busy` or the error |
//! | `hint NAME NUMBER` | `hint` once one came |
//! | `release NAME NUMBER` | the reply |
//! | `hand-down COMMAND…` | starts a command that inherits the last live grant; its pid |
//! | `hammer NAME` | each token that it got, for ever |

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use holdline_core::{AcquireReply, Anchor, Hold, LockName};
use holdline_local::{LocalEngine, LocalOptions};

use crate::support::{LEASE, Verbs, ask, hint, id};

const ROLE: &str = "HOLDLINE_LOCAL_TEST_ROLE";
const DIRECTORY: &str = "HOLDLINE_LOCAL_TEST_DIRECTORY";

/// Another process. It is killed when it is dropped.
pub(crate) struct Player {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Player {
    /// Starts a player on a directory.
    pub(crate) fn start(role: &str, directory: &Path) -> Player {
        let mut command = Player::command(role);
        command.env(DIRECTORY, directory);
        Player::spawn(command)
    }

    /// The command that starts a player, to be changed by the test.
    pub(crate) fn command(role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(Player::ARGUMENTS).env(ROLE, role);
        command
    }

    pub(crate) const ARGUMENTS: [&str; 3] = ["--exact", "role::play", "--nocapture"];

    /// A player behind another command, such as a shell that prepares something.
    pub(crate) fn behind(mut command: Command, role: &str, directory: &Path) -> Player {
        command.arg(std::env::current_exe().expect("this program")).args(Player::ARGUMENTS);
        command.env(ROLE, role).env(DIRECTORY, directory);
        Player::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Player {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Player { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says something and returns the answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.say(command);
        self.answer()
    }

    pub(crate) fn say(&mut self, command: &str) {
        let input = self.input.as_mut().expect("not finished");
        writeln!(input, "{command}").expect("the player lives");
    }

    /// Returns the next answer.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("readable");
            assert!(read > 0, "the player ended");
            if let Some(answer) = line.strip_prefix('@') {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Ends the player as the kernel ends it: at once, in the middle of anything.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Closes the player's input and waits for its own end.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.input = None;
        let lines = std::io::read_to_string(&mut self.output).expect("readable");
        self.child.wait().expect("ended");
        lines.lines().filter_map(|line| line.strip_prefix('@')).map(str::to_owned).collect()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to the test.
fn answer(text: impl std::fmt::Display) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "@{text}").and_then(|()| output.flush()).expect("the test listens");
}

/// Not a test: what a started process does. By itself it has no role and does nothing.
#[test]
fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let options = match std::env::var_os(DIRECTORY) {
        Some(directory) => LocalOptions::default().with_dir(directory),
        None => LocalOptions::default(),
    };
    match role.as_str() {
        "player" => match LocalEngine::open(&options) {
            Ok(engine) => obey(&engine),
            Err(error) => answer(error),
        },
        "directory" => answer(options.directory().expect("a directory").display()),
        "sitter" => sit(&options),
        "filler" => fill(&options),
        other => panic!("no such role: {other}"),
    }
}

fn obey(engine: &LocalEngine) {
    answer("ready");
    let mut anchor = None;
    for line in std::io::stdin().lines() {
        let line = line.expect("readable");
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["acquire", name, number, hold] => {
                acquire(engine, name, number.parse().expect("a number"), hold, &mut anchor);
            }
            ["hint", name, number] => {
                let number = number.parse().expect("a number");
                let name = LockName::new(name).expect("a good name");
                let mut hints = holdline_core::Engine::watch(engine, &name, id(number));
                hint(&mut hints);
                answer("hint");
            }
            ["release", name, number] => {
                let reply = engine.end(name, number.parse().expect("a number"));
                answer(format_args!("{reply:?}"));
            }
            ["hand-down", program, arguments @ ..] => {
                let kept = anchor.as_ref().expect("a live grant");
                hand_down(kept, program, arguments);
            }
            ["hammer", name] => hammer(engine, name),
            other => panic!("no such command: {other:?}"),
        }
    }
}

fn acquire(engine: &LocalEngine, name: &str, number: u64, hold: &str, anchor: &mut Option<Anchor>) {
    let mut request = ask(name, number);
    request.hold = match hold {
        "live" => Hold::Live,
        "detached" => Hold::Detached(Duration::from_secs(30)),
        _ => LEASE,
    };
    match engine.acquire(&request) {
        Ok(AcquireReply::Granted { token, anchor: given, .. }) => {
            *anchor = given;
            answer(format_args!("granted {token}"));
        }
        Ok(AcquireReply::Queued { position, .. }) => {
            answer(format_args!("queued {}", position.expect("a position")));
        }
        Ok(AcquireReply::Busy { .. }) => answer("busy"),
        Ok(AcquireReply::Unknown) => answer("unknown"),
        Err(error) => answer(error),
    }
}

/// Starts a command that inherits the descriptor of a live grant, and nothing else of ours.
fn hand_down(anchor: &Anchor, program: &str, arguments: &[&str]) {
    let flags = rustix::io::FdFlags::empty();
    rustix::io::fcntl_setfd(anchor.descriptor(), flags).expect("inheritable");
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a process");
    answer(child.id());
    std::thread::spawn(move || child.wait());
}

fn hammer(engine: &LocalEngine, name: &str) {
    for number in 0_u64.. {
        let mut request = ask(name, u64::from(std::process::id()));
        request.lease_id = id(number << 32 | u64::from(std::process::id()));
        request.queue = false;
        if let Ok(AcquireReply::Granted { token, .. }) = engine.acquire(&request) {
            answer(token);
            engine.end(name, number << 32 | u64::from(std::process::id()));
        }
    }
}

/// Stops inside: takes the lock that is around every transaction, and stops.
fn sit(options: &LocalOptions) {
    let directory = options.directory().expect("a directory");
    let inside = std::fs::File::open(directory).expect("opened");
    inside.lock().expect("locked");
    answer("inside");
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("stopped");
    // The signal may reach another thread first; this one must not leave meanwhile.
    loop {
        std::thread::park();
    }
}

/// Fills the file system under a working engine, says what the engine says, and empties it.
fn fill(options: &LocalOptions) {
    let directory = options.directory().expect("a directory");
    let engine = LocalEngine::open(options).expect("opened");
    engine.granted(&ask("before", 1));
    let filler = directory.join("filler");
    let mut file = std::fs::File::create(&filler).expect("made");
    let full = (0..1_000_000).find_map(|_| file.write_all(&[7; 512]).err()).expect("full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let error = (2..10_000).find_map(|n| engine.acquire(&ask(&format!("n{n}"), n)).err());
    let error = error.expect("refused");
    answer(format_args!("{:?} {error}", error.certainty()));
    let fresh = options.clone().with_dir(directory.join("fresh"));
    answer(LocalEngine::open(&fresh).expect_err("no room"));
    drop(file);
    std::fs::remove_file(filler).expect("removed");
    assert_eq!(engine.look("before").holder_count, 1);
    engine.end("before", 1);
    let (token, _) = engine.granted(&ask("after", 20_000));
    answer(format_args!("granted {token}"));
}
