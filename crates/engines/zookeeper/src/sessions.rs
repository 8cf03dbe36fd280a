//! Sessions of ZooKeeper: a connection for each client and duration.
//!
//! - S2: the connection sends signs of life by itself, as long as this process runs. So it is here
//!   that a group ends which nobody keeps: an acquire or a renewal keeps it, and when its time is
//!   over its nodes are deleted. If the process cannot do it, the servers do, after the same time.
//!   So nobody is told that more is left than its group has.
//! - S4: the client crate hears of its sockets by a thread and a file of the kernel's that a copy
//!   of the process by fork lacks, or shares with its parent. So a copy opens no session.
//! - S5: a member that hangs is left long before the session ends, so that another is tried in
//!   time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdline_core::{ClientId, Clock, ErrorKind, Hold, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;
use zookeeper_client::Client;

use crate::error::{ENGINE, Trouble, not_applied};
use crate::options::ZooKeeperOptions;
use crate::session::{self, Session, silence};
use crate::stops::Stops;
use crate::wire::Wire;

/// Whose nodes end together: those of a client, with the same duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(ClientId, u64);

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

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
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
            let mut stops = session::stops(before, (time, self.half_tick));
            match self.looking(connect(&self.options, time), &mut stops).await {
                Ok(client) => break (client, before, stops),
                // It gives up after the time of the session, which may be less than what a busy
                // machine needs.
                Err(Trouble::NoAnswer(_))
                    if started.elapsed() < self.options.cluster.command_timeout => {}
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
        let times = (time, self.half_tick);
        Ok(Session::begin(wire, before, times, stops, &self.clock))
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
    fn a_group_is_for_a_client_and_whole_milliseconds() {
        let of =
            |micros| Key::of(ClientId::from_u64(7), Hold::Leased(Duration::from_micros(micros)));
        assert_eq!(of(1_001), of(2_000));
        assert_ne!(of(2_000), of(2_001));
        assert_eq!(of(2_000).duration(), Duration::from_millis(2));
        assert_ne!(of(1), Key::of(ClientId::from_u64(8), Hold::Leased(Duration::from_micros(1))));
    }
}
