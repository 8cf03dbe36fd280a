//! Which channels are subscribed, and who receives their messages.
//!
//! - Invariant H1: a subscription that lost messages yields [`SubscriptionEvent::Resubscribed`]: it
//!   never loses one silently. A new subscription yields it too, and one that was restored.
//! - Invariant H2: between [`SubscriptionEvent::Lost`] and [`SubscriptionEvent::Resubscribed`] the
//!   server counts no subscriber of the channel here.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};

use super::facts::ServerFacts;
use super::value::Value;

/// How many messages a subscription buffers before it drops them all and yields `Resubscribed`.
const CAPACITY: usize = 1_024;

/// What a subscription yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionEvent {
    /// A message on the channel.
    Message(Vec<u8>),
    /// Messages may have been missed: check everything again. Also the first event of a new
    /// subscription, once the server has confirmed it.
    Resubscribed,
    /// The subscription is down; it is being restored.
    Lost,
    /// The server does not let this user subscribe. It is asked again on the next connection.
    Refused,
}

/// Receives the messages of a channel as they are read, and what is known of the server that sent
/// them; it must not block.
pub(crate) type MessageHandler = Box<dyn Fn(&[u8], Option<&ServerFacts>) + Send + Sync>;

/// How a channel is subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By `SUBSCRIBE`.
    Plain,
    /// By `SSUBSCRIBE`, at the node of a cluster that serves the channel's slot. When it no longer
    /// does, the subscription yields [`SubscriptionEvent::Lost`].
    Sharded,
}

/// The events of one channel. Dropping it unsubscribes.
pub(crate) struct Subscription {
    channel: Vec<u8>,
    form: Form,
    subscriber: Arc<Subscriber>,
    subscriptions: Weak<Subscriptions>,
}

/// One receiver of a channel.
#[derive(Default)]
struct Subscriber {
    mailbox: Mutex<Mailbox>,
    /// Receives the messages in place of the mailbox: that saves a switch of tasks for each.
    handler: Option<MessageHandler>,
}

#[derive(Default)]
struct Mailbox {
    messages: VecDeque<Vec<u8>>,
    missed: bool,
    lost: bool,
    refused: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Subscriber {
    /// Buffers a message, or with `None` notes that some were missed.
    fn push(&self, message: Option<&[u8]>) {
        let mut mailbox = self.mailbox.lock();
        match message {
            Some(message) if mailbox.messages.len() < CAPACITY && !mailbox.missed => {
                mailbox.messages.push_back(message.to_vec());
            }
            _ => {
                mailbox.messages.clear();
                mailbox.missed = true;
            }
        }
        drop(mailbox);
        self.wake();
    }

    /// Notes that the server refuses the subscription.
    fn refuse(&self) {
        self.mailbox.lock().refused = true;
        self.wake();
    }

    fn wake(&self) {
        let waker = self.mailbox.lock().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl futures_core::Stream for Subscription {
    type Item = SubscriptionEvent;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<SubscriptionEvent>> {
        let mut mailbox = self.subscriber.mailbox.lock();
        if std::mem::take(&mut mailbox.lost) {
            return Poll::Ready(Some(SubscriptionEvent::Lost));
        }
        if std::mem::take(&mut mailbox.refused) {
            return Poll::Ready(Some(SubscriptionEvent::Refused));
        }
        if std::mem::take(&mut mailbox.missed) {
            return Poll::Ready(Some(SubscriptionEvent::Resubscribed));
        }
        if let Some(message) = mailbox.messages.pop_front() {
            return Poll::Ready(Some(SubscriptionEvent::Message(message)));
        }
        if mailbox.closed {
            return Poll::Ready(None);
        }
        mailbox.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(subscriptions) = self.subscriptions.upgrade() {
            subscriptions.unsubscribe(self.form, &self.channel, &self.subscriber);
        }
    }
}

#[derive(Default)]
struct Channel {
    subscribers: Vec<Arc<Subscriber>>,
    /// The connection on which it is subscribed, or refused.
    on: Option<u64>,
    refused: bool,
}

impl Channel {
    /// Notifies all subscribers that the subscription is down.
    fn mark_lost(&self) {
        for subscriber in &self.subscribers {
            let mut mailbox = subscriber.mailbox.lock();
            // `Resubscribed` follows when the subscription is restored, and covers what was missed.
            mailbox.lost = true;
            mailbox.missed = false;
            drop(mailbox);
            subscriber.wake();
        }
    }
}

/// The commands that bring a connection's subscriptions up to date.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SubscriptionChanges {
    pub(super) subscribe: Vec<Vec<u8>>,
    pub(super) unsubscribe: Vec<Vec<u8>>,
}

impl SubscriptionChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.subscribe.is_empty() && self.unsubscribe.is_empty()
    }
}

/// The subscriptions of a link.
#[derive(Default)]
pub(super) struct Subscriptions {
    plain: Mutex<Channels>,
    sharded: Mutex<Channels>,
    changed: tokio::sync::Notify,
}

type Channels = BTreeMap<Vec<u8>, Channel>;

