//! The life of grants, explored in full: two clients of one lock, one server, one store.
//!
//! The server's part is [`Life`] itself. Around it, every order of the following steps: a request
//! begins, the store grants, the grant is registered, the answer is taken, read, or never read; a
//! session is opened, kept, closed, or falls silent; a client leaves, is reset or vanishes; a
//! release reaches the store late; the server looks for what was read; time passes; the server is
//! killed and started again.
//!
//! - M1: a grant that lasts longer than the first lease has a client that was answered, or that a
//!   heartbeat of its session has informed, or a release that is on its way. All others end within
//!   the first lease.
//! - M2: a grant whose answer may have been read is released only if its client says so, and so is
//!   one under an id that the client chose.
//! - M3: an attempt that ended without an answer, and a session that was closed, leave no grant
//!   that is not on its way to be released, unless the server was killed.
//! - M4: no grant of a session that has ended is extended.
//! - M5: the grants of an attempt for two names are listed, closed, extended and left together. So
//!   the store needs one end for both.
//!
//! A reset is assumed to arrive within [`RESET_WITHIN`], a connection to a client that vanished to
//! break within [`ACKNOWLEDGEMENT`], and a client that is there to read its answer within
//! [`ACKNOWLEDGED_WITHIN`].

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasher;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
/// Longer than a first lease, so that it can end between the grant and the extension.
const SESSION: Duration = Duration::from_secs(40);
const CLIENTS: usize = 2;
/// How often time passes in one history. `HOLDLINE_LIFE_PASSES` sets more: 2 takes some minutes.
const MOST_PASSES: u8 = 1;
/// How often the server is restarted in one history.
const MOST_RESTARTS: u8 = 1;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    has_session: bool,
    keeps_id: bool,
    /// It asks for two names at once.
    has_two: bool,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Unsent,
    Waiting(AttemptId),
    /// The store has granted; the guard belongs to the request.
    Guarded(AttemptId),
    Registered(AttemptId),
    /// The answer is on its way.
    Answered,
    Read,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    Open,
    /// Closed by the client; whether it had read everything.
    Closed {
        clean: bool,
        since: Moment,
    },
    Vanished,
    Broken,
}

#[derive(Clone, Debug, Hash)]
struct Client {
    kind: Kind,
    request: Request,
    link: Link,
    has_opened: bool,
    /// The client has asked for the end of its session.
    closed: bool,
    /// It did so while its request was open or its grant was there. A key that it left before is
    /// still its own to give up.
    closed_at_work: bool,
    /// A heartbeat has named the lease.
    informed: bool,
}

#[derive(Clone, Debug, Hash)]
struct World {
    life: Life<usize>,
    now: Moment,
    clients: Vec<Client>,
    /// The grants of the store, by client, and when they end.
    store: BTreeMap<usize, Moment>,
    /// Releases that have not reached the store.
    releasing: BTreeSet<usize>,
    most_passes: u8,
    passes: u8,
    restarts: u8,
    /// A grant of a session was extended that had ended.
    extends_ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize),
    Begin(usize),
    Grant(usize),
    Register(usize),
    Answer(usize),
    Read(usize),
    Use(usize),
    Heartbeat(usize),
    Close(usize),
    Leave(usize),
    Vanish(usize),
    Reset(usize),
    Release(usize),
    Look,
    Sweep,
    Pass(Duration),
    Restart,
}

fn session(client: usize) -> LeaseId {
    LeaseId::from_bytes([client as u8 + 1; 16])
}

fn lease(client: usize) -> LeaseId {
    LeaseId::from_bytes([client as u8 + 101; 16])
}

/// The lease of the second name.
fn second_lease(client: usize) -> LeaseId {
    LeaseId::from_bytes([client as u8 + 201; 16])
}

fn name() -> LockName {
    LockName::new("n").expect("a good name")
}

/// What a client is granted.
fn grants(client: usize, kind: Kind) -> Vec<NamedLease> {
    let mut grants = vec![(name(), lease(client))];
    if kind.has_two {
        grants.push((LockName::new("o").expect("a good name"), second_lease(client)));
    }
    grants
}

fn most_passes() -> u8 {
    let set = std::env::var("HOLDLINE_LIFE_PASSES").ok();
    set.map_or(MOST_PASSES, |text| text.parse().expect("a small number"))
}

