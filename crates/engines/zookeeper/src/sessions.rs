//! Sessions of ZooKeeper: a connection for each client and duration.
//!
//! - S1: what a session is known to have left counts from before the request left that a majority
//!   carried out for it: a write, or a check that goes the way of writes. What a single member
//!   answers proves nothing.
//! - S2: the connection sends signs of life by itself, as long as this process runs. So it is here
//!   that a group ends which nobody keeps: an acquire or a renewal keeps it, and when its time is
//!   over its nodes are deleted. If the process cannot do it, the servers do, after the same time.
//!   So nobody is told that more is left than its group has.
//! - S3: a member may tell the leader late that it has heard from us: by half a tick, and by the
//!   time between two signs of life, which is the time after which a connection is given up, and an
//!   eighth more, for nothing is sent while a sign is not answered. So as much of the time is not
//!   counted on, and a fifth at least. A process that stood still sent no sign of life: what it
//!   proves soon after counts from earlier by as much ([`crate::stops`]).
//! - S4: the client crate hears of its sockets by a thread and a file of the kernel's that a copy
//!   of the process by fork lacks, or shares with its parent. So a copy opens no session.
//! - S5: a member that hangs is left long before the session ends, so that another is tried in
//!   time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use holdline_core::{ClientId, Clock, ErrorKind, Hold, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;
use zookeeper_client::Client;

use crate::error::{ENGINE, Trouble, not_applied};
use crate::options::ZooKeeperOptions;
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

/// Whose nodes end together: those of a client, with the same duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(ClientId, u64);

