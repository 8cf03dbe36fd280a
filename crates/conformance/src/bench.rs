//! The tools of a case: clients of the store, contenders, and time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdline_core::contract::{
    MAX_HAND_OFF_LEASE, MIN_HAND_OFF_LEASE, QUEUE_HEARTBEAT, QUEUE_SILENCE,
};
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, ClientId, Ending, Engine, Expiry, FencingToken,
    Hold, LeaseId, LockError, LockKind, LockName, Metadata, Mode, Operation, OperationReply,
    Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use crate::asking::Random;
use crate::factory::{Disturbance, Disturbed, Factory, Scale, Time};
use crate::failure::{Failure, ensure};
use crate::stalls;

/// How many clients of the store the suite opens. Contenders take them in turn.
const CLIENTS: usize = 4;
/// How long to wait, by a real clock, for what must come at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The place where cases run.
#[derive(Clone)]
pub struct Bench(Arc<BenchParts>);

struct BenchParts {
    factory: Arc<dyn Factory>,
    scale: Scale,
    time: Time,
    capabilities: Capabilities,
    clients: Vec<Client>,
    next_client: AtomicUsize,
    next_name: AtomicUsize,
    run: String,
}

/// One client of the store.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) id: ClientId,
}

impl Client {
    /// Returns this client as it is on one name. Where leases end by session, all that a client
    /// has kept alive on other names would keep those of this name alive too: there each name
    /// has a client of its own, over the same connection.
    pub(crate) fn on(&self, name: &LockName) -> Client {
        let id = match self.engine.capabilities().expiry {
            Expiry::Session => {
                let mut hasher = DefaultHasher::new();
                (self.id, name).hash(&mut hasher);
                ClientId::from_u64(hasher.finish())
            }
            Expiry::Lease | Expiry::Live => self.id,
        };
        Client { engine: self.engine.clone(), id }
    }

    /// Sends a batch of one renewal.
    pub(crate) async fn renew(&self, renewal: &RenewRequest) -> Result<RenewReply, LockError> {
        let mut replies = self.engine.renew(std::slice::from_ref(renewal)).await;
        match replies.pop() {
            Some(reply) if replies.is_empty() => reply,
            _ => Err(LockError::invalid(
                self.engine.capabilities().engine,
                "batch",
                "one renewal was sent and not exactly one reply came",
            )),
        }
    }
}