impl World {
    fn new(kinds: [Kind; CLIENTS]) -> World {
        let client = |kind| Client {
            kind,
            request: Request::Unsent,
            link: Link::Open,
            has_opened: false,
            closed: false,
            closed_at_work: false,
            informed: false,
        };
        World {
            life: Life::new(MostSessions { total: 10, per_owner: 10 }),
            now: Moment::from_nanos(1_000_000_000),
            clients: kinds.map(client).to_vec(),
            store: BTreeMap::new(),
            releasing: BTreeSet::new(),
            most_passes: most_passes(),
            passes: 0,
            restarts: 0,
            extends_ended: false,
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Look, Step::Sweep];
        for (number, client) in self.clients.iter().enumerate() {
            let is_there = client.link == Link::Open;
            match client.request {
                Request::Unsent if client.kind.has_session && !client.has_opened => {
                    steps.push(Step::Open(number));
                }
                Request::Unsent => steps.push(Step::Begin(number)),
                Request::Waiting(_) if self.store.is_empty() => steps.push(Step::Grant(number)),
                Request::Guarded(_) => steps.push(Step::Register(number)),
                Request::Registered(_) => steps.push(Step::Answer(number)),
                Request::Answered if is_there => steps.push(Step::Read(number)),
                Request::Read if is_there => steps.push(Step::Use(number)),
                _ => {}
            }
            if client.has_opened && !client.closed {
                // From a connection of its own, also while the request waits.
                steps.push(Step::Heartbeat(number));
                steps.push(Step::Close(number));
            }
            if is_there && client.request != Request::Unsent {
                steps.push(Step::Leave(number));
                steps.push(Step::Vanish(number));
            }
            if matches!(client.link, Link::Closed { clean: false, .. }) {
                steps.push(Step::Reset(number));
            }
        }
        steps.extend(self.releasing.iter().map(|client| Step::Release(*client)));
        if self.passes < self.most_passes && !self.is_resetting() {
            steps.extend([RESET_WITHIN, ACKNOWLEDGED_WITHIN, MAX_FIRST_LEASE, DAY].map(Step::Pass));
        }
        if self.restarts < MOST_RESTARTS {
            steps.push(Step::Restart);
        }
        steps
    }

