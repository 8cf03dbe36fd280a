//! Runs on real stores, under every fault that they support; and runs with a planted bug, which
//! must be found.
//!
//! Each lasts a few seconds. The seed is fixed, so that the same faults come each time;
//! `HOLDLINE_TORTURE_SEED` and `HOLDLINE_TORTURE_SECONDS` try others, and longer.

mod owned;
mod planted;
mod stores;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdline_torture::{Fault, Nemesis, Plan, Program, Report, WithoutServers, run};

/// How long faults are injected, unless the environment sets another time.
const SECONDS: u64 = 6;

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A plan for a store, with the faults that its workers suffer by signals.
fn plan(url: String) -> Plan {
    let path = env!("CARGO_BIN_EXE_holdline-torture-worker").into();
    let seed = set("HOLDLINE_TORTURE_SEED").unwrap_or(1);
    let mut plan = Plan::new(url, Program { path, arguments: Vec::new() }, seed);
    plan.lasting = Duration::from_secs(set("HOLDLINE_TORTURE_SECONDS").unwrap_or(SECONDS));
    plan
}

/// Carries a plan out, and prints what came of it.
fn carry_out(plan: &Plan, nemesis: Arc<dyn Nemesis>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime.expect("a runtime").block_on(run(plan, nemesis)).expect("it began");
    println!("{report}");
    report
}

/// Carries out a plan without power over the servers.
fn alone(plan: &Plan) -> Report {
    carry_out(plan, Arc::new(WithoutServers))
}

/// The faults of the network, beside those of the plan.
fn with_network(mut plan: Plan) -> Plan {
    plan.faults.extend(Fault::ALL.into_iter().filter(|fault| fault.needs_network()));
    plan
}

/// A directory of this test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Scratch {
        let name = format!("holdline-torture-{what}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Scratch(path)
    }

    fn url(&self) -> String {
        format!("local://{}", self.0.display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
