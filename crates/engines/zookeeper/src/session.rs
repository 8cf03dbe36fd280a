//! A session of ZooKeeper: what it is known to have left.
//!
//! - S1: what a session is known to have left counts from before the request left that a majority
//!   carried out for it: a write, or a check that goes the way of writes. What a single member
//!   answers proves nothing.
//! - S3: a member may tell the leader late that it has heard from us: by half a tick, and by the
//!   time between two signs of life, which is the time after which a connection is given up, and an
//!   eighth more, for nothing is sent while a sign is not answered. So as much of the time is not
//!   counted on, and a fifth at least. A process that stood still sent no sign of life: what it
//!   proves soon after counts from earlier by as much ([`crate::stops`]).

use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{Clock, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Trouble;
use crate::stops::Stops;
use crate::wire::Wire;

/// How many parts of its time a session lasts between two proofs at least.
const FRESH: u32 = 10;
/// Which part of a session's time is not counted on, at least.
const UNSURE: u32 = 5;
/// After which part of a session's time a silent connection is given up, and the shortest time
/// that is waited for a member that is busy: but no more than the client crate does by itself.
const SILENT: u32 = 8;
const BUSY: Duration = Duration::from_secs(1);
/// Which part of what is counted on a grant is worth having with.
const ENOUGH: u32 = 4;
/// Which part of the time after which a connection is given up lies between two looks whether this
/// process runs: as much as lies between two of the connection's own.
const LOOKS: u32 = 8;

/// A session of ZooKeeper.
pub(crate) struct Session {
    wire: Mutex<Option<Wire>>,
    time: Duration,
    /// How much of the time is counted on.
    sure: Duration,
    proven: Mutex<Moment>,
    stops: Mutex<Stops>,
    /// Since when no proof has let much be counted on.
    useless_since: Mutex<Option<Moment>>,
    keeping: tokio::sync::Mutex<()>,
    /// Told when it is over.
    pub(crate) ended: Notify,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("time", &self.time).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins with one that was made by a request that left at `opened`.
    pub(crate) fn begin(
        wire: Wire,
        opened: Moment,
        (time, half_tick): (Duration, Duration),
        stops: Stops,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Session> {
        let wire = Some(wire);
        let session = Arc::new(Session::of(wire, opened, (time, half_tick), stops));
        tokio::spawn(watch_stops(Arc::downgrade(&session), clock.clone()));
        session
    }

    fn of(
        wire: Option<Wire>,
        opened: Moment,
        (time, half_tick): (Duration, Duration),
        stops: Stops,
    ) -> Session {
        Session {
            wire: Mutex::new(wire),
            time,
            sure: sure(time, half_tick),
            proven: Mutex::new(opened),
            stops: Mutex::new(stops),
            useless_since: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// The way to the servers.
    ///
    /// # Errors
    /// [`Trouble::SessionGone`]: it is over.
    pub(crate) fn wire(&self) -> Result<Wire, Trouble> {
        let mut wire = self.wire.lock();
        if wire.as_ref().is_some_and(Wire::is_over) {
            *wire = None;
        }
        wire.clone().ok_or(Trouble::SessionGone)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.wire().is_err()
    }

    /// Returns how much is known to be left at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        match self.is_over() {
            true => Duration::ZERO,
            false => now.until(self.proven.lock().after(self.sure)),
        }
    }

    /// Notes that a majority carried out what left at `since`.
    pub(crate) fn prove(&self, since: Moment) {
        let counts_from = self.stops.lock().counts_from(since);
        let proven = {
            let mut proven = self.proven.lock();
            *proven = (*proven).max(counts_from);
            *proven
        };
        if since.until(proven.after(self.sure)) >= self.enough() {
            *self.useless_since.lock() = None;
        }
    }

    /// Ends it; the servers then delete its nodes.
    pub(crate) fn end(&self) {
        *self.wire.lock() = None;
        self.ended.notify_waiters();
    }

    /// Tells whether a proof would let most of its time be counted on: not soon after this process
    /// stood still for long.
    pub(crate) fn vouches(&self, now: Moment) -> bool {
        !self.is_over() && self.would_leave(now) > self.sure / 2
    }

    /// How much a proof would let be counted on.
    fn would_leave(&self, now: Moment) -> Duration {
        now.until(self.stops.lock().counts_from(now).after(self.sure))
    }

    /// Tells whether enough is left at `now` that a grant is worth having.
    pub(crate) fn is_sure(&self, now: Moment) -> bool {
        self.left(now) >= self.enough()
    }

    fn enough(&self) -> Duration {
        self.sure / ENOUGH
    }

    /// Tells whether it has vouched for nothing for so long that a new session is the shorter way:
    /// this process stood still for long, or is starved.
    pub(crate) fn is_useless(&self, now: Moment) -> bool {
        let since = *self.useless_since.lock();
        let late = self.stops.lock().late();
        since.is_some_and(|since| since.until(now) > late) && self.would_leave(now) < self.enough()
    }

    /// After how long to ask again whoever is first while too little is proven.
    pub(crate) fn next_look(&self) -> Duration {
        look(self.time)
    }

    /// Looks whether this process runs; returns when to look again.
    fn look(&self, now: Moment) -> Moment {
        self.stops.lock().look(now);
        if self.would_leave(now) < self.enough() {
            self.useless_since.lock().get_or_insert(now);
        }
        self.stops.lock().next_look()
    }

    /// Has a majority say that it stands, unless one did a moment ago.
    ///
    /// # Errors
    /// [`Trouble::SessionGone`]: it is over.
    pub(crate) async fn keep(&self, clock: &dyn Clock) -> Result<(), Trouble> {
        let _alone = self.keeping.lock().await;
        let before = clock.now();
        if self.left(before) >= self.sure.saturating_sub(self.time / FRESH) {
            return Ok(());
        }
        self.wire()?.beat().await.inspect_err(|trouble| {
            if matches!(trouble, Trouble::SessionGone) {
                self.end();
            }
        })?;
        self.prove(before);
        Ok(())
    }
}

/// After how long a connection on which nothing comes is given up.
pub(crate) fn silence(time: Duration) -> Duration {
    (time / SILENT).max(BUSY.min(time * 2 / 5))
}

/// How long after the other a look comes whether this process runs.
fn look(time: Duration) -> Duration {
    silence(time) / LOOKS
}

/// How late the leader may be told of a process that runs (S3).
fn late(time: Duration, half_tick: Duration) -> Duration {
    silence(time) + look(time) + half_tick
}

/// The stops of a session that is being opened.
pub(crate) fn stops(opened: Moment, (time, half_tick): (Duration, Duration)) -> Stops {
    Stops::new(opened, late(time, half_tick), look(time), time)
}

/// How much of a session's time is counted on (S3).
fn sure(time: Duration, half_tick: Duration) -> Duration {
    time.saturating_sub(late(time, half_tick).max(time / UNSURE))
}

/// Looks again and again whether this process runs, as long as anybody has the session: where the
/// connection's own signs of life are sent, so that what delays them delays this too.
async fn watch_stops(session: Weak<Session>, clock: Arc<dyn Clock>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let next = session.look(clock.now());
        drop(session);
        clock.sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::HandClock;
    use holdline_conformance::factory::HandDriven;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_not_counted_on_is_a_fifth_or_what_may_be_told_late() {
        let (millis, tick) = (Duration::from_millis, Duration::from_secs(2));
        for (time, silent, counted) in
            [(30_000, 3_750, 24_000), (8_000, 1_000, 5_875), (4_000, 1_000, 1_875)]
        {
            assert_eq!(silence(millis(time)), millis(silent));
            assert_eq!(sure(millis(time), tick / 2), millis(counted), "{time}");
        }
        assert_eq!(silence(millis(1_000)), millis(400));
        assert_eq!(sure(millis(1_000), millis(100)), millis(450));
        assert_eq!(sure(millis(1_000), tick / 2), Duration::ZERO);
    }

    #[test]
    fn stops_that_come_again_make_a_session_useless_until_a_proof_leaves_enough() {
        let clock = HandClock::new();
        let (opened, time, half_tick) = (clock.now(), 4 * SECOND, SECOND / 10);
        let stops = stops(opened, (time, half_tick));
        let session = Session::of(None, opened, (time, half_tick), stops);
        let run = |times: Duration| {
            let end = clock.now().after(times);
            while clock.now() < end {
                session.look(clock.now());
                clock.advance(look(time));
            }
            clock.now()
        };
        session.prove(run(10 * SECOND));
        clock.advance(SECOND * 5 / 2);
        assert!(!session.is_useless(run(SECOND)), "not for long enough");
        assert!(!session.is_useless(run(SECOND / 2)), "a proof would do now, and nobody asks");
        clock.advance(SECOND * 5 / 2);
        assert!(session.is_useless(run(SECOND / 2)), "for long, and no better again");
        let well = run(4 * SECOND);
        session.prove(well);
        clock.advance(SECOND * 5 / 2);
        assert!(!session.is_useless(run(SECOND / 2)), "a proof left enough meanwhile");
    }
}