    /// A reset is on its way, and arrives before time passes.
    fn is_resetting(&self) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|client| matches!(client.link, Link::Closed { clean: false, .. }))
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Open(number) => {
                let opened =
                    self.life.open(session(number), "owner", SESSION, BTreeSet::new(), now);
                assert_eq!(opened, Ok(()));
                self.clients[number].has_opened = true;
            }
            Step::Begin(number) => self.begin(number),
            Step::Grant(number) => {
                self.store.insert(number, now.after(MAX_FIRST_LEASE));
                if let Request::Waiting(id) = self.clients[number].request {
                    self.clients[number].request = Request::Guarded(id);
                }
            }
            Step::Register(number) => self.register(number),
            Step::Answer(number) => {
                if let Request::Registered(id) = self.clients[number].request {
                    self.life.answered(id, Some(&number), now);
                    self.clients[number].request = Request::Answered;
                }
            }
            Step::Read(number) => self.clients[number].request = Request::Read,
            Step::Use(number) => {
                if let Some(whole) = self.life.whole(lease(number)) {
                    for (_, lease) in grants(number, self.clients[number].kind) {
                        self.life.extended(lease);
                    }
                    self.renew(number, whole);
                }
            }
            Step::Heartbeat(number) => {
                let beat = self.life.heartbeat(session(number), "owner", now);
                let leases = beat.map(|(_, leases)| leases).unwrap_or_default();
                for lease in leases.iter().map(|(_, lease)| *lease) {
                    self.life.extended(lease);
                }
                for holder in self.holders(leases.into_iter().map(|(_, lease)| lease)) {
                    self.clients[holder].informed = true;
                    self.renew(holder, SESSION);
                }
            }
            Step::Close(number) => {
                let Ok(leases) = self.life.close(session(number), "owner", now) else { return };
                let client = &mut self.clients[number];
                client.closed = true;
                client.closed_at_work = client.request != Request::Over;
                let closed = self.holders(leases.into_iter().map(|(_, lease)| lease));
                self.releasing.extend(closed);
            }
            Step::Leave(number) => self.leave(number, false),
            Step::Vanish(number) => self.clients[number].link = Link::Vanished,
            Step::Reset(number) => self.clients[number].link = Link::Broken,
            Step::Release(number) => {
                self.releasing.remove(&number);
                self.store.remove(&number);
            }
            Step::Look => self.look(),
            Step::Sweep => {
                self.life.sweep(now);
            }
            Step::Pass(duration) => self.pass(duration),
            Step::Restart => self.restart(),
        }
    }

    /// Returns the clients of these leases. M5: each has all of its leases among them.
    fn holders(&self, leases: impl Iterator<Item = LeaseId>) -> BTreeSet<usize> {
        let leases: BTreeSet<LeaseId> = leases.collect();
        let mut holders = BTreeSet::new();
        let mut found = 0;
        for (number, client) in self.clients.iter().enumerate() {
            let grants = grants(number, client.kind);
            let count = grants.iter().filter(|(_, lease)| leases.contains(lease)).count();
            assert!(
                count == 0 || count == grants.len(),
                "M5: {number} has {count} only: {self:#?}"
            );
            found += count;
            if count > 0 {
                holders.insert(number);
            }
        }
        assert_eq!(found, leases.len(), "leases of nobody");
        holders
    }

    /// The server extends what was read.
    fn look(&mut self) {
        let clients = self.clients.clone();
        let now = self.now;
        let read = self.life.read(now, |number| state_of(clients[*number].link, now));
        for extension in &read {
            self.life.extended(extension.lease_id);
        }
        let leases: BTreeMap<LeaseId, Duration> =
            read.into_iter().map(|extension| (extension.lease_id, extension.lease)).collect();
        for number in self.holders(leases.keys().copied()) {
            let kind = self.clients[number].kind;
            let is_open = self.life.sessions.contains_key(&session(number));
            self.extends_ended |= kind.has_session && !is_open;
            self.renew(number, leases[&lease(number)]);
        }
    }

    fn begin(&mut self, number: usize) {
        let kind = self.clients[number].kind;
        let begin = Begin {
            count: grants(number, kind).len(),
            session: kind.has_session.then(|| session(number)),
            owner: "owner",
            key: kind.keeps_id.then(|| (name(), lease(number))),
            lease: DAY,
        };
        let begun = self.life.begin(&begin, self.now);
        self.clients[number].request = match begun {
            Ok(begun) => Request::Waiting(begun.id),
            Err(_) => Request::Over,
        };
    }

    fn register(&mut self, number: usize) {
        let Request::Guarded(id) = self.clients[number].request else { return };
        let kind = self.clients[number].kind;
        let granted = self.life.granted(id, grants(number, kind), self.now);
        self.clients[number].request = match granted {
            Ok(()) => Request::Registered(id),
            Err(end) => {
                if end == SessionEnd::Closed || !kind.keeps_id {
                    self.releasing.insert(number);
                }
                self.give_up(id);
                Request::Over
            }
        };
    }

    /// The client closes its connection, or the server is killed.
    fn leave(&mut self, number: usize, killed: bool) {
        let client = &mut self.clients[number];
        let clean = client.request == Request::Read;
        client.link = if killed { Link::Broken } else { Link::Closed { clean, since: self.now } };
        let id = match client.request {
            Request::Waiting(id) | Request::Guarded(id) | Request::Registered(id) => id,
            Request::Answered | Request::Read | Request::Unsent | Request::Over => return,
        };
        let has_guard = matches!(client.request, Request::Guarded(_));
        client.request = Request::Over;
        if has_guard && !client.kind.keeps_id {
            self.releasing.insert(number);
        }
        self.give_up(id);
    }

    /// An attempt ends without an answer.
    fn give_up(&mut self, id: AttemptId) {
        let left = self.life.left(id);
        let left = self.holders(left.into_iter().map(|(_, lease)| lease));
        self.releasing.extend(left);
    }

    fn renew(&mut self, number: usize, whole: Duration) {
        let until = self.now.after(whole);
        if let Some(end) = self.store.get_mut(&number) {
            *end = (*end).max(until);
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.passes += 1;
        self.now = self.now.after(duration);
        let now = self.now;
        self.store.retain(|_, end| *end > now);
        if duration >= ACKNOWLEDGED_WITHIN {
            for client in &mut self.clients {
                if client.request == Request::Answered && client.link == Link::Open {
                    client.request = Request::Read;
                }
            }
        }
        if duration >= ACKNOWLEDGEMENT {
            let vanished = |client: &&mut Client| client.link == Link::Vanished;
            let vanished: Vec<_> = self.clients.iter_mut().filter(vanished).collect();
            for client in vanished {
                client.link = Link::Broken;
            }
        }
        // hyper notices, and drops the requests.
        for number in 0..CLIENTS {
            if self.clients[number].link == Link::Broken {
                self.leave(number, true);
            }
        }
    }

    fn restart(&mut self) {
        self.restarts += 1;
        for client in &mut self.clients {
            if !matches!(client.request, Request::Read | Request::Unsent) {
                // An answer that has left may still arrive.
                let arrives = client.request == Request::Answered && client.link == Link::Open;
                client.request = if arrives { Request::Read } else { Request::Over };
            }
        }
        self.life = Life::new(MostSessions { total: 10, per_owner: 10 });
        self.releasing.clear();
    }

    fn check(&self) -> Result<(), &'static str> {
        for (number, end) in &self.store {
            let client = &self.clients[*number];
            let is_whole = *end > self.now.after(MAX_FIRST_LEASE);
            // An answer that left for an open connection counts: it may have been read.
            let was_answered = client.request == Request::Read || client.informed;
            let is_released = self.releasing.contains(number);
            if is_whole && !was_answered && !is_released {
                return Err("M1: nobody knows a long grant");
            }
            let is_left = client.request == Request::Over && !client.kind.keeps_id;
            let is_closed = client.closed_at_work && !matches!(client.request, Request::Guarded(_));
            if (is_left || is_closed) && !is_released && self.restarts == 0 {
                return Err("M3: a grant without an attempt and without a session stays");
            }
        }
        for number in &self.releasing {
            let client = &self.clients[*number];
            let may_know = matches!(client.request, Request::Read | Request::Answered);
            if (may_know || client.kind.keeps_id) && !client.closed {
                return Err("M2: a grant is released that its client may rely on");
            }
        }
        if self.extends_ended {
            return Err("M4: a grant of a session that has ended is extended");
        }
        Ok(())
    }

    /// What a grant is, for the count of what was seen.
    fn seen(&self, sometimes: &mut BTreeSet<&'static str>) {
        for (number, end) in &self.store {
            let client = &self.clients[*number];
            let is_whole = *end > self.now.after(MAX_FIRST_LEASE);
            match (is_whole, client.request, client.link) {
                (true, Request::Read, Link::Open) => sometimes.insert("a long grant is held"),
                (true, Request::Read, Link::Closed { .. }) => {
                    sometimes.insert("a client has read and left, and its grant was extended")
                }
                (false, Request::Answered, Link::Broken) => {
                    sometimes.insert("an answer was not read, and its grant is short")
                }
                (true, Request::Over, _) if client.informed => {
                    sometimes.insert("a heartbeat named a grant whose answer was lost")
                }
                _ => true,
            };
            if self.releasing.contains(number) {
                sometimes.insert("a release is on its way");
            }
        }
    }
}

