//! `run --report FILE`: what happened, as one JSON object. `docs/json.md` describes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdline::Guard;
use holdline::health::QuorumHealth;
use holdline_core::{Escaped, LockName, LostReason, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, Stat, fstat, stat};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::child;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::Holder;
use crate::view::{self, millis};

/// How long writing into a pipe may block.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// The file of a report, opened before the lock is requested.
#[derive(Debug)]
pub(super) struct ReportFile(Option<File>);

impl ReportFile {
    /// Opens and empties the file, so that an old report is never mistaken for this run's. If the
    /// file is our standard output or error, such as `/dev/stdout`, the report is appended.
    pub(super) fn open(path: Option<&Path>) -> Result<ReportFile, Failure> {
        let Some(path) = path else { return Ok(ReportFile(None)) };
        if path == Path::new("-") {
            let message = "--report -: names no file";
            return Err(Failure::usage(message).fix("write /dev/stdout, or ./- for such a file"));
        }
        let file = open_empty(path).map_err(|error| {
            let why = match (is_socket(path), Errno::from_io_error(&error)) {
                (true, _) => "it is a socket, and not our own output".into(),
                (false, Some(Errno::NXIO)) => "nobody reads this pipe".into(),
                (false, _) => error.to_string(),
            };
            let path = path.to_string_lossy();
            let message = format!("--report {}: cannot be written: {why}", Escaped(&path));
            Failure::usage(message).fix("nothing was started; name a file that can be written")
        })?;
        Ok(ReportFile(Some(file)))
    }

    /// Writes the report.
    pub(super) fn write(self, report: &Report) -> Result<(), Failure> {
        let Some(mut file) = self.0 else { return Ok(()) };
        let text = format!("{}\n", report.object());
        write_within_limit(&mut file, text.as_bytes())
            .map_err(|error| Failure::internal(format_args!("--report: not written: {error}")))
    }
}

fn open_empty(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Opening a pipe would wait for its reader.
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = match options.open(path) {
        // No socket can be opened by a path. The output of a service of systemd is one.
        Err(error) if is_socket(path) => return our_output(stat(path)?).unwrap_or(Err(error)),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    // With an offset of its own, later output would overwrite the report.
    if let Some(ours) = our_output(fstat(&file)?) {
        return ours;
    }
    file.set_len(0)?;
    Ok(file)
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

/// Returns our standard output or error, if it is this file.
fn our_output(file: Stat) -> Option<io::Result<File>> {
    let stdout = io::stdout();
    let stderr = io::stderr();
    let is_same = |ours: &BorrowedFd<'_>| {
        fstat(ours).is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (file.st_dev, file.st_ino))
    };
    let ours = [stdout.as_fd(), stderr.as_fd()].into_iter().find(is_same)?;
    Some(ours.try_clone_to_owned().map(File::from))
}

