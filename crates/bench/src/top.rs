//! `holdline top` with 10,000 locks on one Redis: the part of a core that its process uses, with
//! its rounds, while each frame shows other rows. There is no floor: nothing else draws the same.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use holdline::{Client, Guard};
use holdline_services::{RedisConfig, RedisServer};

use crate::rounds::Failure;
use crate::run::{Scratch, binary};

const NAMES: usize = 10_000;
const FRAMES_A_SECOND: u32 = 10;
const TIME: Duration = Duration::from_secs(10);
/// How long the first round may take.
const START: Duration = Duration::from_secs(60);
/// The key for the next page, as terminals send it.
const NEXT_PAGE: &[u8] = b"\x1b[6~";

pub(crate) fn section() -> Result<(), Failure> {
    let server = RedisServer::start(RedisConfig::default());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let _guards = runtime.block_on(hold(&server.url(), NAMES))?;
    let directory = Scratch::new("top")?;
    let pid_file = directory.path().join("pid");
    let mut screen = Screen::start(&server.url(), &pid_file)?;
    let idle = screen.used(&[])?;
    let pages = screen.used(NEXT_PAGE)?;
    let sorts = screen.used(b"n")?;
    screen.keys(b"q")?;
    println!(
        "{:<44} at rest {idle:.2}  {FRAMES_A_SECOND} pages a second {pages:.2}  {FRAMES_A_SECOND} \
         sorts a second {sorts:.2}  (of a core; to reach: at most 1)",
        format!("holdline top, {NAMES} locks, 200 x 60"),
    );
    Ok(())
}

/// Holds so many names, `bench/00000` and so on. The guards renew their leases as long as they are
/// kept.
pub(crate) async fn hold(url: &str, names: usize) -> Result<Vec<Guard>, Failure> {
    let client = Client::connect(url).await?;
    let lock = |at: usize| {
        let client = client.clone();
        async move { client.mutex(format!("bench/{at:05}"))?.lock().await }
    };
    let guards = stream::iter(0..names).map(lock).buffer_unordered(64);
    Ok(guards.try_collect().await?)
}

/// The program in a pseudo-terminal of `script`.
struct Screen {
    script: Child,
    pid: u32,
}

impl Screen {
    fn start(url: &str, pid_file: &Path) -> Result<Screen, Failure> {
        let inner = format!(
            "stty rows 60 cols 200; echo $$ > {}; exec {} --url {url} top",
            pid_file.display(),
            binary()?.display()
        );
        let mut script = Command::new("script");
        script.args(["-q", "-f", "-c", &inner, "/dev/null"]).env("TERM", "xterm-256color");
        script.env("SHELL", "/bin/sh");
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = script.stdout.take().ok_or("no output")?;
        let (sender, counted) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut buffer, mut text) = ([0; 65_536], String::new());
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                // What was drawn first says how many names there are.
                if text.len() < 1 << 20 {
                    text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                    if text.contains(&NAMES.to_string()) && sender.send(()).is_err() {
                        text = "x".repeat(1 << 20);
                    }
                }
            }
        });
        counted.recv_timeout(START).map_err(|_| "the names are never shown")?;
        let pid = std::fs::read_to_string(pid_file)?.trim().parse()?;
        Ok(Screen { script, pid })
    }

    fn keys(&mut self, keys: &[u8]) -> Result<(), Failure> {
        let input = self.script.stdin.as_mut().ok_or("no input")?;
        input.write_all(keys)?;
        Ok(input.flush()?)
    }

    /// The part of a core that the program uses while these keys are pressed.
    fn used(&mut self, keys: &[u8]) -> Result<f64, Failure> {
        let (start, before) = (Instant::now(), self.processor_time()?);
        while start.elapsed() < TIME {
            self.keys(keys)?;
            std::thread::sleep(Duration::from_secs(1) / FRAMES_A_SECOND);
        }
        Ok((self.processor_time()? - before) / start.elapsed().as_secs_f64())
    }

    /// The seconds that the program has used, all its threads together.
    fn processor_time(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("an unknown format")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = fields.get(11).ok_or("no user time")?.parse::<f64>()?
            + fields.get(12).ok_or("no system time")?.parse::<f64>()?;
        Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended by its last key.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
