//! The one entry point: runs everything that an engine must pass, and reports one row for each.
//!
//! Invariant: a failed case is run again only if there was a stall, and only a limited number of
//! times. A real fault fails each time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::case::{Case, Feature};
use crate::cases;
use crate::factory::{BoxFuture, Factory};
use crate::failure::Outcome;
use crate::history;
use crate::report::{Report, Row, Status};
use crate::stalls;
use crate::storm;

/// How long one case may take, by a real clock: a case that hangs is a failure that names itself.
const CASE_LIMIT: Duration = Duration::from_secs(120);
/// How often a case begins, each time with leases twice as long.
const TRIES: usize = 4;

/// Runs the fixed cases and the random histories against a store.
///
/// Every failure is reported, not only the first; [`Report::conclude`] prints the table and
/// panics when something was not as it must be.
pub async fn run(factory: impl Factory) -> Report {
    let factory: Arc<dyn Factory> = Arc::new(factory);
    let store = factory.name();
    let command = factory.command();
    let rows = match Bench::open(factory).await {
        Ok(bench) => {
            let (alone, beside) = cases::all().into_iter().partition(|case| case.alone);
            let mut rows = run_beside(&bench, beside).await;
            // A restart keeps servers of a quorum from voting for a while. What comes after it
            // would need an answer in time from each of the others.
            rows.extend(run_some(&bench, alone, 1).await);
            rows.sort_by_key(|row| (row.promise.is_none(), row.promise));
            rows
        }
        Err(failure) => {
            let not_run =
                |case: &Case| row(case, Status::NotRun("no client could be opened".into()));
            let mut rows: Vec<Row> = cases::all().iter().map(not_run).collect();
            let status = Status::Failed(failure.to_string());
            rows.push(Row { promise: None, name: "clients can be opened".into(), status });
            rows
        }
    };
    Report { store, command, rows }
}

/// Runs the one fixed case of this name; `None` when there is none.
pub async fn run_one(bench: &Bench, name: &str) -> Option<Row> {
    let case = cases::all().into_iter().find(|case| case.name == name)?;
    Some(run_case(bench.clone(), case).await)
}

fn row(case: &Case, status: Status) -> Row {
    Row { promise: Some(case.promise), name: case.name.into(), status }
}

/// Runs these cases, then the random histories, then the storm.
async fn run_beside(bench: &Bench, cases: Vec<Case>) -> Vec<Row> {
    let mut rows = run_some(bench, cases, bench.scale().at_once.max(1)).await;
    rows.push(history::run(bench).await);
    let storm = |bench: Bench| -> BoxFuture<'static, Row> {
        Box::pin(async move { storm::run(&bench).await })
    };
    rows.push(unspoilt(bench.clone(), storm).await);
    rows
}

/// Runs these cases, as many at once as the store allows.
async fn run_some(bench: &Bench, cases: Vec<Case>, at_once: usize) -> Vec<Row> {
    let mut waiting = cases.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut done: Vec<(usize, Row)> = Vec::new();
    loop {
        while running.len() < at_once
            && let Some((place, case)) = waiting.next()
        {
            let bench = bench.clone();
            running.spawn(async move { (place, run_case(bench, case).await) });
        }
        match running.join_next().await {
            Some(Ok(row)) => done.push(row),
            Some(Err(error)) => unreachable!("a case's panic is caught below: {error}"),
            None => break,
        }
    }
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, row)| row).collect()
}

async fn run_case(bench: Bench, case: Case) -> Row {
    let case = Arc::new(case);
    let once = move |bench: Bench| -> BoxFuture<'static, Row> {
        let case = case.clone();
        Box::pin(async move { run_once(bench, &case).await })
    };
    unspoilt(bench, once).await
}

async fn run_once(bench: Bench, case: &Case) -> Row {
    let missing: Vec<Feature> =
        case.needs.iter().copied().filter(|feature| !feature.is_in(bench.capabilities())).collect();
    for feature in &missing {
        if let Err(failure) = feature.assert_missing(&bench).await {
            return row(case, Status::Failed(failure.to_string()));
        }
    }
    if !missing.is_empty() {
        return row(case, Status::Unsupported(missing));
    }
    // A task of its own, so that a panic fails only this case.
    let task = tokio::spawn((case.run)(bench));
    let stop = task.abort_handle();
    let status = match tokio::time::timeout(CASE_LIMIT, task).await {
        Ok(Ok(Ok(Outcome::Ran))) => Status::Ran(String::new()),
        Ok(Ok(Ok(Outcome::Impossible(why)))) => Status::Impossible(why),
        Ok(Ok(Err(failure))) => Status::Failed(failure.to_string()),
        Ok(Err(panic)) => Status::Failed(format!("the case panicked: {panic}")),
        Err(_) => {
            stop.abort();
            Status::Failed(format!("did not end within {CASE_LIMIT:?}"))
        }
    };
    row(case, status)
}

/// Runs one row of the report, again if there was a stall while it failed.
async fn unspoilt(mut bench: Bench, run: impl Fn(Bench) -> BoxFuture<'static, Row>) -> Row {
    for _ in 1..TRIES {
        let before = stalls::seen();
        let row = run(bench.clone()).await;
        if !is_spoilt(&row.status, stalls::seen() > before, bench.time().is_manual()) {
            return row;
        }
        bench = bench.slower();
    }
    run(bench).await
}

fn is_spoilt(status: &Status, stood_still: bool, manual: bool) -> bool {
    matches!(status, Status::Failed(_)) && stood_still && !manual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_in_real_time_of_a_process_that_stood_still_is_run_again() {
        let failed = Status::Failed("late".into());
        assert!(is_spoilt(&failed, true, false));
        assert!(!is_spoilt(&failed, false, false));
        assert!(!is_spoilt(&failed, true, true));
        assert!(!is_spoilt(&Status::Ran(String::new()), true, false));
    }
}
