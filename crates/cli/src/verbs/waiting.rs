//! What `run` and `acquire` report while they wait: the holder, since when, the position.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use holdline::Observer;
use holdline::health::QuorumHealth;
use holdline::observer::Subject;
use holdline_core::snapshot::coarse;
use holdline_core::{HolderSummary, LockError, LockName};
use tokio::time::{Instant, MissedTickBehavior};

use crate::console::Console;
use crate::exit;
use crate::open_store::OpenStore;

/// How often the status line is redrawn.
const REDRAW: Duration = Duration::from_secs(1);

/// The state of the wait. The client reports it, the console shows it.
#[derive(Debug, Default)]
pub(crate) struct WaitStatus {
    state: Mutex<Option<WaitState>>,
    quorum: Mutex<Option<QuorumHealth>>,
}

#[derive(Clone, Debug)]
struct WaitState {
    at: Instant,
    position: Option<usize>,
    holder: Option<HolderSummary>,
    /// Why too few nodes vote, and what to do about it.
    trouble: Option<String>,
}

impl Observer for WaitStatus {
    fn queued(&self, _: Subject<'_>, position: Option<usize>, holder: Option<&HolderSummary>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.take().and_then(|state| state.holder);
        let holder = holder.cloned().or(before);
        *state = Some(WaitState { at: Instant::now(), position, holder, trouble: None });
    }

    fn quorum_health(&self, health: &QuorumHealth) {
        *self.quorum.lock().unwrap_or_else(PoisonError::into_inner) = Some(health.clone());
    }

    fn without_store(&self, _: Subject<'_>, error: &LockError) {
        let mut trouble = error.kind().to_string();
        if let Some(fix) = exit::fix(error.kind()) {
            trouble += &format!(": {fix}");
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        let trouble = Some(trouble);
        *state = Some(WaitState { at, position: None, holder: None, trouble });
    }
}

impl WaitStatus {
    /// Returns the holder of the last report.
    pub(crate) fn last_holder(&self) -> Option<HolderSummary> {
        self.state().and_then(|state| state.holder)
    }

    /// Returns the last state of the nodes, if the engine is a quorum.
    pub(crate) fn quorum(&self) -> Option<QuorumHealth> {
        self.quorum.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the state of a wait that is over.
    pub(crate) fn forget(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn state(&self) -> Option<WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn line(&self, name: &LockName, store: &OpenStore) -> Option<String> {
        let WaitState { at, position, holder, trouble } = self.state()?;
        let mut line = format!("waiting for {name}");
        if let Some(trouble) = trouble {
            line += &format!(": {trouble}");
        }
        if let Some(holder) = holder {
            let mut holder = store.resolve_holder(name, holder).await;
            holder.summary.held_for = holder.summary.held_for.map(|held| held + at.elapsed());
            line += &format!(", held by {holder}");
        }
        if let Some(position) = position {
            line += &format!(" (position {} in the queue)", position + 1);
        }
        Some(line)
    }
}

/// Waits for `attempt` and meanwhile reports the wait. On a terminal one line is redrawn each
/// second. Otherwise lines are printed after 0, 10 and 30 s and then each minute.
pub(crate) async fn report<T>(
    attempt: impl Future<Output = T>,
    waiting: &WaitStatus,
    name: &LockName,
    store: &OpenStore,
    console: &Console,
) -> T {
    // Both run concurrently: an inspection of the holder may need the attempt to go on.
    tokio::select! {
        biased;
        outcome = attempt => outcome,
        never = report_for_ever(waiting, name, store, console) => match never {},
    }
}

/// Reports the wait until it is dropped.
async fn report_for_ever(
    waiting: &WaitStatus,
    name: &LockName,
    store: &OpenStore,
    console: &Console,
) -> Infallible {
    let live = console.has_status_line();
    let started = Instant::now();
    let mut ticks = tokio::time::interval(REDRAW / 5);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut printed = 0;
    let mut status_line = StatusLine { console, drawn: None };
    loop {
        ticks.tick().await;
        let waited = started.elapsed();
        if !(if live { status_line.is_due() } else { waited >= line_due_at(printed) }) {
            continue;
        }
        let Some(line) = waiting.line(name, store).await else { continue };
        if live {
            status_line.draw(&format!("holdline: {line}, {} so far", coarse(waited)));
            continue;
        }
        console.info(&line);
        while waited >= line_due_at(printed) {
            printed += 1;
        }
    }
}

/// A line that is redrawn each second, and removed when the wait ends.
struct StatusLine<'a> {
    console: &'a Console,
    drawn: Option<Instant>,
}

impl StatusLine<'_> {
    fn is_due(&self) -> bool {
        self.drawn.is_none_or(|at| at.elapsed() >= REDRAW)
    }

    fn draw(&mut self, text: &str) {
        self.console.status_line(text);
        self.drawn = Some(Instant::now());
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.console.status_line("");
        }
    }
}

/// Returns after how long a wait the line of this number is due.
fn line_due_at(number: u32) -> Duration {
    match number {
        0 => Duration::ZERO,
        1 => Duration::from_secs(10),
        2 => Duration::from_secs(30),
        later => Duration::from_secs(60).saturating_mul(later - 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rarer_with_time() {
        let seconds: Vec<u64> = (0..6).map(|number| line_due_at(number).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 30, 60, 120, 180]);
    }
}
