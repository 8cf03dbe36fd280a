//! A run from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use holdline::Client;
use holdline_core::{Capabilities, ErrorKind, LockError, LockName};
use tokio::time::Instant;

use crate::crew::Crew;
use crate::endpoints::Endpoints;
use crate::plan::{MORE_PAUSES, READY};
use crate::relay::Relay;
use crate::report::Report;
use crate::schedule::Schedule;
use crate::stage::{At, Stage, TortureState};
use crate::strike::Striker;
use crate::verdict::{self, Ending};
use crate::wire::Assignment;
use crate::{Fault, Nemesis, Plan, Plant};

/// How many names workers contend for.
const NAMES: usize = 3;
/// How long it takes to look again whether something is left.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a plan, and judges what was seen.
///
/// It must be polled on one thread that lives as long as the run: workers die with the thread
/// that started them.
///
/// # Errors
/// - `Invalid`: the plan is wrong, or names a fault that cannot be done here.
/// - `Unsupported`: the engine gives no fencing tokens.
/// - What opening the store may end with. Nothing was started then.
///
/// What goes wrong later is in the report.
///
/// # Cancel safety
/// Dropping the future kills the workers; what they held ends with its lease.
pub async fn run(plan: &Plan, nemesis: Arc<dyn Nemesis>) -> Result<Report, LockError> {
    let endpoints = checked(plan, nemesis.as_ref())?;
    let client = Client::connect(&plan.url).await?;
    let capabilities = client.capabilities().clone();
    if !capabilities.fencing {
        return Err(LockError::unsupported(capabilities.engine, "fencing"));
    }
    let stage = stage(plan, &client).map_err(|error| broken(&capabilities, &error))?;
    let started = start(plan, nemesis, &stage, endpoints, &capabilities).await;
    let (striker, mut crew) = started.map_err(|error| broken(&capabilities, &error))?;
    if let Err(why) = torment(plan, &striker, &mut crew).await {
        stage.failed(why);
    }
    let stuck = crew.end(plan.ending(&capabilities)).await;
    let orphans = orphans(&client, &stage, plan.left_for(&capabilities)).await;
    let nodes = striker.nodes;
    drop(striker);
    client.shutdown(plan.slack).await;
    let lease = plan.lease_of(&capabilities);
    let ending = Ending { stuck, orphans, nodes, lease, engine: capabilities.engine };
    Ok(verdict::judge(plan, stage.take(), &stage.names, &ending))
}

/// Checks the plan; returns the servers if there are to be proxies.
fn checked(plan: &Plan, nemesis: &dyn Nemesis) -> Result<Option<Endpoints>, LockError> {
    let wrong = |field, message: String| Err(LockError::invalid("torture", field, message));
    if !(2..=64).contains(&plan.workers) {
        return wrong("workers", format!("must be from 2 to 64, not {}", plan.workers));
    }
    let endpoints = Endpoints::of(&plan.url);
    let able = nemesis.faults();
    for fault in &plan.faults {
        if fault.needs_network() && endpoints.is_none() {
            let why = "no proxy can stand before this store: it has no server, is behind a unix \
                       socket, or shows a certificate";
            return wrong("nemesis", format!("'{fault}' cannot be done: {why}"));
        }
        if fault.needs_servers() && !able.contains(fault) {
            return wrong(
                "nemesis",
                format!("'{fault}' needs power over the servers of this store"),
            );
        }
    }
    Ok(endpoints)
}

fn broken(capabilities: &Capabilities, error: &std::io::Error) -> LockError {
    let message = format!("the run could not be set up: {error}");
    let kind = ErrorKind::Refused { message };
    LockError::new(capabilities.engine, kind, holdline_core::Certainty::NotApplied)
}

fn stage(plan: &Plan, client: &Client) -> std::io::Result<Arc<Stage>> {
    // Nobody else's names, and none of an earlier run.
    let run = client.leases().draw_id().short();
    let names: Result<Vec<LockName>, _> =
        (0..NAMES).map(|name| LockName::new(format!("torture/{run}/{name}"))).collect();
    let names = names.map_err(std::io::Error::other)?;
    let accepts_all = plan.plant == Some(Plant::AcceptStale);
    Ok(Arc::new(Stage::new(names, plan.workers, accepts_all)?))
}

