//! A proxy between an engine and its server that loses, holds back and breaks what passes.
//!
//! It knows the protocol just enough to see where a request or a reply ends, so a fault hits the
//! k-th reply, or the reply to a certain script, and not "about then". What passes is never
//! changed. What is no Redis protocol (TLS) passes in pieces as they come; only faults of whole
//! connections make sense there.
//!
//! X1: the fate of a frame is decided and logged when the frame arrives, in the order of arrival.
//! X2: in one direction of one connection nothing overtakes: what is held or slow holds up all
//! that is behind it, as in a network.
//! X3: an event that was waited for has happened: a swallowed reply was written by the server.
//!
//! Read next: `frames` for what a fault can hit, `link` for how bytes travel.

mod frames;
mod link;
mod log;

pub use frames::{Fault, Frames, Traffic};
pub use log::{Event, What};

use crate::Failure;
use crate::ports::{self, Port};
use crate::wait::LIMIT;
use frames::{Rule, Seen};
use link::Link;
use log::Log;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long connecting to the server may take. Past it the client is cut off.
const CONNECTING: Duration = Duration::from_secs(20);

/// How long after a failed bind the port is tried again.
const NEXT_TRY: Duration = Duration::from_millis(100);

/// Stands between clients and one server and does to their traffic what a test asks for.
///
/// A server that is down shows itself as a connection that is accepted and then reset, not as a
/// refused one: for that there is [`refuse`](Self::refuse).
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<ProxyParts>,
    port: Port,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProxyParts {
    state: Mutex<ProxyState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ProxyState {
    upstream: SocketAddr,
    rules: Vec<Rule>,
    links: HashMap<u64, Arc<Link>>,
    log: Log,
    /// Grows with each thaw; what was held before goes on.
    thaws: u64,
    opened: u64,
    /// Grows with each reset of all; what was being connected then is broken too.
    resets: u64,
    wanted: ListenerState,
    listener_state: ListenerState,
}

/// The actual or wanted state of the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerState {
    Open,
    Shut,
    Gone,
}

impl FaultProxy {
    /// Listens on a loopback port of its own and passes everything to `upstream`.
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        Self::try_start(upstream).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_start(upstream: SocketAddr) -> Result<Self, Failure> {
        let port = Port::reserve()?;
        let state = ProxyState {
            upstream,
            rules: Vec::new(),
            links: HashMap::new(),
            log: Log::default(),
            thaws: 0,
            opened: 0,
            resets: 0,
            wanted: ListenerState::Open,
            listener_state: ListenerState::Shut,
        };
        let shared = Arc::new(ProxyParts { state: Mutex::new(state), changed: Condvar::new() });
        let mut proxy = Self { shared, port, accepting: None };
        let shared = Arc::clone(&proxy.shared);
        let address = proxy.address();
        proxy.accepting = Some(std::thread::spawn(move || run_listener(&shared, address)));
        proxy.await_listener(ListenerState::Open);
        Ok(proxy)
    }

    /// Where clients connect; the same for as long as the proxy lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// Passes connections that are opened from now on to another server.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.lock().upstream = upstream;
    }

    /// Does `fault` to all frames that `frames` describes, from now on.
    ///
    /// Of several faults for one frame the one that was asked for first is done; all count it.
    pub fn inject(&self, frames: Frames, fault: Fault) {
        self.shared.lock().rules.push(Rule::new(frames, fault));
    }

    /// Lets everything pass again: forgets all faults and thaws what is held.
    pub fn pass(&self) {
        self.shared.lock().rules.clear();
        self.thaw();
    }

    /// Lets go what is held, in its order, and forgets the faults that held it.
    pub fn thaw(&self) {
        let mut state = self.shared.lock();
        state.rules.retain(|rule| !rule.holds());
        state.thaws += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Breaks all connections at once, both sides of each: everybody sees a reset. One that was
    /// accepted and does not lead to the server yet breaks as soon as it does.
    pub fn reset(&self) {
        let mut state = self.shared.lock();
        state.resets += 1;
        let links: Vec<_> = state.links.values().cloned().collect();
        drop(state);
        for link in links {
            self.shared.reset(&link);
        }
    }

    /// Breaks one connection, by its number in the log.
    ///
    /// # Panics
    /// It is not open.
    pub fn reset_connection(&self, number: u64) {
        let link = self.shared.lock().links.get(&number).cloned();
        self.shared.reset(&link.unwrap_or_else(|| panic!("connection {number} is not open")));
    }

    /// Refuses new connections, as a machine without a listener. Open ones stay.
    pub fn refuse(&self) {
        self.set_listener(ListenerState::Shut);
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.set_listener(ListenerState::Open);
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// How many frames of a kind were seen, whatever became of them.
    #[must_use]
    pub fn seen(&self, traffic: Traffic) -> u64 {
        self.shared.lock().log.seen(traffic)
    }

    /// How many frames of a kind were seen on one connection.
    #[must_use]
    pub fn seen_on(&self, connection: u64, traffic: Traffic) -> u64 {
        self.shared.lock().log.seen_on(connection, traffic)
    }

    /// What happened since the start or the last [`forget`](Self::forget): the latest 65,536 events
    /// with at most 64 MiB of frames.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.shared.lock().log.events()
    }

    /// Forgets what happened, so that counts begin anew; faults and connections stay.
    pub fn forget(&self) {
        self.shared.lock().log.forget();
    }

    /// Waits until this many frames of a kind were seen.
    ///
    /// # Panics
    /// They are not within 30 s; the message shows what was.
    pub fn await_seen(&self, traffic: Traffic, count: u64) {
        let what = format!("{count} {traffic:?}");
        self.shared.wait_for(&what, |state| (state.log.seen(traffic) >= count).then_some(()));
    }

    /// Waits for the first event that is as asked, past ones included.
    ///
    /// # Panics
    /// It does not happen within 30 s; the message shows what did.
    pub fn await_event(&self, wanted: impl Fn(&Event) -> bool) -> Event {
        self.shared.wait_for("event", |state| state.log.find(&wanted))
    }

    /// Waits until this many connections are open.
    ///
    /// # Panics
    /// They are not within 30 s.
    pub fn await_open_connections(&self, count: usize) {
        let what = format!("{count} open connections");
        self.shared.wait_for(&what, |state| (state.links.len() == count).then_some(()));
    }

    fn set_listener(&self, wanted: ListenerState) {
        self.request_listener(wanted);
        self.await_listener(wanted);
    }

    fn request_listener(&self, wanted: ListenerState) {
        let mut state = self.shared.lock();
        state.wanted = wanted;
        let wakes = state.listener_state == ListenerState::Open && wanted != ListenerState::Open;
        drop(state);
        self.shared.changed.notify_all();
        if wakes {
            // The accepting thread waits for a connection: this is one.
            let _ = TcpStream::connect(self.address());
        }
    }

    fn await_listener(&self, listener_state: ListenerState) {
        self.shared
            .wait_for("door", |state| (state.listener_state == listener_state).then_some(()));
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.request_listener(ListenerState::Gone);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.reset();
    }
}