impl Bench {
    /// Opens the clients.
    ///
    /// # Errors
    /// What `open` said, or that the clients do not agree about what they are.
    pub async fn open(factory: Arc<dyn Factory>) -> Result<Bench, Failure> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let engine = factory.open().await?;
            clients.push(Client { engine, id: ClientId::random(&mut Random) });
        }
        let capabilities = clients[0].engine.capabilities().clone();
        for client in &clients {
            let other = client.engine.capabilities();
            ensure!(*other == capabilities, "clients of one store differ: {other:?}");
        }
        let scale = factory.scale();
        Ok(Bench::of(factory, scale, clients, capabilities))
    }

    /// Returns a bench with the same clients, under unused names and with a slower scale.
    pub(crate) fn slower(&self) -> Bench {
        let parts = &self.0;
        let scale = parts.scale.slower();
        Bench::of(parts.factory.clone(), scale, parts.clients.clone(), parts.capabilities.clone())
    }

    fn of(
        factory: Arc<dyn Factory>,
        scale: Scale,
        clients: Vec<Client>,
        capabilities: Capabilities,
    ) -> Bench {
        Bench(Arc::new(BenchParts {
            time: factory.time(),
            factory,
            scale,
            capabilities,
            clients,
            next_client: AtomicUsize::new(0),
            next_name: AtomicUsize::new(0),
            run: LeaseId::random(&mut Random).short().to_string(),
        }))
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    pub(crate) fn factory(&self) -> &Arc<dyn Factory> {
        &self.0.factory
    }

    pub(crate) fn scale(&self) -> Scale {
        self.0.scale
    }

    pub(crate) fn time(&self) -> &Time {
        &self.0.time
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.0.clients
    }

    /// Returns a short lease: on a real clock one that outlasts a few commands on a busy machine.
    pub(crate) fn lease(&self) -> Duration {
        let lease = self.scale().lease;
        if self.0.time.is_manual() { lease } else { lease * 2 }
    }

    /// Returns a lease that nothing in a case outlives.
    pub(crate) fn long_lease(&self) -> Duration {
        Duration::from_secs(30).min(self.0.capabilities.lease.max)
    }

    /// Returns an unused name.
    pub(crate) fn name(&self) -> LockName {
        let number = self.0.next_name.fetch_add(1, Ordering::Relaxed);
        self.named(&number.to_string())
    }

    /// Returns an unused name that ends in this text.
    pub(crate) fn named(&self, end: &str) -> LockName {
        match LockName::new(format!("conformance/{}/{end}", self.0.run)) {
            Ok(name) => name,
            Err(error) => unreachable!("the suite makes good names: {error}"),
        }
    }

    /// Returns a contender for `name` on the next client, with a fresh lease id: exclusive, for
    /// the long lease, and with the longest lease of a hand-off.
    pub(crate) fn contender(&self, name: &LockName) -> BenchContender {
        let turn = self.0.next_client.fetch_add(1, Ordering::Relaxed);
        self.contender_on(turn, name)
    }

    /// Returns a contender on a given client.
    pub(crate) fn contender_on(&self, client: usize, name: &LockName) -> BenchContender {
        let client = self.0.clients[client % self.0.clients.len()].on(name);
        BenchContender {
            known: Arc::default(),
            request: AcquireRequest {
                name: name.clone(),
                lease_id: LeaseId::random(&mut Random),
                client: client.id,
                mode: Mode::Exclusive,
                kind: LockKind::Mutex,
                hold: Hold::Leased(self.long_lease()),
                queue: false,
                known: false,
                hand_off_lease: MAX_HAND_OFF_LEASE,
                metadata: Metadata::default(),
            },
            client,
        }
    }

    /// Returns after how much silence a contender with this lease is dropped from the queue.
    pub(crate) fn silence(&self, lease: Duration) -> Duration {
        match self.0.capabilities.expiry {
            Expiry::Session => lease,
            Expiry::Lease | Expiry::Live => QUEUE_SILENCE,
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, by: Duration) {
        let began = Instant::now();
        self.0.time.pass(by).await;
        stalls::note(began, by);
    }

    /// Lets time pass until a lease that was given by now is certainly over in the store.
    pub(crate) async fn outlive(&self, lease: Duration) {
        let Capabilities { lag, lease: range, .. } = self.0.capabilities;
        self.pass(lease + lag + range.step + self.grain()).await;
    }

    /// Lets a lease run out as [`Bench::outlive`] does, while these contenders send their queue
    /// heartbeats.
    pub(crate) async fn outlive_with(
        &self,
        lease: Duration,
        waiting: &[&BenchContender],
    ) -> Result<(), Failure> {
        let Capabilities { lag, lease: range, .. } = self.0.capabilities;
        let end = self.0.time.now().after(lease + lag + range.step + self.grain());
        loop {
            let left = self.0.time.now().until(end);
            if left.is_zero() {
                return Ok(());
            }
            self.pass(left.min(QUEUE_HEARTBEAT)).await;
            for contender in waiting {
                contender.beat().await?;
            }
        }
    }

    /// Returns the smallest time that the suite distinguishes.
    fn grain(&self) -> Duration {
        if self.0.time.is_manual() { Duration::from_millis(1) } else { Duration::from_millis(20) }
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.clients[0].engine.inspect(name).await
    }

    pub(crate) async fn operate(&self, operation: Operation) -> Result<OperationReply, LockError> {
        self.0.clients[CLIENTS - 1].engine.operate(&operation).await
    }

    pub(crate) async fn disturb(&self, disturbance: Disturbance) -> Disturbed {
        self.0.factory.disturb(&disturbance).await
    }
}

/// One attempt to hold one name, under one lease id.
#[derive(Clone)]
pub(crate) struct BenchContender {
    client: Client,
    /// Whether the store has answered that it holds or queues: from then on it must know the id.
    known: Arc<AtomicBool>,
    pub(crate) request: AcquireRequest,
}

/// What a contender was granted.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) left: Option<Duration>,
    pub(crate) anchor: Option<holdline_core::Anchor>,
}

impl BenchContender {
    pub(crate) fn with_mode(mut self, mode: Mode) -> BenchContender {
        self.request.mode = mode;
        self
    }

    pub(crate) fn with_hold(mut self, hold: Hold) -> BenchContender {
        self.request.hold = hold;
        self
    }

    pub(crate) fn for_lease(self, lease: Duration) -> BenchContender {
        self.with_hold(Hold::Leased(lease))
    }

