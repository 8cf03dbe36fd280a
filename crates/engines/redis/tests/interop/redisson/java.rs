//! A Java process with Redisson, behind `interop/java/RedissonDriver.java`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_secs(90);

type Threads = Arc<Mutex<HashMap<String, UnboundedSender<String>>>>;

/// A running process; killed when dropped.
pub(crate) struct Java {
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    threads: Threads,
    pub(crate) version: String,
    /// The id of its Redisson client, with which the fields of its locks begin.
    pub(crate) client: String,
}

/// A thread of that process, which answers its requests in turn.
pub(crate) struct Thread {
    java: Arc<Java>,
    name: String,
    answers: UnboundedReceiver<String>,
}

/// Locks, whatever a failed test has left.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory of `cargo xtask interop prepare` for this major version.
fn place(major: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let ground = target.expect("cargo's own directory has a parent").join("interop");
    ground.join(format!("redisson-{major}"))
}

impl Java {
    /// Starts Redisson of this major version for these servers.
    ///
    /// # Panics
    /// The library is not installed.
    pub(crate) fn start(major: &str, arguments: &[String]) -> Result<Arc<Java>, String> {
        let place = place(major);
        let stamp = place.join("made-of.stamp");
        assert!(stamp.is_file(), "Redisson is not there: run `cargo xtask interop prepare`");
        let path = format!("{0}/classes:{0}/jars/*", place.display());
        let mut java = Command::new("java");
        java.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path]);
        // It says that it found no logger.
        java.arg("RedissonDriver").args(arguments).stderr(Stdio::null());
        let spawned = java.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("java (Debian package default-jre-headless)");
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for")
        };
        let (child, input) = (Mutex::new(child), Mutex::new(input));
        let (version, client, threads) = <(String, String, Threads)>::default();
        // From here on its drop ends the process.
        let mut java = Java { child, input, threads, version, client };
        java.begin(BufReader::new(output))?;
        Ok(Arc::new(java))
    }

    /// Reads the first line, and starts the thread that reads all others.
    fn begin(&mut self, mut output: BufReader<ChildStdout>) -> Result<(), String> {
        let mut ready = String::new();
        output.read_line(&mut ready).map_err(|why| why.to_string())?;
        let ["ready", version, client] = ready.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("Java began with {ready:?}"));
        };
        (self.version, self.client) = (version.to_owned(), client.to_owned());
        let threads = self.threads.clone();
        std::thread::spawn(move || dispatch(output, &threads));
        Ok(())
    }

    /// Names a thread, which starts with its first request.
    pub(crate) fn thread(self: &Arc<Java>, name: impl Into<String>) -> Thread {
        let name = name.into();
        let (sender, answers) = unbounded_channel();
        locked(&self.threads).insert(name.clone(), sender);
        Thread { java: self.clone(), name, answers }
    }

    /// Sends a signal to the process. It is not reaped before the drop, so the number is its own.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&locked(&self.child)), signal).expect("a child of ours");
    }
}

/// Hands each line to the thread that it is for.
fn dispatch(output: BufReader<ChildStdout>, threads: &Threads) {
    for line in output.lines().map_while(Result::ok) {
        if let Some((thread, answer)) = line.split_once(' ')
            && let Some(sender) = locked(threads).get(thread)
        {
            // Nobody waits for it any more.
            let _ = sender.send(answer.to_owned());
        }
    }
    locked(threads).clear();
}

impl Drop for Java {
    fn drop(&mut self) {
        // A process that has already ended must still be reaped.
        let mut child = locked(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Thread {
    /// Sends a request whose answer comes later.
    pub(crate) fn send(&self, request: &str) -> Result<(), String> {
        let mut input = locked(&self.java.input);
        let sent = writeln!(input, "{} {request}", self.name).and_then(|()| input.flush());
        sent.map_err(|error| format!("Java cannot be asked: {error}"))
    }

    /// Waits for the next line of this thread.
    pub(crate) async fn answer(&mut self) -> Result<String, String> {
        match tokio::time::timeout(LIMIT, self.answers.recv()).await {
            Ok(Some(answer)) if answer.starts_with("failed ") => Err(answer),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err("the Java process has ended".to_owned()),
            Err(_) => Err(format!("no answer of `{}` within {LIMIT:?}", self.name)),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, request: &str) -> Result<String, String> {
        self.send(request)?;
        self.answer().await
    }

    /// Sends a request, which must be answered so.
    pub(crate) async fn expect(&mut self, request: &str, wanted: &str) -> Result<(), String> {
        let answer = self.ask(request).await?;
        ensure!(answer == wanted, "Java answered `{request}` by `{answer}`, not `{wanted}`");
        Ok(())
    }

    /// Acquires at once, and returns the token or the id of the permit.
    pub(crate) async fn take(&mut self, of: &str, lease: Duration) -> Result<String, String> {
        let answer = self.ask(&format!("acquire {of} 0 {}", lease.as_millis())).await?;
        held(&answer)
    }

    /// Asks, and must be refused.
    pub(crate) async fn is_refused(&mut self, of: &str) -> Result<(), String> {
        self.expect(&format!("acquire {of} 0 30000"), "busy").await
    }

    /// Begins to wait, for ever.
    pub(crate) fn wait_for(&self, of: &str, lease: Duration) -> Result<(), String> {
        self.send(&format!("acquire {of} -1 {}", lease.as_millis()))
    }

    /// Waits until the wait is in the state from which only a message, or the time that the lock
    /// has left, wakes it. Redisson loses a message `1` that comes before.
    pub(crate) async fn parks(&self) -> Result<(), String> {
        let mut looks = self.java.thread(format!("{}/looks", self.name));
        let deadline = std::time::Instant::now() + LIMIT;
        while looks.ask(&format!("where {}", self.name)).await? != "parked" {
            ensure!(std::time::Instant::now() < deadline, "`{}` does not park", self.name);
        }
        Ok(())
    }

    /// Waits for the answer to [`Thread::wait_for`], and returns the token or the id of the permit.
    pub(crate) async fn gets(&mut self, limit: Duration) -> Result<String, String> {
        let answer = tokio::time::timeout(limit, self.answer()).await;
        held(&answer.map_err(|_| format!("Java still waits after {limit:?}"))??)
    }

    /// Fails if there is an answer already.
    pub(crate) fn is_still_waiting(&mut self) -> Result<(), String> {
        match self.answers.try_recv() {
            Ok(answer) => Err(format!("`{}` does not wait any more: {answer}", self.name)),
            Err(_) => Ok(()),
        }
    }

    pub(crate) async fn release(&mut self, of: &str) -> Result<(), String> {
        self.expect(&format!("release {of}"), "released").await
    }
}

fn held(answer: &str) -> Result<String, String> {
    let token = answer.strip_prefix("held ").map(str::to_owned);
    token.ok_or_else(|| format!("Java did not get it: `{answer}`"))
}