/// Accepts connections while the listener is wanted open, and has none while it is shut.
fn run_listener(shared: &Arc<ProxyParts>, address: SocketAddr) {
    let mut listener = None;
    loop {
        let wanted = shared.lock().wanted;
        if wanted != ListenerState::Open {
            listener.take().iter().for_each(ports::stop_listening);
        } else if listener.is_none() {
            // The port is reserved; a stranger on it shows as a listener that does not open.
            listener = TcpListener::bind(address).ok();
        }
        let listener_state = match wanted {
            ListenerState::Open if listener.is_none() => ListenerState::Shut,
            _ => wanted,
        };
        shared.lock().listener_state = listener_state;
        shared.changed.notify_all();
        match &listener {
            Some(listener) => {
                let client = listener.accept();
                let welcome = shared.lock().wanted == ListenerState::Open;
                if let (Ok((client, _)), true) = (client, welcome) {
                    shared.admit(client);
                }
            }
            None if listener_state == ListenerState::Gone => return,
            None => {
                let same = |state: &mut ProxyState| state.wanted == wanted;
                let _woken = shared.changed.wait_timeout_while(shared.lock(), NEXT_TRY, same);
            }
        }
    }
}

impl ProxyParts {
    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a client with the server, on threads of its own: a server may be slow to connect.
    fn admit(self: &Arc<Self>, client: TcpStream) {
        let mut state = self.lock();
        state.opened += 1;
        let number = state.opened;
        let upstream = state.upstream;
        let resets = state.resets;
        drop(state);
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let Ok(server) = TcpStream::connect_timeout(&upstream, CONNECTING) else {
                link::reset(&client);
                return shared.happened(number, What::Unreachable);
            };
            // Fails only if an end is gone already: dropping the other closes it.
            if let Ok(link) = Link::new(number, client, server) {
                shared.open(&Arc::new(link), resets);
            }
        });
    }

    /// `resets`: how many there had been when it was accepted.
    fn open(self: &Arc<Self>, link: &Arc<Link>, resets: u64) {
        let mut state = self.lock();
        state.links.insert(link.number(), Arc::clone(link));
        let broken = state.wanted == ListenerState::Gone || state.resets != resets;
        drop(state);
        self.happened(link.number(), What::Opened);
        if broken {
            return self.reset(link);
        }
        link::start(self, link);
    }

    fn reset(&self, link: &Link) {
        link.reset();
        self.close(link.number(), What::Reset);
    }

    /// Notes the end of a connection once, from the side that sees it first.
    fn close(&self, number: u64, how: What) {
        if self.lock().links.remove(&number).is_some() {
            self.happened(number, how);
        }
    }

    fn happened(&self, connection: u64, what: What) {
        self.lock().log.add(Event { connection, what, fault: None, bytes: Vec::new() });
        self.changed.notify_all();
    }

    /// Decides what becomes of a frame, and writes it down.
    fn judge(&self, connection: u64, seen: &Seen<'_>) -> (Option<Fault>, u64) {
        let mut state = self.lock();
        // Each rule counts the frame, so the first that applies must not end the search.
        let chosen: Vec<_> =
            state.rules.iter_mut().filter_map(|rule| rule.applies(connection, seen)).collect();
        let fault = chosen.first().copied();
        let what = What::Frame(seen.traffic);
        state.log.add(Event { connection, what, fault, bytes: seen.bytes.to_vec() });
        let thaws = state.thaws;
        drop(state);
        self.changed.notify_all();
        (fault, thaws)
    }

    /// Waits until what was held at `thaws` is let go, or its connection has ended.
    fn await_thaw(&self, connection: u64, thaws: u64) {
        let held = |s: &mut ProxyState| s.thaws == thaws && s.links.contains_key(&connection);
        let _state = self.changed.wait_while(self.lock(), held);
    }

    /// Waits for an instant, or until the connection has ended.
    fn await_instant(&self, connection: u64, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        let open = |state: &mut ProxyState| state.links.contains_key(&connection);
        let _state = self.changed.wait_timeout_while(self.lock(), left, open);
    }

    fn wait_for<T>(&self, what: &str, mut seen: impl FnMut(&ProxyState) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        let mut state = self.lock();
        loop {
            if let Some(found) = seen(&state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let log = state.log.shown();
                drop(state);
                panic!("the proxy waited {LIMIT:?} for: {what}; it saw:\n{log}");
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