    /// Makes its hand-off run out soon.
    pub(crate) fn in_a_hurry(mut self) -> BenchContender {
        self.request.hand_off_lease = MIN_HAND_OFF_LEASE;
        self
    }

    /// Returns the same contender with a fresh lease id.
    pub(crate) fn anew(&self) -> BenchContender {
        let mut anew = self.clone();
        anew.request.lease_id = LeaseId::random(&mut Random);
        anew.known = Arc::default();
        anew
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.request.lease_id
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.client.engine
    }

    /// Lets it ask from now on as after an answer that it is queued.
    pub(crate) fn ask_as_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Requests the name, and queues if `queue` is set.
    pub(crate) async fn ask(&self, queue: bool) -> Result<AcquireReply, LockError> {
        let known = self.known.load(Ordering::Relaxed);
        let request = AcquireRequest { queue, known, ..self.request.clone() };
        let began = Instant::now();
        let answer = self.client.engine.try_acquire(&request).await;
        stalls::note(began, Duration::ZERO);
        if let Ok(AcquireReply::Queued { .. }) = answer {
            self.known.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Asks and must be granted, fresh or again.
    pub(crate) async fn take(&self) -> Result<Grant, Failure> {
        match self.ask(self.request.queue).await? {
            AcquireReply::Granted { token, left, anchor } => Ok(Grant { token, left, anchor }),
            other => Err(Failure::new(format_args!("expected a grant, got {other:?}"))),
        }
    }

    /// Requests the name, which must be busy.
    pub(crate) async fn is_refused(&self) -> Result<(), Failure> {
        match self.ask(false).await? {
            AcquireReply::Busy { .. } => Ok(()),
            other => Err(Failure::new(format_args!("expected busy, got {other:?}"))),
        }
    }

    /// Requests the name and must be queued; returns how many are ahead, if the engine knows.
    pub(crate) async fn queue(&mut self) -> Result<Option<usize>, Failure> {
        self.request.queue = true;
        match self.ask(true).await? {
            AcquireReply::Queued { position, .. } => Ok(position),
            other => {
                Err(Failure::new(format_args!("expected a place in the queue, got {other:?}")))
            }
        }
    }

    /// Renews the grant with the hold that was asked for.
    pub(crate) async fn keep(&self) -> Result<RenewReply, LockError> {
        self.renew(Purpose::Keep(self.request.hold)).await
    }

    /// Sends the queue heartbeat of this entry.
    pub(crate) async fn beat(&self) -> Result<RenewReply, LockError> {
        self.renew(Purpose::Wait).await
    }

    pub(crate) async fn renew(&self, purpose: Purpose) -> Result<RenewReply, LockError> {
        let began = Instant::now();
        let reply = self.client.renew(&self.renewal(purpose)).await;
        stalls::note(began, Duration::ZERO);
        reply
    }

    /// Returns this contender's renewal, for a batch.
    pub(crate) fn renewal(&self, purpose: Purpose) -> RenewRequest {
        RenewRequest {
            name: self.request.name.clone(),
            lease_id: self.request.lease_id,
            client: self.client.id,
            purpose,
        }
    }

    /// Beats until the name is handed over, which must be soon.
    pub(crate) async fn is_handed(&self) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            match self.beat().await? {
                RenewReply::Held { .. } => return Ok(()),
                RenewReply::Queued { .. } if started.elapsed() < SOON => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                other => {
                    return Err(Failure::new(format_args!("expected a hand-off, got {other:?}")));
                }
            }
        }
    }

    pub(crate) async fn release(&self) -> Result<ReleaseReply, LockError> {
        self.end(false).await
    }

    pub(crate) async fn give_up(&self) -> Result<ReleaseReply, LockError> {
        self.end(true).await
    }

    async fn end(&self, for_good: bool) -> Result<ReleaseReply, LockError> {
        let request = ReleaseRequest {
            name: self.request.name.clone(),
            lease_id: self.request.lease_id,
            ending: Ending { for_good, hold: self.request.hold },
        };
        let began = Instant::now();
        let reply = self.client.engine.release(&request).await;
        stalls::note(began, Duration::ZERO);
        reply
    }

    /// Releases, and must have held.
    pub(crate) async fn let_go(&self) -> Result<(), Failure> {
        match self.release().await? {
            ReleaseReply::Released { .. } => Ok(()),
            other => Err(Failure::new(format_args!("expected a release, got {other:?}"))),
        }
    }
}
