//! A server's wall clock in a test's hand.
//!
//! `clockshim.c` is compiled into the server's directory and preloaded. It reads a page of a file
//! that this module writes; see there for its layout.

use crate::Failure;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const SOURCE: &str = include_str!("clockshim.c");
const PAGE: u64 = 4096;
const BILLION: f64 = 1e9;
/// How long a look at a server's clock may take.
const LOOK: Duration = Duration::from_millis(50);

/// Steps a server's wall clock and changes its rate, while the server runs or between two runs.
///
/// Expiry in Redis follows the wall clock. Monotonic clocks are left alone. A change is there at
/// once, but Valkey 9.1 looks at the wall clock only every few milliseconds: wait for
/// [`RedisServer::await_clock`](crate::RedisServer::await_clock) before relying on it.
#[derive(Debug)]
pub struct ServerClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
    setting: Mutex<Setting>,
}

/// The page: `now = real + offset + (real − anchor) × rate`.
#[derive(Debug, Default, Clone, Copy)]
struct Setting {
    version: i64,
    offset: i64,
    /// Extra nanoseconds a second.
    rate: i64,
    anchor: i64,
}

impl Setting {
    fn offset_at(&self, real: i64) -> i64 {
        let gained = i128::from(real - self.anchor) * i128::from(self.rate) / 1_000_000_000;
        self.offset.saturating_add(i64::try_from(gained).unwrap_or(0))
    }
}

impl ServerClock {
    /// Compiles the shim into `directory`, with a clock that is right.
    pub(crate) fn build(directory: &Path) -> Result<Self, Failure> {
        let write = |name: &str, text: &[u8]| {
            let path = directory.join(name);
            let wrote = std::fs::write(&path, text).map(|()| path);
            wrote.map_err(|why| Failure::because(format!("cannot write {name}"), why))
        };
        let source = write("clockshim.c", SOURCE.as_bytes())?;
        let library = directory.join("clockshim.so");
        compile(&source, &library)?;
        let path = write("clock", &[])?;
        let open = File::options().write(true).open(&path);
        let file = open.and_then(|file| file.set_len(PAGE).map(|()| file));
        let file = file.map_err(|why| Failure::because("cannot write the clock's file", why))?;
        Ok(Self { library, path, file, setting: Mutex::default() })
    }

    /// The environment in which the server must run.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCKSHIM_FILE", &self.path)]
    }

    /// Sets the clock forward at once.
    pub fn step_forward(&self, by: Duration) {
        self.change(|setting, _| setting.offset = setting.offset.saturating_add(nanoseconds(by)));
    }

    /// Sets the clock back at once.
    pub fn step_back(&self, by: Duration) {
        self.change(|setting, _| setting.offset = setting.offset.saturating_sub(nanoseconds(by)));
    }

    /// Lets the clock run `rate` times as fast as ours from now on; 1 is right. It never jumps.
    ///
    /// # Panics
    /// The rate is negative, or beyond 1000.
    pub fn set_rate(&self, rate: f64) {
        assert!((0.0..=1000.0).contains(&rate), "a clock cannot run at {rate}");
        // Exact enough: at most 10¹², and the fraction is less than a nanosecond a second.
        #[allow(clippy::cast_possible_truncation)]
        let extra = ((rate - 1.0) * BILLION).round() as i64;
        self.change(|setting, real| {
            setting.offset = setting.offset_at(real);
            setting.anchor = real;
            setting.rate = extra;
        });
    }

    /// What the clock shows now, and by how much a look at it may differ: a change is seen with a
    /// delay, and a fast clock moves on meanwhile.
    pub(crate) fn now(&self) -> (i64, i64) {
        let setting = *self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let real = real_now();
        let tolerance = nanoseconds(LOOK).saturating_add(setting.rate.saturating_abs() / 20);
        (real.saturating_add(setting.offset_at(real)), tolerance)
    }

    /// Writes the slot that is not in use, then switches to it.
    fn change(&self, act: impl FnOnce(&mut Setting, i64)) {
        let mut setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut setting, real_now());
        setting.version += 1;
        let slot = [setting.offset, setting.rate, setting.anchor].map(i64::to_ne_bytes).concat();
        let place = if setting.version % 2 == 0 { 8 } else { 32 };
        let wrote = self
            .file
            .write_all_at(&slot, place)
            .and_then(|()| self.file.write_all_at(&setting.version.to_ne_bytes(), 0));
        wrote.unwrap_or_else(|why| panic!("the server's clock cannot be set: {why}"));
    }
}

fn compile(source: &Path, library: &Path) -> Result<(), Failure> {
    let mut command = Command::new("cc");
    command.args(["-O2", "-fPIC", "-shared", "-o"]).arg(library).arg(source);
    let says = "`cc` (Debian package gcc) does not compile the clock shim";
    let done = command.output().map_err(|why| Failure::because(says, why))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Failure::because(says, String::from_utf8_lossy(&done.stderr)))
}

fn real_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    nanoseconds(since.unwrap_or_default())
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
