//! The local engine, in one directory: on a clock that is driven by hand, on the machine's, and
//! with processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdline_conformance::clock::{MachineClock, ManualClock};
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_local::{LocalEngine, LocalOptions};
use rusqlite::{Connection, OptionalExtension, params};

const FOREIGN: &[u8] = b"not ours";

struct Local {
    directory: PathBuf,
    options: LocalOptions,
    time: Time,
    scale: Scale,
}

impl Local {
    fn new(time: Time, scale: Scale, clock: Option<ManualClock>) -> Local {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdline-local-conformance-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        // A queue short enough that the suite can fill it.
        let options = LocalOptions::default().with_dir(&directory).with_max_waiters(100);
        let options = match clock {
            Some(clock) => options.with_clock(Arc::new(clock)),
            None => options,
        };
        Local { directory, options, time, scale }
    }

    fn manual() -> Local {
        let clock = ManualClock::new();
        // Each command is a transaction on a disk.
        let scale = Scale { histories: 500, ..Scale::manual() };
        Local::new(Time::Manual(Arc::new(clock.clone())), scale, Some(clock))
    }

    fn real() -> Local {
        Local::new(Time::Real(Arc::new(MachineClock)), Scale::quick(), None)
    }

    fn plant(&self, name: &LockName) -> Result<(), rusqlite::Error> {
        let database = Connection::open(self.directory.join("locks.db"))?;
        let sql = "INSERT INTO slot (key, value) VALUES (?1, ?2)";
        database.execute(sql, params![name.as_str().as_bytes(), FOREIGN]).map(|_| ())
    }

    fn planted(&self, name: &LockName) -> Result<Option<Vec<u8>>, rusqlite::Error> {
        let database = Connection::open(self.directory.join("locks.db"))?;
        let sql = "SELECT value FROM slot WHERE key = ?1";
        database.query_row(sql, [name.as_str().as_bytes()], |row| row.get(0)).optional()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Factory for Local {
    fn name(&self) -> String {
        let clock = if self.time.is_manual() { "hand-driven clock" } else { "real clock" };
        format!("local, {clock}")
    }

    fn command(&self) -> String {
        let test = if self.time.is_manual() { "by_hand" } else { "in_real_time" };
        format!("cargo test -p holdline-local --test conformance {test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let engine: Arc<dyn Engine> = Arc::new(LocalEngine::open(&self.options)?);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        self.time.clone()
    }

    fn scale(&self) -> Scale {
        self.scale
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => match self.plant(name) {
                    Ok(()) => Disturbed::Done,
                    Err(error) => Disturbed::Failed(error.to_string()),
                },
                Disturbance::CheckForeign(name) => match self.planted(name) {
                    Ok(Some(row)) if row == FOREIGN => Disturbed::Done,
                    other => Disturbed::Failed(format!("{other:?}")),
                },
                Disturbance::Restart => {
                    Disturbed::Impossible("the store is a file, and the machine stays up")
                }
            }
        })
    }
}

#[tokio::test]
async fn by_hand() {
    run(Local::manual()).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    run(Local::real()).await.conclude();
}
