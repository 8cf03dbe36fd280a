//! The inbox of this process on its server: one subscription, made when it is first needed.
//!
//! - H1: a request to be queued names our inbox only while its subscription is confirmed, and else
//!   none: a hand-off skips an inbox without a subscriber.
//! - H2: when the subscription is restored, every watch receives a hint to look again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, Clock, Hints, LeaseId, LockError, Moment, RenewReply,
    RenewRequest,
};
use holdline_net::notify::wait_for;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::link::{Link, ServerFacts, SubscriptionEvent};

/// Receives the messages to this process. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct ProcessInbox {
    link: Link,
    clock: Arc<dyn Clock>,
    channel: Vec<u8>,
    watches: Arc<Watches>,
    grants: Grants,
    opened: Mutex<Option<Opened>>,
}

/// What the message of a hand-off is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    /// The grant.
    Believed,
    /// The grant, if it comes from a server that may grant. All connections to the former master,
    /// or to the former run of a server, were closed before this one was subscribed. So the
    /// hand-off is later than each reply that has come from there.
    OfMaster,
    /// A hint to ask: the reply shows whether enough replicas or nodes have the grant.
    Asked,
}

impl Grants {
    /// Returns whether the message of a hand-off that this server has sent is the grant.
    pub(crate) fn counts(self, sender: Option<&ServerFacts>, now: Moment) -> bool {
        match self {
            Grants::Believed => true,
            Grants::OfMaster => sender.is_some_and(|sender| sender.may_grant(now)),
            Grants::Asked => false,
        }
    }
}

#[derive(Debug)]
struct Opened {
    status: Arc<InboxStatus>,
    _end: DropGuard,
}

const CONNECTING: u8 = 0;
const SUBSCRIBED: u8 = 1;
const ENDED: u8 = 2;
/// The user may not subscribe.
const REFUSED: u8 = 3;

/// Whether the subscription is confirmed.
#[derive(Debug, Default)]
struct InboxStatus {
    state: AtomicU8,
    /// A wait for the confirmation has timed out, and none has come since: nobody waits again.
    timed_out: AtomicBool,
    changed: Notify,
}

impl InboxStatus {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::SeqCst) == state
    }

    fn set(&self, state: u8) {
        if state == SUBSCRIBED {
            self.timed_out.store(false, Ordering::SeqCst);
        }
        self.state.store(state, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until the subscription is confirmed; false when it is refused, or its task has ended.
    async fn wait(&self) -> bool {
        let state = wait_for(&self.changed, || {
            let state = self.state.load(Ordering::SeqCst);
            (state != CONNECTING).then_some(state)
        });
        state.await == SUBSCRIBED
    }
}

/// Sets the status when the subscriber's task ends, also when its runtime drops it.
struct EndOfTask(Arc<InboxStatus>);

impl Drop for EndOfTask {
    fn drop(&mut self) {
        self.0.set(ENDED);
    }
}

impl ProcessInbox {
    pub(crate) fn new(
        link: Link,
        clock: Arc<dyn Clock>,
        channel: Vec<u8>,
        watches: Arc<Watches>,
        grants: Grants,
    ) -> ProcessInbox {
        ProcessInbox { link, clock, channel, watches, grants, opened: Mutex::default() }
    }

    /// Starts to subscribe, without waiting for the confirmation.
    pub(crate) fn open(&self) {
        drop(self.status());
    }

    fn status(&self) -> Arc<InboxStatus> {
        let mut opened = self.opened.lock();
        match &*opened {
            Some(open) if !open.status.is(ENDED) => open.status.clone(),
            _ => opened.insert(self.start()).status.clone(),
        }
    }

    /// Returns whether the subscription is confirmed.
    pub(crate) fn is_subscribed(&self) -> bool {
        let opened = self.opened.lock();
        opened.as_ref().is_some_and(|open| open.status.is(SUBSCRIBED))
    }

    /// Starts to subscribe, and waits for the confirmation; false when it is refused, or takes too
    /// long. After one timeout it no longer waits, until a confirmation has come.
    pub(crate) async fn subscribed_within(&self, limit: Duration) -> bool {
        let status = self.status();
        if status.is(SUBSCRIBED) {
            return true;
        }
        if status.timed_out.load(Ordering::SeqCst) {
            return false;
        }
        let end = self.clock.now().after(limit);
        let subscribed = tokio::select! {
            biased;
            subscribed = status.wait() => subscribed,
            () = self.clock.sleep_until(end) => false,
        };
        if !subscribed {
            status.timed_out.store(true, Ordering::SeqCst);
        }
        subscribed
    }

    /// Watches a lease id.
    pub(crate) fn watch(&self, lease_id: LeaseId) -> Hints {
        let stream = Watches::open_or_ask(&self.watches, lease_id);
        self.open();
        Box::pin(stream)
    }

    /// Forgets the lease ids whose renewal was the last.
    pub(crate) fn forget_ended(
        &self,
        renewals: &[&RenewRequest],
        replies: &[Result<RenewReply, LockError>],
    ) {
        self.watches.renewed(renewals.iter().copied(), replies);
    }

    /// Runs a request for a name by `send`, and keeps hints that arrive meanwhile for its watch.
    /// `send` receives whether this process is subscribed.
    pub(crate) async fn acquire<F>(
        &self,
        request: &AcquireRequest,
        limit: Duration,
        send: impl FnOnce(bool) -> F,
    ) -> Result<AcquireReply, LockError>
    where
        F: Future<Output = Result<AcquireReply, LockError>>,
    {
        let id = request.lease_id;
        if request.queue {
            // A hint can come as soon as the script has run, before the reply is read.
            self.watches.expect(id);
        }
        // A contender that is queued already may hold the name by now, and must not wait here.
        let subscribed = if request.queue && !request.known {
            self.subscribed_within(limit).await
        } else {
            self.is_subscribed()
        };
        let reply = send(subscribed).await;
        self.watches.acquired(id, &reply);
        reply
    }

    fn start(&self) -> Opened {
        let status = Arc::new(InboxStatus::default());
        let end_of_task = EndOfTask(status.clone());
        let end = CancellationToken::new();
        let ended = end.clone();
        let watches = self.watches.clone();
        let receiving = self.watches.clone();
        let grants = self.grants;
        let clock = self.clock.clone();
        let handler = Box::new(move |message: &[u8], sender: Option<&ServerFacts>| {
            if grants.counts(sender, clock.now()) {
                receiving.deliver(message);
            } else {
                receiving.deliver_hint(message);
            }
        });
        let mut subscription = self.link.subscribe_with(self.channel.clone(), handler);
        self.link.spawn(Box::pin(async move {
            loop {
                let next = poll_fn(|context| Pin::new(&mut subscription).poll_next(context));
                let event = tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    event = next => event,
                };
                match event {
                    Some(SubscriptionEvent::Message(_)) => {}
                    Some(SubscriptionEvent::Lost) => end_of_task.0.set(CONNECTING),
                    Some(SubscriptionEvent::Refused) => end_of_task.0.set(REFUSED),
                    Some(SubscriptionEvent::Resubscribed) => {
                        end_of_task.0.set(SUBSCRIBED);
                        watches.notify_all();
                    }
                    None => return,
                }
            }
        }));
        Opened { status, _end: end.drop_guard() }
    }
}
