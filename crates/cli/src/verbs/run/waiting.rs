//! What `run` and `acquire` say while they wait: for whom, since when, in which position.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use holdline::{Observer, Subject};
use holdline_core::snapshot::coarse;
use holdline_core::{HolderSummary, LockError, LockName};
use tokio::time::{Instant, MissedTickBehavior};

use crate::console::Console;
use crate::exit;
use crate::session::Session;

/// How often the live line is redrawn.
const REDRAW: Duration = Duration::from_secs(1);

/// What is known about the wait. The client tells it, the console shows it.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Option<Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    position: Option<usize>,
    holder: Option<HolderSummary>,
    /// Why too few nodes vote, and what to do about it.
    trouble: Option<String>,
}

impl Observer for Waiting {
    fn queued(&self, _: Subject<'_>, position: Option<usize>, holder: Option<&HolderSummary>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.take().and_then(|seen| seen.holder);
        let holder = holder.cloned().or(before);
        *seen = Some(Seen { at: Instant::now(), position, holder, trouble: None });
    }

    fn without_quorum(&self, _: Subject<'_>, error: &LockError) {
        let mut trouble = error.kind().to_string();
        if let Some(fix) = exit::fix(error.kind()) {
            trouble += &format!(": {fix}");
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, trouble) = (Instant::now(), Some(trouble));
        *seen = Some(Seen { at, position: None, holder: None, trouble });
    }
}

impl Waiting {
    /// Returns who was in the way when we last heard.
    pub(crate) fn in_the_way(&self) -> Option<HolderSummary> {
        self.seen().and_then(|seen| seen.holder)
    }

    /// Forgets what is known of a wait that is over.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn seen(&self) -> Option<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn line(&self, name: &LockName, session: &Session) -> Option<String> {
        let Seen { at, position, holder, trouble } = self.seen()?;
        let mut line = format!("waiting for {name}");
        if let Some(trouble) = trouble {
            line += &format!(": {trouble}");
        }
        if let Some(holder) = holder {
            let mut holder = session.look_at(name, holder).await;
            holder.summary.held_for = holder.summary.held_for.map(|held| held + at.elapsed());
            line += &format!(", held by {holder}");
        }
        if let Some(position) = position {
            line += &match position {
                0 => " (we are next)".to_owned(),
                ahead => format!(" ({ahead} before us)"),
            };
        }
        Some(line)
    }
}

/// Waits for `attempt` and meanwhile says what is known: on one line that is redrawn for a
/// person, otherwise on lines after 0, 10 and 30 s and then each minute.
pub(crate) async fn talk<T>(
    attempt: impl Future<Output = T>,
    waiting: &Waiting,
    name: &LockName,
    session: &Session,
    console: &Console,
) -> T {
    // Both go on together: the attempt may be what a look at the holder waits for.
    tokio::select! {
        biased;
        outcome = attempt => outcome,
        never = tell(waiting, name, session, console) => match never {},
    }
}

/// Says what is known, for ever.
async fn tell(
    waiting: &Waiting,
    name: &LockName,
    session: &Session,
    console: &Console,
) -> Infallible {
    let live = console.has_live_line();
    let started = Instant::now();
    let mut ticks = tokio::time::interval(REDRAW / 5);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = 0;
    let mut live_line = LiveLine { console, drawn: None };
    loop {
        ticks.tick().await;
        let waited = started.elapsed();
        if !(if live { live_line.is_due() } else { waited >= line_at(said) }) {
            continue;
        }
        let Some(line) = waiting.line(name, session).await else { continue };
        if live {
            live_line.draw(&format!("holdline: {line}, {} so far", coarse(waited)));
            continue;
        }
        console.info(&line);
        while waited >= line_at(said) {
            said += 1;
        }
    }
}

/// A line that is redrawn each second, and removed however the wait ends.
struct LiveLine<'a> {
    console: &'a Console,
    drawn: Option<Instant>,
}

impl LiveLine<'_> {
    fn is_due(&self) -> bool {
        self.drawn.is_none_or(|at| at.elapsed() >= REDRAW)
    }

    fn draw(&mut self, text: &str) {
        self.console.live_line(text);
        self.drawn = Some(Instant::now());
    }
}

impl Drop for LiveLine<'_> {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.console.live_line("");
        }
    }
}

/// Returns after which wait the line of this number is due.
fn line_at(number: u32) -> Duration {
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
    fn lines_come_less_and_less_often() {
        let seconds: Vec<u64> = (0..6).map(|number| line_at(number).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 30, 60, 120, 180]);
    }
}
