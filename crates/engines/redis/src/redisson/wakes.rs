//! Hints from Redisson's messages: one subscription for each channel on which somebody waits.
//!
//! - W1: a message that comes after a request was sent wakes the watch that opens after its reply:
//!   what has come on the channel since then is counted.
//! - W2: when a subscription is confirmed, also anew, every watch of the channel receives a hint.
//! - W3: a channel that nobody watches any more stays subscribed for a short time, as the next
//!   contender of a busy name soon comes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::hints::{WatchStream, Watches};
use holdline_core::{Clock, Hint, Hints, LeaseId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::link::{Subscription, SubscriptionEvent};
use crate::plain::NoHints;
use crate::route::Route;

/// For how long an unwatched channel stays subscribed.
const LINGER: Duration = Duration::from_secs(5);
/// How soon a subscription that was lost is made again.
const RETRY: Duration = Duration::from_millis(100);
/// How many replies are remembered; of more, the oldest are forgotten, and their watches get no
/// hints.
const ROOM: usize = 16_384;

/// A channel, and the slot to which it belongs in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChannelName {
    pub(super) text: String,
    pub(super) slot: u16,
}

/// The channels on which this process waits. Dropping it ends the subscriptions.
pub(super) struct Wakes {
    parts: Arc<WakesParts>,
    _end: DropGuard,
}

struct WakesParts {
    route: Arc<Route>,
    clock: Arc<dyn Clock>,
    watches: Arc<Watches>,
    replies: Mutex<Replies>,
    channels: Mutex<HashMap<ChannelName, Arc<Channel>>>,
    end: CancellationToken,
}

/// The latest replies, by lease id.
#[derive(Default)]
struct Replies {
    by_id: HashMap<LeaseId, Reply>,
    order: VecDeque<LeaseId>,
}

struct Reply {
    channel: ChannelName,
    hint: Hint,
    /// How many messages had come when the request was sent; `None` without a subscription.
    seen: Option<u64>,
}

#[derive(Default)]
struct Channel {
    state: Mutex<ChannelState>,
    unwatched: Notify,
}

#[derive(Default)]
struct ChannelState {
    confirmed: bool,
    messages: u64,
    watching: BTreeMap<LeaseId, Hint>,
}

impl Wakes {
    pub(super) fn new(route: Arc<Route>, clock: Arc<dyn Clock>) -> Wakes {
        let end = CancellationToken::new();
        let parts = Arc::new(WakesParts {
            route,
            clock,
            watches: Arc::default(),
            replies: Mutex::default(),
            channels: Mutex::default(),
            end: end.clone(),
        });
        Wakes { parts, _end: end.drop_guard() }
    }

    /// Returns how many messages have come on a channel; `None` while it is not subscribed.
    pub(super) fn seen(&self, channel: &ChannelName) -> Option<u64> {
        let channels = self.parts.channels.lock();
        let state = channels.get(channel)?.state.lock();
        state.confirmed.then_some(state.messages)
    }

    /// Notes the channel on which a lease id is notified from now on, and by which hint.
    pub(super) fn expect(
        &self,
        lease_id: LeaseId,
        channel: ChannelName,
        hint: Hint,
        seen: Option<u64>,
    ) {
        let mut replies = self.parts.replies.lock();
        if replies.by_id.insert(lease_id, Reply { channel, hint, seen }).is_none() {
            replies.order.push_back(lease_id);
        }
        while replies.order.len() > ROOM {
            if let Some(oldest) = replies.order.pop_front() {
                replies.by_id.remove(&oldest);
            }
        }
    }

    /// Watches a lease id about which a reply has come.
    pub(super) fn watch(&self, lease_id: LeaseId) -> Hints {
        let parts = &self.parts;
        let replies = parts.replies.lock();
        let Some(reply) = replies.by_id.get(&lease_id) else { return Box::pin(NoHints) };
        let stream = Watches::open(&parts.watches, lease_id);
        let (channel, missed) = {
            let mut channels = parts.channels.lock();
            let known = channels.get(&reply.channel).cloned();
            let channel = known.unwrap_or_else(|| {
                let new = Arc::new(Channel::default());
                channels.insert(reply.channel.clone(), new.clone());
                parts.start(reply.channel.clone(), new.clone());
                new
            });
            let mut state = channel.state.lock();
            state.watching.insert(lease_id, reply.hint);
            let missed = state.confirmed && reply.seen != Some(state.messages);
            drop(state);
            (channel, missed)
        };
        if missed {
            parts.watches.notify(lease_id, reply.hint);
        }
        Box::pin(ChannelWatch { stream, lease_id, channel })
    }
}

