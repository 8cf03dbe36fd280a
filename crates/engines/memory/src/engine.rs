//! The engine: each command is one step of the lock table under one mutex.
//!
//! ```text
//! acquire: under the mutex of the name's shard, the rules of holdline_core::table
//!   -> granted, queued, busy, cancelled, revoked
//! a release hands the name to the first waiter; the hint that wakes it is the grant
//! ```

use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::table::{LockState, MemoryStore, Table, WakeUp};
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, AuditTrail,
    Capabilities, Clock, CountingCommand, CountingReply, Engine, Hints, LatchCommand, LatchReply,
    LeaseId, ListPage, ListRequest, LockError, LockName, Moment, Operation, OperationReply,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use parking_lot::Mutex;

use crate::error::never_fails;
use crate::keys::{Name, Shard, Shards};
use crate::options::MemoryOptions;
use crate::trail::Trail;

/// How many idle names a shard keeps.
const KEPT_NAMES: usize = 64;
/// The number of names at which a shard is first scanned.
const MANY_NAMES: usize = 1_024;
/// How many fading names one command sweeps at most.
const SWEEP_BATCH: usize = 2;

/// The in-process engine. Clones share their names.
#[derive(Clone)]
pub struct MemoryEngine {
    capabilities: Arc<Capabilities>,
    clock: Arc<dyn Clock>,
    shards: Arc<Shards>,
    watches: Arc<Watches>,
    trail: Arc<Mutex<Trail>>,
}

impl MemoryEngine {
    /// Makes an engine with no names. `identity` distinguishes the engines of one process.
    pub fn new(
        identity: impl Into<String>,
        clock: Arc<dyn Clock>,
        options: &MemoryOptions,
    ) -> MemoryEngine {
        let mut capabilities = Capabilities::reference("memory", identity);
        capabilities.max_waiters = options.max_waiters();
        capabilities.latch = true;
        capabilities.audit = AuditTrail::Store;
        MemoryEngine {
            capabilities: Arc::new(capabilities),
            clock,
            shards: Arc::new(Shards::new()),
            watches: Arc::new(Watches::default()),
            trail: Arc::default(),
        }
    }

    /// Runs one step on a name, and notifies the affected clients outside the mutex.
    fn step<T>(
        &self,
        name: &LockName,
        step: impl FnOnce(&mut Table<'_, MemoryStore<'_>>) -> Result<T, Infallible>,
    ) -> T {
        let (reply, wake_ups) = {
            let mut shard = self.shards.of(name).lock();
            let now = self.clock.now();
            sweep(&mut shard, now);
            step_in(&mut shard, &self.capabilities, name, now, step)
        };
        for wake_up in wake_ups {
            self.watches.notify(wake_up.lease_id, wake_up.hint);
        }
        reply
    }
}

/// Runs one step on a name of this shard. A name that is idle afterwards is removed, unless there
/// are few: names that are locked repeatedly keep their entry.
fn step_in<T>(
    shard: &mut Shard,
    profile: &Capabilities,
    name: &LockName,
    now: Moment,
    step: impl FnOnce(&mut Table<'_, MemoryStore<'_>>) -> Result<T, Infallible>,
) -> (T, Vec<WakeUp>) {
    let Shard { names, counter, fading, .. } = shard;
    let few = names.len() <= KEPT_NAMES;
    // A known name is not copied for the look-up, which would slow every cycle down.
    let Stepped { reply, wake_ups, rest } = match names.get_mut(name) {
        Some(known) => step_on(known, counter, profile, now, step),
        None => step_on(names.entry(name.clone()).or_default(), counter, profile, now, step),
    };
    match rest {
        Rest::Nothing if !few => {
            names.remove(name);
        }
        Rest::Fades(until) => {
            fading.insert((until, name.clone()));
        }
        Rest::Nothing | Rest::Use => {}
    }
    (reply, wake_ups)
}

/// What remains of a name after a step.
enum Rest {
    /// It is held or queued for, or is among the fading names already.
    Use,
    /// Only a freeze or tombstones remain, at most until this moment.
    Fades(Moment),
    /// Nothing.
    Nothing,
}

