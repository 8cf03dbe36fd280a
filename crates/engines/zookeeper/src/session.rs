//! A session of ZooKeeper: the time that it is known to have left.
//!
//! - S1: the time that a session is known to have left counts from before its last proof was sent.
//!   A proof is a request that a majority has committed: a write, or a transaction of checks. An
//!   answer of a single member proves nothing.
//! - S3: the leader may learn late of a heartbeat. Members report with a delay of half a tick. Two
//!   heartbeats may reach a member as far apart as the silence after which a connection is dropped,
//!   and an eighth more, which is as exactly as a pause is noticed. So this time is not counted on,
//!   and at least a fifth of the session. A paused process sends no heartbeat: a proof soon after a
//!   pause counts from earlier, by the length of the pause ([`crate::pauses`]).
//! - S6: a contender that waits needs no proof: it relies on nothing. The proof is requested when
//!   it is woken, before the grant, unless enough of the last one is left.

use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{Clock, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::error::RequestError;
use crate::pauses::Pauses;

/// A proof is fresh for this part of the session timeout: no other one is requested.
const FRESH: u32 = 10;
/// The part of the session timeout that is not counted on, at least.
const UNSURE: u32 = 5;
/// A silent connection is dropped after this part of the session timeout, and not before this time,
/// for members that are busy. But two fifths of the timeout are the upper bound.
const SILENT: u32 = 8;
const BUSY: Duration = Duration::from_secs(1);
/// A grant needs at least this part of the time that is counted on.
const ENOUGH: u32 = 4;
/// Before a grant, a proof is requested if less than this part of that time is left (S6).
const WELL: u32 = 2;
/// The interval of the checks for pauses, as a part of the silence after which a connection is
/// dropped: the interval of the connection's own checks.
const CHECKS: u32 = 8;

/// The timeout of a session, and the delay with which the members report its heartbeats.
#[derive(Clone, Copy)]
pub(crate) struct SessionTiming {
    pub(crate) timeout: Duration,
    pub(crate) half_tick: Duration,
}

/// A session of ZooKeeper.
pub(crate) struct ZooKeeperSession {
    connection: Mutex<Option<Connection>>,
    time: Duration,
    /// How much of the timeout is counted on.
    sure: Duration,
    proven: Mutex<Moment>,
    pauses: Mutex<Pauses>,
    /// Since when no proof that was requested has counted for enough.
    useless_since: Mutex<Option<Moment>>,
    keeping: tokio::sync::Mutex<()>,
    /// Notified when it ends.
    pub(crate) ended: Notify,
}

impl std::fmt::Debug for ZooKeeperSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZooKeeperSession").field("time", &self.time).finish_non_exhaustive()
    }
}

impl ZooKeeperSession {
    /// Begins with a session that was opened by a request sent at `opened`.
    pub(crate) fn begin(
        connection: Connection,
        opened: Moment,
        timing: SessionTiming,
        pauses: Pauses,
        clock: &Arc<dyn Clock>,
    ) -> Arc<ZooKeeperSession> {
        let connection = Some(connection);
        let session = Arc::new(ZooKeeperSession::of(connection, opened, timing, pauses));
        tokio::spawn(watch_pauses(Arc::downgrade(&session), clock.clone()));
        session
    }

    fn of(
        connection: Option<Connection>,
        opened: Moment,
        timing: SessionTiming,
        pauses: Pauses,
    ) -> ZooKeeperSession {
        ZooKeeperSession {
            connection: Mutex::new(connection),
            time: timing.timeout,
            sure: timing.sure(),
            proven: Mutex::new(opened),
            pauses: Mutex::new(pauses),
            useless_since: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Returns the connection.
    ///
    /// # Errors
    /// [`RequestError::SessionGone`]: it has ended.
    pub(crate) fn connection(&self) -> Result<Connection, RequestError> {
        let mut connection = self.connection.lock();
        if connection.as_ref().is_some_and(Connection::is_over) {
            *connection = None;
        }
        connection.clone().ok_or(RequestError::SessionGone)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.connection().is_err()
    }

    /// Returns the time that is known to be left at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        if self.is_over() { Duration::ZERO } else { now.until(self.proven.lock().after(self.sure)) }
    }

    /// Records a proof: a majority has committed a request that was sent at `since`.
    pub(crate) fn prove(&self, since: Moment) {
        let counts_from = self.pauses.lock().counts_from(since);
        let proven = {
            let mut proven = self.proven.lock();
            *proven = (*proven).max(counts_from);
            *proven
        };
        let counts_for_enough = since.until(proven.after(self.sure)) >= self.enough();
        let mut useless_since = self.useless_since.lock();
        if counts_for_enough {
            *useless_since = None;
        } else {
            useless_since.get_or_insert(since);
        }
    }

    /// Closes it; the servers then delete its nodes.
    pub(crate) fn end(&self) {
        *self.connection.lock() = None;
        self.ended.notify_waiters();
    }

    /// Returns whether a proof at `now` would count for more than half: not so soon after a long
    /// pause.
    pub(crate) fn vouches(&self, now: Moment) -> bool {
        !self.is_over() && self.would_leave(now) > self.sure / WELL
    }

    /// Returns whether it can be that of new contenders with this timeout.
    pub(crate) fn suits(&self, time: Duration, now: Moment) -> bool {
        let is_connected = self.connection().is_ok_and(|connection| connection.is_connected());
        self.time == time && is_connected && self.vouches(now)
    }

    /// Returns how much time a proof at `now` would leave.
    fn would_leave(&self, now: Moment) -> Duration {
        now.until(self.pauses.lock().counts_from(now).after(self.sure))
    }

    /// Returns whether enough is left at `now` for a grant.
    pub(crate) fn is_sure(&self, now: Moment) -> bool {
        self.left(now) >= self.enough()
    }

    fn enough(&self) -> Duration {
        self.sure / ENOUGH
    }

    /// Returns whether proofs have counted for too little for so long that a new session is better:
    /// the process was paused for long, or is starved.
    pub(crate) fn is_useless(&self, now: Moment) -> bool {
        let since = *self.useless_since.lock();
        let late = self.pauses.lock().late();
        since.is_some_and(|since| since.until(now) > late) && self.would_leave(now) < self.enough()
    }

    /// Returns when the first waiter asks again while its session counts for too little.
    pub(crate) fn next_look(&self) -> Duration {
        check_interval(self.time)
    }

    /// Checks for a pause of this process; returns when to check again.
    fn check_pauses(&self, now: Moment) -> Moment {
        let mut pauses = self.pauses.lock();
        pauses.check(now);
        pauses.next_check()
    }

    /// Returns whether enough of the last proof is left for a grant without another one (S6).
    pub(crate) fn is_well_proven(&self, now: Moment) -> bool {
        self.left(now) >= self.sure / WELL
    }

    /// Requests the proof that a grant needs (S6). `since`: when the request for the grant began.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub(crate) async fn prove_for_grant(
        &self,
        clock: &dyn Clock,
        since: Moment,
    ) -> Result<(), RequestError> {
        if self.is_well_proven(since) { Ok(()) } else { self.keep(clock).await }
    }

