//! The memory engine, on a clock that is driven by hand and on the machine's.

use std::sync::Arc;

use holdline_conformance::clock::{MachineClock, ManualClock};
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError};
use holdline_memory::{MemoryEngine, MemoryOptions};

struct Memory {
    engine: MemoryEngine,
    time: Time,
    scale: Scale,
}

impl Memory {
    fn manual() -> Memory {
        let clock = ManualClock::new();
        Memory {
            engine: MemoryEngine::new("hand", Arc::new(clock.clone()), &options()),
            time: Time::Manual(Arc::new(clock)),
            scale: Scale::manual(),
        }
    }

    fn real() -> Memory {
        Memory {
            engine: MemoryEngine::new("real", Arc::new(MachineClock), &options()),
            time: Time::Real(Arc::new(MachineClock)),
            scale: Scale::quick(),
        }
    }
}

/// A queue short enough that the suite can fill it.
fn options() -> MemoryOptions {
    MemoryOptions::default().with_max_waiters(100)
}

impl Factory for Memory {
    fn name(&self) -> String {
        let clock = if self.time.is_manual() { "hand-driven clock" } else { "real clock" };
        format!("memory, {clock}")
    }

    fn command(&self) -> String {
        let test = if self.time.is_manual() { "by_hand" } else { "in_real_time" };
        format!("cargo test -p holdline-memory --test conformance {test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        let engine: Arc<dyn Engine> = Arc::new(self.engine.clone());
        Box::pin(async { Ok(engine) })
    }

    fn time(&self) -> Time {
        self.time.clone()
    }

    fn scale(&self) -> Scale {
        self.scale
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        let why = match disturbance {
            Disturbance::PlantForeign(_) | Disturbance::CheckForeign(_) => {
                "nobody else can reach this process's memory"
            }
            Disturbance::Restart => "its names die with the process",
        };
        Box::pin(async move { Disturbed::Impossible(why) })
    }
}

#[tokio::test]
async fn by_hand() {
    run(Memory::manual()).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    run(Memory::real()).await.conclude();
}