/// What one step on a name has returned, and left of the name.
struct Stepped<T> {
    reply: T,
    wake_ups: Vec<WakeUp>,
    rest: Rest,
}

fn step_on<T>(
    name: &mut Name,
    counter: &mut u64,
    profile: &Capabilities,
    now: Moment,
    step: impl FnOnce(&mut Table<'_, MemoryStore<'_>>) -> Result<T, Infallible>,
) -> Stepped<T> {
    let Name { state, fading } = name;
    let mut store = MemoryStore { queue: &mut state.queue, counter };
    let mut table = Table::new(&mut state.head, &mut store, profile, now);
    let reply = never_fails(step(&mut table));
    let wake_ups = table.into_wake_ups();
    let rest = if state.head.is_idle() {
        Rest::Nothing
    } else if !*fading && is_fading(state) {
        *fading = true;
        Rest::Fades(state.head.over_at())
    } else {
        Rest::Use
    };
    Stepped { reply, wake_ups, rest }
}

/// Removes a few of the names of which only an expired freeze or expired tombstones remained.
fn sweep(shard: &mut Shard, now: Moment) {
    for _ in 0..SWEEP_BATCH {
        if shard.fading.first().is_none_or(|(until, _)| *until > now) {
            break;
        }
        let Some((_, name)) = shard.fading.pop_first() else { break };
        let Entry::Occupied(mut entry) = shard.names.entry(name) else { continue };
        let over_at = entry.get().state.head.over_at();
        if over_at <= now {
            entry.remove();
        } else if is_fading(&entry.get().state) {
            shard.fading.insert((over_at, entry.key().clone()));
        } else {
            entry.get_mut().fading = false;
        }
    }
    if shard.names.len() >= shard.full {
        // Removes the names whose leases have expired and that nobody has used since. Done each
        // time that a shard has doubled, so the cost for each name is constant.
        shard.names.retain(|_, name| name.state.head.over_at() > now);
        shard.full = (2 * shard.names.len()).max(MANY_NAMES);
    }
}

/// Returns whether nobody holds a name or queues for it, but a part of its state must be kept.
fn is_fading(state: &LockState) -> bool {
    state.head.holders().is_empty() && state.head.queued() == 0 && !state.head.is_idle()
}

