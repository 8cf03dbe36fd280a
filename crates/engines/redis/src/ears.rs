//! The inbox of this process on its server: one subscription, opened when it is first needed.
//!
//! - H1: who asks to be queued with our inbox is queued only after the subscription stands, or
//!   else with none: a hand-off passes over an inbox that nobody hears.
//! - H2: whenever the subscription stands anew, everything that is waited for is looked up again.

use std::future::poll_fn;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Clock, Hints, LeaseId, LockError, RenewReply,
    RenewRequest,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::node::{Heard, Node};

/// What hears the messages to this process. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Ears {
    node: Node,
    clock: Arc<dyn Clock>,
    channel: Vec<u8>,
    watches: Arc<Watches>,
    opened: Mutex<Option<Opened>>,
}

#[derive(Debug)]
struct Opened {
    hears: Arc<Hears>,
    _end: DropGuard,
}

const NOT_YET: u8 = 0;
const HEARS: u8 = 1;
const GONE: u8 = 2;

/// Whether messages are heard.
#[derive(Debug, Default)]
struct Hears {
    state: AtomicU8,
    /// It was waited for in vain, and not heard since: others do not wait again.
    in_vain: AtomicBool,
    bell: Notify,
}

impl Hears {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::SeqCst) == state
    }

    fn set(&self, state: u8) {
        if state == HEARS {
            self.in_vain.store(false, Ordering::SeqCst);
        }
        self.state.store(state, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    /// Waits until messages are heard; false when the task that listens is gone.
    async fn wait(&self) -> bool {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            match self.state.load(Ordering::SeqCst) {
                NOT_YET => rung.await,
                state => return state == HEARS,
            }
        }
    }
}

/// The task that listens; its end is told, also when its runtime drops it.
struct Listener(Arc<Hears>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.set(GONE);
    }
}

impl Ears {
    pub(crate) fn new(
        node: Node,
        clock: Arc<dyn Clock>,
        channel: Vec<u8>,
        watches: Arc<Watches>,
    ) -> Ears {
        Ears { node, clock, channel, watches, opened: Mutex::default() }
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open(&self) {
        drop(self.opened_now());
    }

    fn opened_now(&self) -> Arc<Hears> {
        let mut opened = self.opened.lock();
        match &*opened {
            Some(open) if !open.hears.is(GONE) => open.hears.clone(),
            _ => opened.insert(self.begin()).hears.clone(),
        }
    }

    /// Tells whether messages are heard already.
    pub(crate) fn hears(&self) -> bool {
        let opened = self.opened.lock();
        opened.as_ref().is_some_and(|open| open.hears.is(HEARS))
    }

    /// Begins to listen, and waits until messages are heard; false when that takes too long. Where
    /// it once did, as for a user who may not subscribe, nobody waits until messages are heard.
    pub(crate) async fn hears_within(&self, limit: Duration) -> bool {
        let hears = self.opened_now();
        if hears.is(HEARS) {
            return true;
        }
        if hears.in_vain.load(Ordering::SeqCst) {
            return false;
        }
        let end = self.clock.now().after(limit);
        let heard = tokio::select! {
            biased;
            heard = hears.wait() => heard,
            () = self.clock.sleep_until(end) => false,
        };
        if !heard {
            hears.in_vain.store(true, Ordering::SeqCst);
        }
        heard
    }

    /// Watches a lease id.
    pub(crate) fn watch(&self, lease_id: LeaseId) -> Hints {
        let stream = Watches::open_or_ask(&self.watches, lease_id);
        self.open();
        Box::pin(stream)
    }

    /// Keeps nothing any more for those of the lines that are over.
    pub(crate) fn forget_ended(
        &self,
        lines: &[&RenewRequest],
        replies: &[Result<RenewReply, LockError>],
    ) {
        for (line, reply) in iter::zip(lines, replies) {
            if reply.as_ref().is_ok_and(RenewReply::is_over) {
                self.watches.forget(line.lease_id);
            }
        }
    }

    /// Asks for a name; what is said about it from then on is kept for its watch. `ask` is told
    /// whether this process hears.
    pub(crate) async fn acquire<F>(
        &self,
        request: &AcquireRequest,
        limit: Duration,
        ask: impl FnOnce(bool) -> F,
    ) -> Result<AcquireReply, LockError>
    where
        F: Future<Output = Result<AcquireReply, LockError>>,
    {
        let id = request.lease_id;
        if request.queue {
            // From the script on a hint may come, before the reply is seen and watched for.
            self.watches.expect(id);
        }
        // Who has a place already may have to claim it, and has no time to wait for messages.
        let hears = match request.queue && !request.known {
            true => self.hears_within(limit).await,
            false => self.hears(),
        };
        let reply = ask(hears).await;
        let may_come_yet = match &reply {
            Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
            Err(error) => error.certainty() == Certainty::Unknown,
        };
        if !may_come_yet {
            self.watches.forget(id);
        }
        reply
    }

    fn begin(&self) -> Opened {
        let hears = Arc::new(Hears::default());
        let listener = Listener(hears.clone());
        let end = CancellationToken::new();
        let ended = end.clone();
        let (watches, told) = (self.watches.clone(), self.watches.clone());
        let taker = Box::new(move |message: &[u8]| told.deliver(message));
        let mut inbox = self.node.hear(self.channel.clone(), taker);
        self.node.spawn(Box::pin(async move {
            loop {
                let next = poll_fn(|context| Pin::new(&mut inbox).poll_next(context));
                let heard = tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    heard = next => heard,
                };
                match heard {
                    Some(Heard::Message(_)) => {}
                    Some(Heard::Lost) => listener.0.set(NOT_YET),
                    Some(Heard::Resubscribed) => {
                        listener.0.set(HEARS);
                        watches.tell_all();
                    }
                    None => return,
                }
            }
        }));
        Opened { hears, _end: end.drop_guard() }
    }
}