    /// Requests a proof, unless the last one is fresh.
    ///
    /// # Errors
    /// [`RequestError::SessionGone`]: it has ended.
    pub(crate) async fn keep(&self, clock: &dyn Clock) -> Result<(), RequestError> {
        let _alone = self.keeping.lock().await;
        let before = clock.now();
        if self.left(before) >= self.sure.saturating_sub(self.time / FRESH) {
            return Ok(());
        }
        self.connection()?.prove_session().await.inspect_err(|failure| {
            if matches!(failure, RequestError::SessionGone) {
                self.end();
            }
        })?;
        self.prove(before);
        Ok(())
    }
}

/// Returns the silence after which a connection is dropped.
pub(crate) fn silence(time: Duration) -> Duration {
    (time / SILENT).max(BUSY.min(time * 2 / 5))
}

/// Returns the interval of the checks for pauses.
fn check_interval(time: Duration) -> Duration {
    silence(time) / CHECKS
}

impl SessionTiming {
    /// Begins to record pauses for a session that is being opened.
    pub(crate) fn pauses(self, opened: Moment) -> Pauses {
        Pauses::new(opened, self.late(), check_interval(self.timeout), self.timeout)
    }

    /// Returns the age of the newest heartbeat that the leader knows of, at most, without a pause
    /// (S3).
    fn late(self) -> Duration {
        silence(self.timeout) + check_interval(self.timeout) + self.half_tick
    }

    /// Returns how much of the timeout is counted on (S3).
    fn sure(self) -> Duration {
        self.timeout.saturating_sub(self.late().max(self.timeout / UNSURE))
    }
}

/// Checks for pauses for as long as the session is used. It runs where the client sends the
/// heartbeats, so a delay of those also delays these checks.
async fn watch_pauses(session: Weak<ZooKeeperSession>, clock: Arc<dyn Clock>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let next = session.check_pauses(clock.now());
        drop(session);
        clock.sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::ManualClock;
    use holdline_conformance::factory::ManualTime;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fifth_or_the_delay_of_the_reports_is_not_counted_on() {
        let millis = Duration::from_millis;
        let tick = Duration::from_secs(2);
        let sure = |timeout, half_tick| SessionTiming { timeout, half_tick }.sure();
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
    fn repeated_pauses_make_a_session_useless_until_a_proof_leaves_enough() {
        let clock = ManualClock::new();
        let opened = clock.now();
        let time = 4 * SECOND;
        let half_tick = SECOND / 10;
        let timing = SessionTiming { timeout: time, half_tick };
        let session = ZooKeeperSession::of(None, opened, timing, timing.pauses(opened));
        let pause = || clock.advance(SECOND * 5 / 2);
        let run = |times: Duration| {
            let end = clock.now().after(times);
            while clock.now() < end {
                session.check_pauses(clock.now());
                clock.advance(check_interval(time));
            }
            clock.now()
        };
        session.prove(run(10 * SECOND));
        pause();
        session.prove(run(SECOND));
        assert!(!session.is_useless(clock.now()), "not for long enough");
        assert!(
            !session.is_useless(run(SECOND / 2)),
            "a proof would leave enough, but none is requested"
        );
        pause();
        assert!(session.is_useless(run(SECOND / 2)), "for long, and again too little");
        let well = run(4 * SECOND);
        session.prove(well);
        pause();
        assert!(!session.is_useless(run(SECOND / 2)), "a proof left enough meanwhile");
        // Pauses for which no proof was requested do not count.
        run(20 * SECOND);
        pause();
        session.prove(run(SECOND / 2));
        assert!(!session.is_useless(clock.now()), "this one is the first that is too little");
    }
}
