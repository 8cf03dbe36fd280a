//! Sessions of ZooKeeper: a connection for each client and duration.
//!
//! - S2: the connection sends heartbeats by itself for as long as this process runs. So the engine
//!   itself expires a group that is not renewed. An acquire or a renewal refreshes the group; when
//!   its time is over, the engine deletes its nodes. If the process cannot do it, the servers do,
//!   after the same time. So no reply promises more time than the group has left.
//! - S4: a copy of the process by fork remembers the lease ids of its parent, which are not its own
//!   (H2 of `known_contenders`), and shares its sockets. So a copy opens no session.
//! - S7: the session for requests of no contender is opened first, and becomes that of the first
//!   group with its timeout. So a process with one lock opens one. The next such request opens
//!   another: a long listing delays no lock.
//! - S5: the connection to a member that hangs is dropped long before the session expires, so that
//!   another member is tried in time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{ClientId, Clock, ErrorKind, Hold, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::{Client, ClientOptions};
use crate::connection::Connection;
use crate::error::{ENGINE, RequestError, not_applied};
use crate::options::ZooKeeperOptions;
use crate::pauses::Pauses;
use crate::session::{SessionTiming, ZooKeeperSession, silence};

/// The contenders that expire together: those of one client with one duration, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group(ClientId, u64);

/// The pause before the members are asked for a session again.
const AGAIN: Duration = Duration::from_millis(100);

type Slot = Arc<tokio::sync::Mutex<Option<Arc<ZooKeeperSession>>>>;

/// The sessions of one engine.
pub(crate) struct ZooKeeperSessions {
    options: ZooKeeperOptions,
    /// How often the members report heartbeats to the leader.
    half_tick: Duration,
    clock: Arc<dyn Clock>,
    /// The session for requests of no contender (S7), and its timeout.
    main: tokio::sync::Mutex<Option<Arc<ZooKeeperSession>>>,
    main_time: OnceLock<Duration>,
    slots: Mutex<HashMap<Group, Slot>>,
    /// When each group was last refreshed.
    kept: Mutex<HashMap<Group, Moment>>,
    /// Notified when a group begins, since it may expire before all others.
    begun: Notify,
    /// The engine was dropped.
    shut: AtomicBool,
}

/// A session that was just opened.
struct OpenedSession {
    client: Client,
    /// When it was asked for.
    before: Moment,
    timing: SessionTiming,
    pauses: Pauses,
}

impl Group {
    pub(crate) fn of(client: ClientId, hold: Hold) -> Group {
        let duration = hold.duration().unwrap_or_default();
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Group(client, u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.1)
    }
}

impl std::fmt::Debug for ZooKeeperSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZooKeeperSessions").finish_non_exhaustive()
    }
}

impl ZooKeeperSessions {
    /// `shortest` is the servers' shortest session. Unless configured, it is two ticks.
    pub(crate) fn new(
        options: ZooKeeperOptions,
        shortest: Duration,
        clock: Arc<dyn Clock>,
    ) -> ZooKeeperSessions {
        ZooKeeperSessions {
            options,
            half_tick: shortest / 4,
            clock,
            main: tokio::sync::Mutex::default(),
            main_time: OnceLock::new(),
            slots: Mutex::default(),
            kept: Mutex::default(),
            begun: Notify::new(),
            shut: AtomicBool::new(false),
        }
    }