impl Engine for MemoryEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        Answer::ready(self.step(&request.name, |table| table.acquire(request)))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        let renew = |request: &RenewRequest| self.step(&request.name, |table| table.renew(request));
        Answer::ready(batch.iter().map(renew).collect())
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        Answer::ready(Ok(self.step(&request.name, |table| table.release(request))))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        Answer::ready(Ok(self.step(name, |table| table.inspect(name))))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        let limit = request.limit();
        let mut names = Vec::new();
        for shard in self.shards.all() {
            names.extend(shard.lock().names.keys().filter(|name| request.covers(name)).cloned());
        }
        names.sort_unstable();
        let mut page = ListPage::default();
        for name in names {
            if page.names.len() == limit {
                page.after = page.names.last().map(|last: &Snapshot| last.name.clone());
                break;
            }
            let snapshot = self.step(&name, |table| table.inspect(&name));
            if snapshot.is_used() {
                page.names.push(snapshot);
            }
        }
        Answer::ready(Ok(page))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        let stream = Watches::open(&self.watches, lease_id);
        // Events before the watch was opened are reported now: rule G4 of the contract.
        if let Some(hint) = self.step(name, |table| table.pending_hint(lease_id)) {
            self.watches.notify(lease_id, hint);
        }
        Box::pin(stream)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        if let Some(name) = operation.name() {
            return Answer::ready(self.step(name, |table| table.operate(operation)));
        }
        let checked = operation.check(&self.capabilities);
        if let (Operation::RaiseFence { to }, Ok(())) = (operation, &checked) {
            for shard in self.shards.all() {
                let mut shard = shard.lock();
                shard.counter = shard.counter.max(to.get());
            }
        }
        Answer::ready(checked.map(|()| OperationReply::Done))
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        if let Err(error) = command.check(&self.capabilities) {
            return Answer::ready(Err(error.with_name(name)));
        }
        let mut shard = self.shards.of(name).lock();
        let reply = command.apply(shard.latches.get(name).copied().unwrap_or(0));
        match reply.count {
            0 => drop(shard.latches.remove(name)),
            count => drop(shard.latches.insert(name.clone(), count)),
        }
        Answer::ready(Ok(reply))
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        _: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        Answer::ready(Err(self.capabilities.lacks_counting().with_name(name)))
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        let checked = record.check(&self.capabilities);
        Answer::ready(checked.map(|()| self.trail.lock().append(at_ms, record)))
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        Answer::ready(Ok(self.trail.lock().read(request)))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine")
            .field("identity", &self.capabilities.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, ready};
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use holdline_core::contract::MIN_HAND_OFF_LEASE;
    use holdline_core::{ClientId, Ending, Hint, Hold, Metadata, Mode};

    use super::*;

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn sleep_until(&self, _: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(ready(()))
        }
    }

    fn now<T: Unpin>(answer: Answer<'_, T>) -> T {
        match answer {
            Answer::Ready(Some(value)) => value,
            _ => panic!("memory answers at once"),
        }
    }

    const HOLD: Hold = Hold::Leased(Duration::from_secs(10));

    fn request(name: &str, id: u8) -> AcquireRequest {
        AcquireRequest {
            name: LockName::new(name).expect("good name"),
            lease_id: LeaseId::from_bytes([id; 16]),
            client: ClientId::from_u64(u64::from(id)),
            mode: Mode::Exclusive,
            kind: holdline_core::LockKind::Mutex,
            hold: HOLD,
            queue: true,
            known: false,
            hand_off_lease: MIN_HAND_OFF_LEASE,
            metadata: Metadata::default(),
        }
    }

    fn release(name: &str, id: u8, for_good: bool) -> ReleaseRequest {
        ReleaseRequest {
            name: LockName::new(name).expect("good name"),
            lease_id: LeaseId::from_bytes([id; 16]),
            ending: Ending { for_good, hold: HOLD },
        }
    }

    fn engine() -> (MemoryEngine, Arc<Hand>) {
        let clock = Arc::new(Hand::default());
        (MemoryEngine::new("test", clock.clone(), &MemoryOptions::default()), clock)
    }

    fn poll(hints: &mut Hints) -> Poll<Option<Hint>> {
        hints.as_mut().poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_watch_reports_a_hand_off_before_and_after_its_opening() {
        let (engine, _) = engine();
        for id in [1, 2, 3] {
            now(engine.try_acquire(&request("a", id))).expect("granted or queued");
        }
        let name = LockName::new("a").expect("good name");
        let mut early = engine.watch(&name, LeaseId::from_bytes([2; 16]));
        assert_eq!(poll(&mut early), Poll::Pending);
        now(engine.release(&release("a", 1, false))).expect("released");
        let AcquireReply::Granted { token, .. } =
            now(engine.try_acquire(&request("a", 2))).expect("handed over")
        else {
            panic!("it was handed the name")
        };
        assert_eq!(poll(&mut early), Poll::Ready(Some(Hint::Granted { token })));
        assert_eq!(poll(&mut early), Poll::Pending);
        let mut late = engine.watch(&name, LeaseId::from_bytes([2; 16]));
        assert_eq!(poll(&mut late), Poll::Ready(Some(Hint::Granted { token })));
        drop((early, late));
        assert!(engine.watches.is_empty());
    }

    /// Once only the polite revoke was reported: a forced one left nothing that the watch checked.
    #[test]
    fn a_watch_reports_an_earlier_revoke() {
        let (engine, _) = engine();
        let name = LockName::new("a").expect("good name");
        for (id, forced) in [(1, true), (2, false)] {
            let AcquireReply::Granted { token, .. } =
                now(engine.try_acquire(&request("a", id))).expect("granted")
            else {
                panic!("the name is free")
            };
            let mut calm = engine.watch(&name, LeaseId::from_bytes([id; 16]));
            assert_eq!(poll(&mut calm), Poll::Ready(Some(Hint::Granted { token })));
            drop(calm);
            let reason = String::new();
            let revoke = Operation::Revoke { name: name.clone(), token, reason, now: forced };
            now(engine.operate(&revoke)).expect("revoked");
            let mut watch = engine.watch(&name, LeaseId::from_bytes([id; 16]));
            assert_eq!(poll(&mut watch), Poll::Ready(Some(Hint::CheckLease)), "forced: {forced}");
        }
    }

    #[test]
    fn idle_names_are_removed_and_tombstones_after_a_while() {
        let (engine, clock) = engine();
        for n in 0..20_000 {
            let name = format!("n{n}");
            now(engine.try_acquire(&request(&name, 1))).expect("granted");
            now(engine.release(&release(&name, 1, n % 2 == 0))).expect("released");
        }
        let kept = |engine: &MemoryEngine| -> usize {
            engine.shards.all().map(|shard| shard.lock().names.len()).sum()
        };
        assert!((10_000..=10_000 + 16 * KEPT_NAMES).contains(&kept(&engine)));
        clock.0.store(31_000_000_000, Ordering::SeqCst);
        for n in 0..20_000 {
            let name = format!("m{n}");
            now(engine.try_acquire(&request(&name, 1))).expect("granted");
            now(engine.release(&release(&name, 1, false))).expect("released");
        }
        assert!(kept(&engine) <= 16 * KEPT_NAMES);
    }

    /// Once a frozen name was in the list of fading names for each try, and all names after it were
    /// kept until the freeze was over.
    #[test]
    fn tries_on_a_frozen_name_leave_nothing_and_block_no_other_name() {
        let (engine, clock) = engine();
        // The last bytes and the length choose the shard, so all of these share one.
        let name = |n: usize| format!("{n:06}/the same end");
        let frozen = LockName::new(name(0)).expect("good name");
        let duration = Duration::from_secs(86_400);
        let reason = String::new();
        let freeze = Operation::Freeze { name: frozen.clone(), duration, reason };
        now(engine.operate(&freeze)).expect("frozen");
        for _ in 0..1_000 {
            let request = AcquireRequest { queue: false, ..request(&name(0), 1) };
            now(engine.try_acquire(&request)).expect("busy");
        }
        for n in 1..=1_000 {
            now(engine.try_acquire(&request(&name(n), 1))).expect("granted");
            now(engine.release(&release(&name(n), 1, true))).expect("released");
        }
        assert_eq!(engine.shards.of(&frozen).lock().fading.len(), 1_001);
        clock.0.store(31_000_000_000, Ordering::SeqCst);
        for _ in 0..1_000 {
            now(engine.inspect(&frozen)).expect("a look");
        }
        let shard = engine.shards.of(&frozen).lock();
        assert_eq!(shard.fading.len(), 1);
        assert!(shard.names.len() <= KEPT_NAMES + 1, "{} are kept", shard.names.len());
    }

    #[test]
    fn names_with_expired_leases_are_removed() {
        let (engine, clock) = engine();
        let kept = |engine: &MemoryEngine| -> usize {
            engine.shards.all().map(|shard| shard.lock().names.len()).sum()
        };
        for round in 0..10 {
            for n in 0..40_000 {
                now(engine.try_acquire(&request(&format!("{round}/{n}"), 1))).expect("granted");
            }
            clock.0.fetch_add(11_000_000_000, Ordering::SeqCst);
        }
        assert!(kept(&engine) < 150_000, "{} of 400000 are kept", kept(&engine));
    }

    #[test]
    fn pages_are_in_order_and_end() {
        let (engine, _) = engine();
        for n in 0..25 {
            now(engine.try_acquire(&request(&format!("p/{n:02}"), 1))).expect("granted");
        }
        now(engine.try_acquire(&request("q", 1))).expect("granted");
        let mut request = ListRequest { prefix: "p/".into(), after: None, limit: 10 };
        let mut seen = Vec::new();
        for _ in 0..3 {
            let page = now(engine.list(&request)).expect("a page");
            seen.extend(page.names.iter().map(|snapshot| snapshot.name.to_string()));
            request.after = page.after;
        }
        assert_eq!(request.after, None);
        assert_eq!(seen, (0..25).map(|n| format!("p/{n:02}")).collect::<Vec<_>>());
    }
}