/// The hints of one watch.
struct ChannelWatch {
    stream: WatchStream,
    lease_id: LeaseId,
    channel: Arc<Channel>,
}

impl Stream for ChannelWatch {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        Pin::new(&mut self.stream).poll_next(context)
    }
}

impl Drop for ChannelWatch {
    fn drop(&mut self) {
        let mut state = self.channel.state.lock();
        state.watching.remove(&self.lease_id);
        if state.watching.is_empty() {
            self.channel.unwatched.notify_one();
        }
    }
}

/// Why the events of a subscription end.
enum EventsEnd {
    /// The channel is not watched any more.
    Unwatched,
    /// It must be subscribed anew, perhaps at another node.
    Lost,
}

impl WakesParts {
    /// Starts to receive the messages of a channel.
    fn start(self: &Arc<WakesParts>, name: ChannelName, channel: Arc<Channel>) {
        let parts = self.clone();
        let end = self.end.clone();
        self.route.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = parts.receive(&name, &channel) => {}
            }
        }));
    }

    /// Receives messages until the channel is not watched any more.
    async fn receive(&self, name: &ChannelName, channel: &Channel) {
        loop {
            if let Ok(mut subscriptions) = self.route.subscribe(&name.text, name.slot).await {
                match self.handle_events(name, channel, &mut subscriptions).await {
                    EventsEnd::Unwatched => return,
                    EventsEnd::Lost => {}
                }
            }
            if self.forget_unwatched(name, channel) {
                return;
            }
            self.clock.sleep_until(self.clock.now().after(RETRY)).await;
        }
    }

    async fn handle_events(
        &self,
        name: &ChannelName,
        channel: &Channel,
        subscriptions: &mut [Subscription],
    ) -> EventsEnd {
        loop {
            let event = tokio::select! {
                biased;
                event = next_event(subscriptions) => event,
                () = self.unwatched(channel) => {
                    if self.forget_unwatched(name, channel) {
                        return EventsEnd::Unwatched;
                    }
                    continue;
                }
            };
            match event {
                Some(SubscriptionEvent::Message(message)) => {
                    let wakes = message_wakes(name, &message);
                    channel.state.lock().messages += 1;
                    self.notify(channel, wakes);
                }
                Some(SubscriptionEvent::Resubscribed) => {
                    channel.state.lock().confirmed = true;
                    self.notify(channel, usize::MAX);
                }
                Some(SubscriptionEvent::Lost) => {
                    channel.state.lock().confirmed = false;
                    if self.route.is_of_cluster() {
                        return EventsEnd::Lost;
                    }
                }
                Some(SubscriptionEvent::Refused) => {}
                // The link has ended.
                None => return EventsEnd::Unwatched,
            }
        }
    }

    /// Notifies watches of a channel, at most this many.
    fn notify(&self, channel: &Channel, most: usize) {
        let watching: Vec<(LeaseId, Hint)> = {
            let state = channel.state.lock();
            state.watching.iter().take(most).map(|(id, hint)| (*id, *hint)).collect()
        };
        for (id, hint) in watching {
            self.watches.notify(id, hint);
        }
    }

    /// Resolves when the channel has been unwatched for a while.
    async fn unwatched(&self, channel: &Channel) {
        while !channel.state.lock().watching.is_empty() {
            channel.unwatched.notified().await;
        }
        self.clock.sleep_until(self.clock.now().after(LINGER)).await;
    }

    /// Forgets the channel if nobody watches it.
    fn forget_unwatched(&self, name: &ChannelName, channel: &Channel) -> bool {
        let mut channels = self.channels.lock();
        if !channel.state.lock().watching.is_empty() {
            return false;
        }
        channels.remove(name);
        true
    }
}

/// Returns how many waiters a message concerns: that of a semaphore says how many permits are free.
fn message_wakes(name: &ChannelName, message: &[u8]) -> usize {
    let permits = || std::str::from_utf8(message).ok()?.parse::<i64>().ok();
    if name.text.starts_with(super::names::SEMAPHORE_CHANNEL) {
        permits().map_or(usize::MAX, |free| usize::try_from(free).unwrap_or(0))
    } else {
        usize::MAX
    }
}

async fn next_event(subscriptions: &mut [Subscription]) -> Option<SubscriptionEvent> {
    poll_fn(|context| {
        for subscription in subscriptions.iter_mut() {
            if let Poll::Ready(event) = Pin::new(subscription).poll_next(context) {
                return Poll::Ready(event);
            }
        }
        Poll::Pending
    })
    .await
}