/// A session of ZooKeeper.
pub(crate) struct Session {
    wire: Mutex<Option<Wire>>,
    time: Duration,
    /// How much of the time is counted on.
    sure: Duration,
    proven: Mutex<Moment>,
    /// How late the leader may be told of a process that runs.
    late: Duration,
    stops: Mutex<Stops>,
    /// Since when no proof has let much be counted on.
    useless_since: Mutex<Option<Moment>>,
    keeping: tokio::sync::Mutex<()>,
    /// Told when it is over.
    pub(crate) ended: Notify,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// The sessions of one engine.
pub(crate) struct Sessions {
    options: ZooKeeperOptions,
    /// How often the members tell their leader who was heard.
    half_tick: Duration,
    clock: Arc<dyn Clock>,
    slots: Mutex<HashMap<Key, Slot>>,
    /// When each group was kept.
    kept: Mutex<HashMap<Key, Moment>>,
    /// Told when a group begins that may end before all others.
    begun: Notify,
    /// Nobody uses the engine any more.
    shut: AtomicBool,
}

impl Key {
    pub(crate) fn of(client: ClientId, hold: Hold) -> Key {
        let duration = hold.duration().unwrap_or_default();
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Key(client, u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.1)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("time", &self.time).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Session {
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
    fn vouches(&self, now: Moment) -> bool {
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
        since.is_some_and(|since| since.until(now) > self.late)
            && self.would_leave(now) < self.enough()
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

impl Sessions {
    /// The servers' shortest session tells how long a tick is: it lasts two, unless it was set.
    pub(crate) fn new(
        options: ZooKeeperOptions,
        shortest: Duration,
        clock: Arc<dyn Clock>,
    ) -> Sessions {
        Sessions {
            options,
            half_tick: shortest / 4,
            clock,
            slots: Mutex::default(),
            kept: Mutex::default(),
            begun: Notify::new(),
            shut: AtomicBool::new(false),
        }
    }

    /// Says that nobody uses the engine any more.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.begun.notify_one();
    }

    /// Returns the session of a group; makes it if there is none, or one that can vouch for little
    /// now. What hangs on that goes on with it.
    pub(crate) async fn obtain(&self, key: Key) -> Result<Arc<Session>, LockError> {
        let slot = self.slots.lock().entry(key).or_default().clone();
        let mut slot = slot.lock().await;
        let now = self.clock.now();
        if let Some(session) = slot.as_ref().filter(|session| session.vouches(now)) {
            return Ok(session.clone());
        }
        match (self.open(key.duration()).await, &*slot) {
            (Ok(session), _) => Ok(slot.insert(session).clone()),
            (Err(_), Some(session)) if !session.is_over() => Ok(session.clone()),
            (Err(error), _) => Err(error),
        }
    }

    /// Makes a session that ends so long after the last sign of life.
    ///
    /// # Errors
    /// `Invalid`: the servers give none as short, or as long. `Refused`: in a copy by fork.
    pub(crate) async fn open(&self, time: Duration) -> Result<Arc<Session>, LockError> {
        check_process()?;
        let started = Instant::now();
        let (client, before, stops) = loop {
            let before = self.clock.now();
            let mut stops = Stops::new(before, late(time, self.half_tick), look(time), time);
            match self.looking(connect(&self.options, time), &mut stops).await {
                Ok(client) => break (client, before, stops),
                // It gives up after the time of the session, which may be less than what a busy
                // machine needs.
                Err(Trouble::NoAnswer(_)) if started.elapsed() < self.options.command_timeout() => {
                }
                // Nothing hangs on it yet.
                Err(trouble) => {
                    let kind = trouble.into_error().kind().clone();
                    return Err(not_applied(kind));
                }
            }
        };
        let given = client.session_timeout();
        if given != time {
            let message = format!("the servers give a session of {given:?} at the nearest");
            return Err(LockError::invalid(ENGINE, "lease_duration", message));
        }
        let wire = Wire::new(client, &self.options);
        let session = Arc::new(Session {
            wire: Mutex::new(Some(wire)),
            time,
            sure: sure(time, self.half_tick),
            proven: Mutex::new(before),
            late: late(time, self.half_tick),
            stops: Mutex::new(stops),
            useless_since: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            ended: Notify::new(),
        });
        tokio::spawn(watch_stops(Arc::downgrade(&session), self.clock.clone()));
        Ok(session)
    }

    /// Looks whether this process runs until something is done: that alone is no stop.
    async fn looking<T>(&self, doing: impl Future<Output = T>, stops: &mut Stops) -> T {
        let mut doing = pin!(doing);
        loop {
            stops.look(self.clock.now());
            let next = self.clock.sleep_until(stops.next_look());
            tokio::select! {
                biased;
                done = &mut doing => {
                    stops.look(self.clock.now());
                    return done;
                }
                () = next => {}
            }
        }
    }

    /// Notes that a group was kept, beginning with it if it is not there.
    pub(crate) fn begin(&self, key: Key, since: Moment) {
        match self.kept.lock().entry(key) {
            // Another may have been heard later while this one's session was made.
            Entry::Occupied(mut kept) => {
                kept.insert(since.max(*kept.get()));
            }
            Entry::Vacant(free) => {
                free.insert(since);
                self.begun.notify_one();
            }
        }
    }

    /// Notes that a group was kept; `false` when it has ended before.
    pub(crate) fn heard(&self, key: Key, since: Moment) -> bool {
        match self.kept.lock().get_mut(&key) {
            Some(kept) => {
                *kept = (*kept).max(since);
                true
            }
            None => false,
        }
    }

    /// Returns how long a group lasts if nobody keeps it.
    pub(crate) fn lasts(&self, key: Key, now: Moment) -> Duration {
        self.kept.lock().get(&key).map_or(Duration::ZERO, |at| now.until(at.after(key.duration())))
    }

    /// Waits until a group's time is over, and takes it out; returns nothing when all is shut.
    pub(crate) async fn next_over(&self) -> Vec<Key> {
        loop {
            let begun = self.begun.notified();
            if self.is_shut() {
                return Vec::new();
            }
            let now = self.clock.now();
            let (over, next) = {
                let mut kept = self.kept.lock();
                let over: Vec<Key> = kept
                    .extract_if(|key, at| at.after(key.duration()) <= now)
                    .map(|e| e.0)
                    .collect();
                (over, kept.iter().map(|(key, at)| at.after(key.duration())).min())
            };
            match (over.is_empty(), next) {
                (false, _) => return over,
                (true, None) => begun.await,
                (true, Some(next)) => tokio::select! {
                    () = begun => {}
                    () = self.clock.sleep_until(next) => {}
                },
            }
        }
    }

    /// Tells whether nobody uses the engine any more.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// Gives a session to nobody any more.
    pub(crate) fn retire(&self, session: &Arc<Session>) {
        for slot in self.slots.lock().values() {
            // One that is being made now is another.
            if let Ok(mut slot) = slot.try_lock() {
                slot.take_if(|found| Arc::ptr_eq(found, session));
            }
        }
    }

    /// Ends the session that was made for a group, if `unused` says so.
    pub(crate) async fn close(&self, key: Key, unused: impl Fn(&Arc<Session>) -> bool) {
        let Some(slot) = self.slots.lock().get(&key).cloned() else { return };
        let mut slot = slot.lock().await;
        if self.kept.lock().contains_key(&key) {
            return;
        }
        if let Some(session) = slot.take_if(|session| unused(session)) {
            session.end();
            self.slots.lock().remove(&key);
        }
    }
}

/// After how long a connection on which nothing comes is given up.
fn silence(time: Duration) -> Duration {
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

/// Refuses a process that was copied by fork after the client crate had begun in it.
fn check_process() -> Result<(), LockError> {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    let process = std::process::id();
    if *PROCESS.get_or_init(|| process) == process {
        return Ok(());
    }
    let message = "this process was copied by fork from one that had used ZooKeeper: start a \
                   program of its own (exec)";
    Err(not_applied(ErrorKind::Refused { message: message.to_owned() }))
}

/// Makes a connection with a session of its own.
async fn connect(options: &ZooKeeperOptions, time: Duration) -> Result<Client, Trouble> {
    let mut connector =
        Client::connector().with_session_timeout(time).with_connection_timeout(silence(time));
    if let Some(digest) = options.digest() {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    Ok(connector.connect(&options.hosts()).await?)
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::HandClock;
    use holdline_conformance::factory::HandDriven;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sessions(clock: &HandClock) -> Sessions {
        let options = ZooKeeperOptions::from_url("zk://127.0.0.1:2181").expect("a good URL");
        Sessions::new(options, 4 * SECOND, Arc::new(clock.clone()))
    }

    #[test]
    fn a_group_that_was_heard_since_is_not_moved_back_by_one_that_begins() {
        let clock = HandClock::new();
        let sessions = sessions(&clock);
        let key = Key::of(ClientId::from_u64(7), Hold::Leased(8 * SECOND));
        let asked = clock.now();
        sessions.begin(key, asked);
        let heard = asked.after(SECOND);
        assert!(sessions.heard(key, heard));
        sessions.begin(key, asked);
        assert_eq!(sessions.lasts(key, heard), 8 * SECOND);
    }

    #[test]
    fn stops_that_come_again_make_a_session_useless_until_a_proof_leaves_enough() {
        let clock = HandClock::new();
        let (opened, time, half_tick) = (clock.now(), 4 * SECOND, SECOND / 10);
        let late = late(time, half_tick);
        let session = Session {
            wire: Mutex::default(),
            time,
            sure: sure(time, half_tick),
            proven: Mutex::new(opened),
            late,
            stops: Mutex::new(Stops::new(opened, late, look(time), time)),
            useless_since: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            ended: Notify::new(),
        };
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

    #[tokio::test]
    async fn what_takes_long_is_no_stop_and_a_stop_meanwhile_is() {
        for (step, stood) in [(SECOND / 10, false), (3 * SECOND, true)] {
            let clock = HandClock::new();
            let opened = clock.now();
            let mut stops = Stops::new(opened, SECOND / 2, SECOND / 5, 60 * SECOND);
            let slow = async {
                while opened.until(clock.now()) < 12 * SECOND {
                    clock.advance(step);
                    tokio::task::yield_now().await;
                }
            };
            sessions(&clock).looking(slow, &mut stops).await;
            let now = clock.now();
            assert_eq!(stops.counts_from(now) < now, stood, "in steps of {step:?}");
        }
    }

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
    fn a_group_is_for_a_client_and_whole_milliseconds() {
        let of =
            |micros| Key::of(ClientId::from_u64(7), Hold::Leased(Duration::from_micros(micros)));
        assert_eq!(of(1_001), of(2_000));
        assert_ne!(of(2_000), of(2_001));
        assert_eq!(of(2_000).duration(), Duration::from_millis(2));
        assert_ne!(of(1), Key::of(ClientId::from_u64(8), Hold::Leased(Duration::from_micros(1))));
    }
}