/// Starts proxies and workers, and waits until all workers are connected.
async fn start(
    plan: &Plan,
    nemesis: Arc<dyn Nemesis>,
    stage: &Arc<Stage>,
    endpoints: Option<Endpoints>,
    capabilities: &Capabilities,
) -> std::io::Result<(Striker, Crew)> {
    let proxies = plan.faults.iter().any(|fault| fault.needs_network());
    let nodes = endpoints.as_ref().map_or(1, |endpoints| endpoints.servers().len());
    let mut relays = Vec::new();
    let mut assignments = Vec::new();
    for _ in 0..plan.workers {
        let mut url = plan.url.clone();
        if let (true, Some(endpoints)) = (proxies, &endpoints) {
            let mut of_worker = Vec::new();
            for server in endpoints.servers() {
                of_worker.push(Relay::start(server.clone()).await?);
            }
            let slots: Vec<_> = of_worker.iter().map(Relay::endpoint).collect();
            url = endpoints.with_servers(&slots);
            relays.push(of_worker);
        }
        assignments.push(Assignment {
            url,
            names: stage.names.clone(),
            lease: plan.lease_of(capabilities),
            wait: plan.wait(capabilities),
            slack: plan.slack,
            first: 0,
            seed: plan.seed,
            plant: plan.plant,
        });
    }
    let crew = Crew::start(stage, &plan.worker, assignments)?;
    let ready = |state: &TortureState| {
        let all = state.slots.iter().all(|slot| slot.at != At::Away);
        (all || !state.failures.is_empty()).then_some(())
    };
    if stage.until(READY + READY, ready).await.is_none() {
        stage.failed(format!("not all workers were connected within {:?}", READY + READY));
    }
    let striker = Striker {
        stage: stage.clone(),
        nemesis,
        relays,
        nodes,
        weak_from: usize::try_from(plan.seed % nodes as u64).unwrap_or(0),
        lease: plan.lease_of(capabilities),
        freed_within: plan.freed_within(capabilities),
    };
    Ok((striker, crew))
}

/// Lets the faults of the plan come until its time is over, or something has gone wrong.
async fn torment(plan: &Plan, striker: &Striker, crew: &mut Crew) -> Result<(), String> {
    let stage = &striker.stage;
    let end = Instant::now() + plan.lasting;
    let failed = || !stage.lock().failures.is_empty();
    let mut schedule = Schedule::new(plan.seed, &plan.faults);
    while Instant::now() < end && !failed() {
        match schedule.next() {
            Some(step) => striker.step(&step, crew).await?,
            None => tokio::time::sleep_until(end).await,
        }
    }
    // The shortest runs may not have hurt the control yet: a signal can come an instant late.
    let holders = plan.faults.contains(&Fault::PauseHolder);
    let pauses = Schedule::new(plan.seed, &[Fault::PauseHolder]);
    for (step, _) in pauses.zip(0..if holders { MORE_PAUSES } else { 0 }) {
        let bitten = |state: &TortureState| {
            state.registers.iter().any(|it| !it.unfenced().lost().is_empty())
        };
        if failed() || bitten(&stage.lock()) {
            break;
        }
        striker.step(&step, crew).await?;
    }
    Ok(())
}

/// Waits until there are no holders and waiters; returns what is left.
async fn orphans(client: &Client, stage: &Stage, limit: Duration) -> Vec<String> {
    let end = Instant::now() + limit;
    let mut left = Vec::new();
    for name in &stage.names {
        loop {
            let shown = tokio::time::timeout(limit, client.admin().inspect(name)).await;
            let what = match &shown {
                Ok(Ok(it)) if (it.holder_count, it.queue_length) == (0, 0) => break,
                Ok(Ok(it)) => {
                    format!("{} holders and {} waiters", it.holder_count, it.queue_length)
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "an unknown number".to_owned(),
            };
            if Instant::now() >= end {
                left.push(format!("{name}: {what} are left {limit:?} after the last worker"));
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    left
}
