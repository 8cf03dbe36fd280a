//! A hidden verb that runs a command without a lock, for the tests of this folder. It is in debug
//! builds only, which tests are.
//!
//! `holdline __child-test [OPTION...] -- COMMAND...`
//!
//! | option | meaning |
//! |---|---|
//! | `--gate FIFO` | first waits, as for a lock, until somebody writes to it |
//! | `--lose FIFO` | when somebody writes to it: SIGTERM, after a second SIGKILL, and exit 79 |
//! | `--say` | tells the start and the end on standard error |
//! | `--death-signal`, `--freeze` | as [`Launch`] has them |
//! | `--inherit FILE` | opens it, and lets the command inherit the descriptor |
//! | `--set NAME=VALUE`, `--unset NAME` | the environment |

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::sleep;

use super::{Arrived, Event, Exit, HeldStops, Job, Launch, LaunchError, Signals};

pub(super) const VERB: &str = "__child-test";

const LOST: u8 = 79;
const GRACE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Options {
    gate: Option<OsString>,
    lose: Option<OsString>,
    say: bool,
    death_signal: bool,
    freeze: bool,
    inherit: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    command: Vec<OsString>,
}

enum Outcome {
    Ended(Exit),
    Lost,
}

/// Carries out the verb.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let ended = parse(arguments)
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))
        .and_then(|options| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_io().enable_time().build().map_err(failed)?;
            runtime.block_on(supervise(&options))
        });
    match ended {
        Ok(Outcome::Ended(exit)) => exit.leave(),
        Ok(Outcome::Lost) => ExitCode::from(LOST),
        Err(error) => {
            eprintln!("holdline: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(word) = arguments.next() {
        match word.to_str()? {
            "--gate" => options.gate = Some(arguments.next()?),
            "--lose" => options.lose = Some(arguments.next()?),
            "--say" => options.say = true,
            "--death-signal" => options.death_signal = true,
            "--freeze" => options.freeze = true,
            "--inherit" => options.inherit.push(arguments.next()?),
            "--set" => {
                let pair = arguments.next()?;
                let equals = pair.as_bytes().iter().position(|byte| *byte == b'=')?;
                let (name, value) = pair.as_bytes().split_at(equals);
                let value = OsStr::from_bytes(value.get(1..)?).to_owned();
                options.environment.push((OsStr::from_bytes(name).to_owned(), Some(value)));
            }
            "--unset" => options.environment.push((arguments.next()?, None)),
            "--" => options.command = arguments.by_ref().collect(),
            _ => return None,
        }
    }
    (!options.command.is_empty()).then_some(options)
}

async fn supervise(options: &Options) -> Result<Outcome, LaunchError> {
    let stops = HeldStops::here().map_err(failed)?;
    // An engine has threads too; none of them may be where a stop takes effect.
    std::thread::Builder::new().spawn(std::thread::park).map_err(failed)?;
    let mut signals = Signals::listen(stops).map_err(failed)?;
    if let Some(exit) = wait(options, &mut signals).await? {
        return Ok(Outcome::Ended(exit));
    }
    let files: Vec<File> =
        options.inherit.iter().map(File::open).collect::<Result<_, _>>().map_err(failed)?;
    let mut words = options.command.iter().cloned();
    let mut job = Launch::new(words.next().unwrap_or_default(), words.collect())
        .with_environment(options.environment.clone())
        .with_inherited(files.iter().map(File::as_fd).collect())
        .with_death_signal(options.death_signal)
        .with_freeze_on_stop(options.freeze)
        .spawn(&signals)?;
    if options.say {
        eprintln!("started {}", job.pid());
    }
    let lost = accompany(&mut job, &mut signals, options.lose.as_deref()).await.map_err(failed)?;
    let exit = job.finish().map_err(failed)?;
    if options.say {
        eprintln!("ended {}", exit.code());
    }
    Ok(if lost { Outcome::Lost } else { Outcome::Ended(exit) })
}

/// Stands for the wait for a lock.
async fn wait(options: &Options, signals: &mut Signals) -> Result<Option<Exit>, LaunchError> {
    let Some(gate) = &options.gate else { return Ok(None) };
    let opened = written_to(Some(gate.as_ref()));
    tokio::pin!(opened);
    loop {
        tokio::select! {
            done = &mut opened => return done.map(|()| None).map_err(failed),
            arrived = signals.next() => match arrived {
                Arrived::End(signal) => return Ok(Some(Exit::before_start(signal))),
                Arrived::Suspend => signals.suspend(),
            },
        }
    }
}

/// Returns at the command's end; tells whether the lease was lost before.
async fn accompany(job: &mut Job, signals: &mut Signals, lose: Option<&OsStr>) -> io::Result<bool> {
    let lost = written_to(lose.map(Path::new));
    tokio::pin!(lost);
    loop {
        tokio::select! {
            event = job.next(signals) => if follow(job, signals, event?) { return Ok(false) },
            written = &mut lost => break written?,
        }
    }
    job.terminate();
    let too_late = sleep(GRACE);
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            event = job.next(signals) => if follow(job, signals, event?) { break },
            () = &mut too_late => break,
        }
    }
    job.kill();
    Ok(true)
}

/// Tells whether the command has ended.
fn follow(job: &mut Job, signals: &mut Signals, event: Event) -> bool {
    if event == Event::Stopped {
        job.suspend(signals);
        job.resume();
    }
    event == Event::Ended
}

/// Completes when somebody has written to a FIFO; never, if there is none.
async fn written_to(fifo: Option<&Path>) -> io::Result<()> {
    match fifo {
        Some(fifo) => pipe::OpenOptions::new().open_receiver(fifo)?.readable().await,
        None => pending().await,
    }
}

fn failed(source: io::Error) -> LaunchError {
    LaunchError::Failed { source }
}