    /// Records that the engine was dropped. A session that nobody uses is closed.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.slots.lock().clear();
        // If it is locked, a request is opening one, and then sees that the engine was dropped.
        if let Ok(mut main) = self.main.try_lock() {
            *main = None;
        }
        self.begun.notify_one();
    }

    /// Opens the session for requests of no contender, with the longest timeout that a first lease
    /// can have, or the servers' longest if that is shorter. Returns that timeout.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn open_main(&self) -> Result<Duration, LockError> {
        let mut main = self.main.lock().await;
        let opened = self.connect(MAX_FIRST_LEASE).await?;
        let given = opened.client.session_timeout();
        let time = *self.main_time.get_or_init(|| given);
        if given == MAX_FIRST_LEASE {
            *main = Some(self.begin_session(opened));
        }
        Ok(time)
    }

    /// Returns the connection for requests of no contender.
    pub(crate) async fn main_connection(&self) -> Result<Connection, LockError> {
        let mut main = self.main.lock().await;
        // Servers that were restored from an old snapshot refuse a session that has seen newer
        // transactions, but accept a new one.
        if let Some(session) = main.as_ref()
            && let Ok(connection) = session.connection()
            && connection.is_connected()
        {
            return Ok(connection);
        }
        let time = self.main_time.get().copied().unwrap_or(MAX_FIRST_LEASE);
        let session = self.open(time).await?;
        let connection = session.connection()?;
        if !self.is_shut() {
            *main = Some(session);
        }
        Ok(connection)
    }

    /// Takes the session for requests of no contender, if it is one for a group (S7).
    fn take_main(&self, key: Group, now: Moment) -> Option<Arc<ZooKeeperSession>> {
        // If it is locked, a request is opening another one.
        let mut main = self.main.try_lock().ok()?;
        main.take_if(|session| session.suits(key.duration(), now))
    }

    /// Returns the session of a group. Opens a new one if there is none, or if the present one
    /// counts for little after a pause. Existing contenders stay with the old one.
    pub(crate) async fn obtain(&self, key: Group) -> Result<Arc<ZooKeeperSession>, LockError> {
        let slot = self.slots.lock().entry(key).or_default().clone();
        let mut slot = slot.lock().await;
        let now = self.clock.now();
        if let Some(session) = slot.as_ref().filter(|session| session.vouches(now)) {
            return Ok(session.clone());
        }
        if let Some(session) = self.take_main(key, now) {
            return Ok(slot.insert(session).clone());
        }
        match (self.open(key.duration()).await, &*slot) {
            (Ok(session), _) => Ok(slot.insert(session).clone()),
            (Err(_), Some(session)) if !session.is_over() => Ok(session.clone()),
            (Err(error), _) => Err(error),
        }
    }

    /// Opens a session with this timeout.
    ///
    /// # Errors
    /// `Invalid`: the servers do not allow this timeout. `Refused`: this process is a copy by fork.
    pub(crate) async fn open(&self, time: Duration) -> Result<Arc<ZooKeeperSession>, LockError> {
        let opened = self.connect(time).await?;
        let given = opened.client.session_timeout();
        if given != time {
            let message =
                format!("the nearest session timeout that the servers allow is {given:?}");
            return Err(LockError::invalid(ENGINE, "lease_duration", message));
        }
        Ok(self.begin_session(opened))
    }

    fn begin_session(&self, opened: OpenedSession) -> Arc<ZooKeeperSession> {
        let OpenedSession { client, before, timing, pauses } = opened;
        let connection = Connection::new(client, &self.options);
        ZooKeeperSession::begin(connection, before, timing, pauses, &self.clock)
    }

    /// Asks for a session with this timeout; the servers may give another one.
    async fn connect(&self, time: Duration) -> Result<OpenedSession, LockError> {
        check_process()?;
        let started = Instant::now();
        let timing = SessionTiming { timeout: time, half_tick: self.half_tick };
        loop {
            let before = self.clock.now();
            let mut pauses = timing.pauses(before);
            match self.check_during(connect(&self.options, time), &mut pauses).await {
                Ok(client) => return Ok(OpenedSession { client, before, timing, pauses }),
                // Members may look for a leader, or be restarted.
                Err(RequestError::NotSent(_))
                    if started.elapsed() < self.options.command_timeout() =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                // No contender belongs to it yet.
                Err(failure) => {
                    let kind = failure.into_error().kind().clone();
                    return Err(not_applied(kind));
                }
            }
        }
    }

    /// Checks for pauses of this process while a future runs. The duration of the future is no
    /// pause.
    async fn check_during<T>(&self, doing: impl Future<Output = T>, pauses: &mut Pauses) -> T {
        let mut doing = pin!(doing);
        loop {
            pauses.check(self.clock.now());
            let next = self.clock.sleep_until(pauses.next_check());
            tokio::select! {
                biased;
                done = &mut doing => {
                    pauses.check(self.clock.now());
                    return done;
                }
                () = next => {}
            }
        }
    }

    /// Refreshes a group, or begins it if it does not exist.
    pub(crate) fn begin(&self, key: Group, since: Moment) {
        match self.kept.lock().entry(key) {
            // Another request may have refreshed it later, while the session of this one was
            // opened.
            Entry::Occupied(mut kept) => {
                kept.insert(since.max(*kept.get()));
            }
            Entry::Vacant(free) => {
                free.insert(since);
                self.begun.notify_one();
            }
        }
    }

    /// Refreshes a group; returns `false` if it has expired.
    pub(crate) fn refresh(&self, key: Group, since: Moment) -> bool {
        match self.kept.lock().get_mut(&key) {
            Some(kept) => {
                *kept = (*kept).max(since);
                true
            }
            None => false,
        }
    }

    /// Returns how long a group lasts if it is not refreshed.
    pub(crate) fn lasts(&self, key: Group, now: Moment) -> Duration {
        self.kept.lock().get(&key).map_or(Duration::ZERO, |at| now.until(at.after(key.duration())))
    }

    /// Waits until groups expire, and removes them; returns none once the engine was dropped and
    /// no group is left.
    pub(crate) async fn next_over(&self) -> Vec<Group> {
        loop {
            let begun = self.begun.notified();
            let shut = self.is_shut();
            let now = self.clock.now();
            let (over, next) = {
                let mut kept = self.kept.lock();
                let over: Vec<Group> = kept
                    .extract_if(|key, at| at.after(key.duration()) <= now)
                    .map(|e| e.0)
                    .collect();
                (over, kept.iter().map(|(key, at)| at.after(key.duration())).min())
            };
            match (over.is_empty(), next) {
                (false, _) => return over,
                (true, None) if shut => return over,
                (true, None) => begun.await,
                (true, Some(next)) => tokio::select! {
                    () = begun => {}
                    () = self.clock.sleep_until(next) => {}
                },
            }
        }
    }

    /// Returns whether the engine was dropped.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// Uses a session for no new contender.
    pub(crate) fn retire(&self, session: &Arc<ZooKeeperSession>) {
        for slot in self.slots.lock().values() {
            // A session that is being opened is another one.
            if let Ok(mut slot) = slot.try_lock() {
                slot.take_if(|found| Arc::ptr_eq(found, session));
            }
        }
    }

    /// Closes the session of a group, if `unused` says that no contender belongs to it.
    pub(crate) async fn close(&self, key: Group, unused: impl Fn(&Arc<ZooKeeperSession>) -> bool) {
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

/// Refuses a process that was copied by fork after ZooKeeper was used in it.
fn check_process() -> Result<(), LockError> {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    let process = std::process::id();
    if *PROCESS.get_or_init(|| process) == process {
        return Ok(());
    }
    let message = "this process was copied by fork from one that had used ZooKeeper: start a \
                   new program (exec)";
    Err(not_applied(ErrorKind::Refused { message: message.to_owned() }))
}

/// Opens a connection with a new session.
async fn connect(options: &ZooKeeperOptions, time: Duration) -> Result<Client, RequestError> {
    Client::connect(ClientOptions {
        members: options.cluster.members.clone(),
        tls: options.tls().cloned(),
        credentials: options.digest().await,
        session_timeout: time,
        silence: silence(time),
        request_timeout: options.command_timeout(),
    })
    .await
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::ManualClock;
    use holdline_conformance::factory::ManualTime;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sessions(clock: &ManualClock) -> ZooKeeperSessions {
        let options = ZooKeeperOptions::from_url("zk://127.0.0.1:2181").expect("a good URL");
        ZooKeeperSessions::new(options, 4 * SECOND, Arc::new(clock.clone()))
    }

    #[test]
    fn beginning_a_group_does_not_undo_a_later_refresh() {
        let clock = ManualClock::new();
        let sessions = sessions(&clock);
        let key = Group::of(ClientId::from_u64(7), Hold::Leased(8 * SECOND));
        let asked = clock.now();
        sessions.begin(key, asked);
        let refreshed = asked.after(SECOND);
        assert!(sessions.refresh(key, refreshed));
        sessions.begin(key, asked);
        assert_eq!(sessions.lasts(key, refreshed), 8 * SECOND);
    }

    #[tokio::test]
    async fn a_slow_request_is_no_pause_and_a_pause_during_it_is() {
        for (step, paused) in [(SECOND / 10, false), (3 * SECOND, true)] {
            let clock = ManualClock::new();
            let opened = clock.now();
            let mut pauses = Pauses::new(opened, SECOND / 2, SECOND / 5, 60 * SECOND);
            let slow = async {
                while opened.until(clock.now()) < 12 * SECOND {
                    clock.advance(step);
                    tokio::task::yield_now().await;
                }
            };
            sessions(&clock).check_during(slow, &mut pauses).await;
            let now = clock.now();
            assert_eq!(pauses.counts_from(now) < now, paused, "in steps of {step:?}");
        }
    }

    #[test]
    fn a_group_is_for_a_client_and_whole_milliseconds() {
        let of =
            |micros| Group::of(ClientId::from_u64(7), Hold::Leased(Duration::from_micros(micros)));
        assert_eq!(of(1_001), of(2_000));
        assert_ne!(of(2_000), of(2_001));
        assert_eq!(of(2_000).duration(), Duration::from_millis(2));
        assert_ne!(of(1), Group::of(ClientId::from_u64(8), Hold::Leased(Duration::from_micros(1))));
    }
}
