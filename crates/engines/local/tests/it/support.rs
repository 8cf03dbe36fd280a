//! What the tests share: scratch directories, requests, and waiting for an answer.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use holdline_core::contract::MAX_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, Anchor, ClientId, Ending, Engine, FencingToken, Hint, Hints,
    Hold, LeaseId, LockError, LockKind, LockName, Metadata, Mode, Purpose, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};
use holdline_local::{LocalEngine, LocalOptions};

/// How long an event may take that will surely come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory for one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdline-local-it-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("locks.db")
    }

    pub(crate) fn options(&self) -> LocalOptions {
        LocalOptions::default().with_dir(&self.0).with_transaction_limit(PATIENCE)
    }

    pub(crate) fn open(&self) -> LocalEngine {
        LocalEngine::open(&self.options()).expect("opened")
    }

    /// Opens once live grants that were let go are seen to be over: a process that another test
    /// is just starting has their descriptors, too, until it has become another program.
    pub(crate) fn open_after_live_grants(&self) -> LocalEngine {
        until(|| match LocalEngine::open(&self.options()) {
            Err(error) if error.to_string().contains("still locked") => None,
            opened => Some(opened.expect("opened")),
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; the test fails when it never comes.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        assert!(Instant::now() < deadline, "an answer never came");
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// Waits for the next hint.
pub(crate) fn hint(hints: &mut Hints) -> Hint {
    wait(std::future::poll_fn(|context| hints.as_mut().poll_next(context))).expect("never ends")
}

/// Tries until something is so; the test fails when it never is.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never became so");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(crate) const LEASE: Hold = Hold::Leased(Duration::from_secs(30));

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

/// The lease id and the client of a contender with this number.
pub(crate) fn id(number: u64) -> LeaseId {
    let mut bytes = [0xab; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    LeaseId::from_bytes(bytes)
}

/// A request of the contender with this number; each contender is a client of its own.
pub(crate) fn ask(text: &str, number: u64) -> AcquireRequest {
    AcquireRequest {
        name: name(text),
        lease_id: id(number),
        client: ClientId::from_u64(number),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: LEASE,
        queue: true,
        known: false,
        hand_off_lease: MAX_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

/// The engine's verbs, answered on the spot.
pub(crate) trait Verbs: Engine {
    fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        wait(self.try_acquire(request))
    }

    fn granted(&self, request: &AcquireRequest) -> (FencingToken, Option<Anchor>) {
        match self.acquire(request) {
            Ok(AcquireReply::Granted { token, anchor, .. }) => (token, anchor),
            other => panic!("not granted: {other:?}"),
        }
    }

    fn queued(&self, request: &AcquireRequest) -> usize {
        match self.acquire(request) {
            Ok(AcquireReply::Queued { position: Some(position), .. }) => position,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn line(&self, text: &str, number: u64, purpose: Purpose) -> Result<RenewReply, LockError> {
        let client = ClientId::from_u64(number);
        let line = RenewRequest { name: name(text), lease_id: id(number), client, purpose };
        wait(self.renew(&[line])).remove(0)
    }

    fn end(&self, text: &str, number: u64) -> ReleaseReply {
        let ending = Ending { for_good: false, hold: LEASE };
        let request = ReleaseRequest { name: name(text), lease_id: id(number), ending };
        wait(self.release(&request)).expect("released")
    }

    fn look(&self, text: &str) -> Snapshot {
        wait(self.inspect(&name(text))).expect("seen")
    }
}

impl<E: Engine + ?Sized> Verbs for E {}