impl Subscriptions {
    fn channels(&self, form: Form) -> MutexGuard<'_, Channels> {
        match form {
            Form::Plain => self.plain.lock(),
            Form::Sharded => self.sharded.lock(),
        }
    }

    /// Adds a subscriber, and wakes the task that maintains the subscriptions.
    pub(super) fn subscribe(
        self: &Arc<Subscriptions>,
        form: Form,
        channel: Vec<u8>,
        handler: Option<MessageHandler>,
    ) -> Subscription {
        let subscriber = Arc::new(Subscriber { mailbox: Mutex::default(), handler });
        let mut channels = self.channels(form);
        let entry = channels.entry(channel.clone()).or_default();
        // If the channel is subscribed already, the server confirms nothing more.
        {
            let mut mailbox = subscriber.mailbox.lock();
            mailbox.missed = entry.on.is_some() && !entry.refused;
            mailbox.refused = entry.on.is_some() && entry.refused;
        }
        entry.subscribers.push(subscriber.clone());
        drop(channels);
        self.changed.notify_one();
        Subscription { channel, form, subscriber, subscriptions: Arc::downgrade(self) }
    }

    fn unsubscribe(&self, form: Form, channel: &[u8], subscriber: &Arc<Subscriber>) {
        if let Some(entry) = self.channels(form).get_mut(channel) {
            entry.subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
        }
        self.changed.notify_one();
    }

    /// Resolves when subscriptions were added or dropped since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the commands that the connection `on` needs; forgets channels without subscribers.
    pub(super) fn changes(&self, form: Form, on: u64) -> SubscriptionChanges {
        let mut changes = SubscriptionChanges::default();
        self.channels(form).retain(|name, channel| {
            let here = channel.on == Some(on);
            match (channel.subscribers.is_empty(), here) {
                (false, false) => changes.subscribe.push(name.clone()),
                (true, true) => changes.unsubscribe.push(name.clone()),
                _ => {}
            }
            !channel.subscribers.is_empty()
        });
        changes
    }

    /// Notes that the channels are subscribed on a connection; notifies their subscribers.
    pub(super) fn confirmed(&self, form: Form, names: &[Vec<u8>], on: u64) {
        let mut channels = self.channels(form);
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                channel.on = Some(on);
                channel.refused = false;
                channel.subscribers.iter().for_each(|subscriber| subscriber.push(None));
            }
        }
    }

    /// Notes that the server refuses the channels on this connection, where they are not requested
    /// again.
    pub(super) fn refused(&self, form: Form, names: &[Vec<u8>], on: u64) {
        let mut channels = self.channels(form);
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                // A subscription on an older connection ends with that, without another event.
                if channel.on.is_some() || form == Form::Sharded {
                    channel.mark_lost();
                }
                channel.on = Some(on);
                channel.refused = true;
                channel.subscribers.iter().for_each(|subscriber| subscriber.refuse());
            }
        }
    }

    /// Returns whether there are no subscriptions.
    pub(super) fn is_empty(&self) -> bool {
        self.plain.lock().is_empty() && self.sharded.lock().is_empty()
    }

    /// Notes that the connection `on` has ended, and its subscriptions with it.
    pub(super) fn lost(&self, on: u64) {
        for form in [Form::Plain, Form::Sharded] {
            let mut channels = self.channels(form);
            for channel in channels.values_mut().filter(|channel| channel.on == Some(on)) {
                channel.on = None;
                channel.mark_lost();
            }
        }
    }

    /// Notes that the server has ended a subscription: it no longer serves the channel's slot.
    pub(super) fn ended(&self, channel: &[u8]) {
        if let Some(channel) = self.channels(Form::Sharded).get_mut(channel)
            && channel.on.take().is_some()
        {
            channel.mark_lost();
        }
        self.changed.notify_one();
    }

    /// Hands a message to all subscribers of the channel.
    fn deliver(&self, form: Form, channel: &[u8], message: &[u8], sender: Option<&ServerFacts>) {
        let subscribers = self.channels(form).get(channel).map(|entry| entry.subscribers.clone());
        for subscriber in subscribers.into_iter().flatten() {
            match &subscriber.handler {
                Some(handle) => handle(message, sender),
                None => subscriber.push(Some(message)),
            }
        }
    }

    /// Handles a pushed frame, if it is a message or ends a subscription. `sender` is what the
    /// handshake of its connection has found out.
    pub(super) fn handle_push(&self, parts: &[Value], sender: Option<&ServerFacts>) {
        match parts {
            [kind, Value::Bytes(channel), Value::Bytes(message)] => match kind.as_text() {
                Some("message") => self.deliver(Form::Plain, channel, message, sender),
                Some("smessage") => self.deliver(Form::Sharded, channel, message, sender),
                _ => {}
            },
            [kind, Value::Bytes(channel), _] if kind.as_text() == Some("sunsubscribe") => {
                self.ended(channel);
            }
            _ => {}
        }
    }

    /// Ends all subscriptions.
    pub(super) fn close(&self) {
        for form in [Form::Plain, Form::Sharded] {
            for subscriber in self.channels(form).values().flat_map(|one| &one.subscribers) {
                subscriber.mailbox.lock().closed = true;
                subscriber.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests;