/// Writes everything, or as much as a pipe with a slow reader accepts within the limit.
fn write_within_limit(file: &mut File, mut text: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + WRITE_LIMIT;
    while !text.is_empty() {
        match file.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::Error::new(error.kind(), "its reader is too slow"));
                }
                let left = Timespec::try_from(left).map_err(io::Error::other)?;
                let mut room = [PollFd::new(file, PollFlags::OUT)];
                match poll(&mut room, Some(&left)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutcome {
    Finished,
    Busy,
    Interrupted,
    Lost,
    MaxHold,
    AlreadyRan,
    Failed,
    /// The leader of an election resigned.
    Resigned,
}

impl RunOutcome {
    /// Returns its word in the report and the metrics, which never changes.
    pub(super) fn word(self) -> &'static str {
        match self {
            RunOutcome::Finished => "finished",
            RunOutcome::Busy => "busy",
            RunOutcome::Interrupted => "interrupted",
            RunOutcome::Lost => "lost",
            RunOutcome::MaxHold => "max_hold",
            RunOutcome::AlreadyRan => "already_ran",
            RunOutcome::Failed => "failed",
            RunOutcome::Resigned => "resigned",
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) name: LockName,
    /// The engine's kind; unknown if the store was not reached.
    pub(super) engine: Option<&'static str>,
    mode: Mode,
    pub(super) outcome: RunOutcome,
    pub(super) exit: Exit,
    pub(super) waited: Duration,
    pub(super) held: Option<Duration>,
    grant: Option<(String, u64, bool)>,
    pub(super) in_the_way: Option<Holder>,
    pub(super) lost: Option<LostReason>,
    /// The last state of the nodes of a quorum.
    pub(super) quorum: Option<QuorumHealth>,
    pub(super) confirmed: Option<bool>,
    /// We received a signal to end, and passed it to the job; the report does not contain this.
    pub(super) asked_to_end: bool,
    /// Who ran the job in this slot, of `--once-per`.
    ran_by: Option<Value>,
    error: Option<Value>,
}

impl Report {
    /// Starts the report of an attempt.
    pub(super) fn new(name: &LockName, mode: Mode) -> Report {
        Report {
            name: name.clone(),
            engine: None,
            mode,
            outcome: RunOutcome::Failed,
            exit: Exit::Internal,
            waited: Duration::ZERO,
            held: None,
            grant: None,
            in_the_way: None,
            lost: None,
            quorum: None,
            confirmed: None,
            asked_to_end: false,
            ran_by: None,
            error: None,
        }
    }

    /// Records the grant.
    pub(super) fn granted(&mut self, guard: &Guard) {
        self.name = guard.name().clone();
        let short = guard.lease_id().short().to_string();
        self.grant = Some((short, guard.fencing_token().get(), guard.anchor().is_some()));
    }

    /// Returns the fencing token of the grant.
    pub(super) fn token(&self) -> Option<u64> {
        self.grant.as_ref().map(|(_, token, _)| *token)
    }

    /// Records a failure, before the caller's choice of an exit for a busy name.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.outcome = match failure.exit {
            Exit::Busy => RunOutcome::Busy,
            Exit::Lost => RunOutcome::Lost,
            _ => RunOutcome::Failed,
        };
        self.error = Some(json!({ "kind": failure.kind, "message": failure.message }));
    }

    /// Records a signal that ended the wait, and returns the exit for it.
    pub(super) fn interrupted(&mut self, signal: Signal) -> Exit {
        self.outcome = RunOutcome::Interrupted;
        Exit::Job(child::JobExit::before_start(signal))
    }

    /// Takes note that the job has run in this slot.
    pub(super) fn already_ran(&mut self, by: Value) {
        self.outcome = RunOutcome::AlreadyRan;
        self.ran_by = Some(by);
    }

    fn object(&self) -> Value {
        let ended_at = SystemTime::now();
        let ended_at_ms = ended_at.duration_since(UNIX_EPOCH).map(millis);
        json!({
            "name": self.name.as_str(),
            "engine": self.engine,
            "mode": self.mode.word(),
            "outcome": self.outcome.word(),
            "exit": self.exit.code(),
            "waited_ms": millis(self.waited),
            "held_ms": self.held.map(millis),
            "ended_at": view::moment(ended_at),
            "ended_at_ms": ended_at_ms.unwrap_or_default(),
            "lease_id": self.grant.as_ref().map(|(lease_id, _, _)| lease_id),
            "fencing_token": self.grant.as_ref().map(|(_, token, _)| token),
            "live": self.grant.as_ref().map(|(_, _, live)| live),
            "in_the_way": self.in_the_way.as_ref().map(view::in_the_way),
            "lost": self.lost.as_ref().map(lost_object),
            "release_confirmed": self.confirmed,
            "ran_by": self.ran_by,
            "error": self.error,
        })
    }
}

fn lost_object(reason: &LostReason) -> Value {
    json!({ "kind": reason.word(), "message": reason.to_string() })
}