fn state_of(link: Link, now: Moment) -> PeerState {
    match link {
        Link::Open | Link::Vanished => PeerState::Open,
        Link::Closed { since, .. } => PeerState::Left(now.since(since)),
        Link::Broken => PeerState::Broken,
    }
}

/// Explores every order of steps; returns how many states there are.
fn explore(kinds: [Kind; CLIENTS], sometimes: &mut BTreeSet<&'static str>) -> usize {
    let hashes = RandomState::new();
    let first = World::new(kinds);
    let mut known = HashSet::from([hashes.hash_one(&first)]);
    // The step that led to each state, and the state before it.
    let mut trace: Vec<(usize, Step)> = vec![(0, Step::Look)];
    let mut open = vec![(first, 0)];
    while let Some((world, number)) = open.pop() {
        for step in world.steps() {
            let mut next = world.clone();
            next.take(step);
            if !known.insert(hashes.hash_one(&next)) {
                continue;
            }
            trace.push((number, step));
            if let Err(fault) = next.check() {
                panic!("{fault}: {:?}: {next:#?}", history(&trace));
            }
            next.seen(sometimes);
            open.push((next, trace.len() - 1));
        }
    }
    known.len()
}

/// The steps to the last state.
fn history(trace: &[(usize, Step)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut number = trace.len() - 1;
    while number > 0 {
        let (before, step) = trace[number];
        steps.push(step);
        number = before;
    }
    steps.reverse();
    steps
}

#[test]
fn no_grant_is_without_somebody_who_knows_it() {
    let plain = Kind { has_session: false, keeps_id: false, has_two: false };
    let with_key = Kind { keeps_id: true, ..plain };
    let with_session = Kind { has_session: true, ..plain };
    let with_both = Kind { has_session: true, keeps_id: true, ..plain };
    let of_two = Kind { has_two: true, ..plain };
    let of_two_with_session = Kind { has_two: true, ..with_session };
    let mut sometimes = BTreeSet::new();
    for kinds in [
        [plain, with_session],
        [with_session, with_key],
        [with_both, plain],
        [with_key, with_both],
        [of_two, of_two_with_session],
        [of_two_with_session, with_both],
    ] {
        let states = explore(kinds, &mut sometimes);
        println!("{kinds:?}: {states} states");
        assert!(states > 1_000, "{kinds:?}: {states}");
    }
    let expected = BTreeSet::from([
        "a long grant is held",
        "a client has read and left, and its grant was extended",
        "an answer was not read, and its grant is short",
        "a heartbeat named a grant whose answer was lost",
        "a release is on its way",
    ]);
    assert_eq!(sometimes, expected);
}
