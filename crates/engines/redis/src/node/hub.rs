//! Who hears which channel.
//!
//! - Invariant H1: an inbox that lost messages says so, by [`Heard::Resubscribed`]: it never
//!   loses one silently. So do a new subscription, and one that was made anew.
//! - Invariant H2: between [`Heard::Lost`] and [`Heard::Resubscribed`] the server knows nobody who
//!   hears the channel here.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// How many messages wait in an inbox before they are summed up as "look again at all".
const ROOM: usize = 1_024;

/// What a subscription hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message on the channel.
    Message(Vec<u8>),
    /// Messages may have been missed: look again at all that is waited for. Also the first thing
    /// that a new subscription hears, once it is made.
    Resubscribed,
    /// The subscription is gone; it is being made anew.
    Lost,
}

/// Takes the messages of a channel as they are read; it must neither wait nor ask for anything.
pub(crate) type Taker = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The messages of one channel, until it is dropped.
pub(crate) struct Inbox {
    channel: Vec<u8>,
    post: Arc<Reader>,
    hub: Weak<Hub>,
}

/// Who hears a channel.
#[derive(Default)]
struct Reader {
    post: Mutex<Post>,
    /// Takes the messages in place of the post: that saves a switch of tasks for each.
    taker: Option<Taker>,
}

#[derive(Default)]
struct Post {
    messages: VecDeque<Vec<u8>>,
    missed: bool,
    lost: bool,
    closed: bool,
    reader: Option<Waker>,
}

impl Post {
    fn take_in(&mut self, message: Option<&[u8]>) {
        match message {
            Some(message) if self.messages.len() < ROOM && !self.missed => {
                self.messages.push_back(message.to_vec());
            }
            _ => {
                self.messages.clear();
                self.missed = true;
            }
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl futures_core::Stream for Inbox {
    type Item = Heard;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        let mut post = self.post.post.lock();
        if std::mem::take(&mut post.lost) {
            return Poll::Ready(Some(Heard::Lost));
        }
        if std::mem::take(&mut post.missed) {
            return Poll::Ready(Some(Heard::Resubscribed));
        }
        if let Some(message) = post.messages.pop_front() {
            return Poll::Ready(Some(Heard::Message(message)));
        }
        if post.closed {
            return Poll::Ready(None);
        }
        post.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.leave(&self.channel, &self.post);
        }
    }
}

#[derive(Default)]
struct Channel {
    readers: Vec<Arc<Reader>>,
    /// The connection on which it is subscribed, or refused.
    on: Option<u64>,
    refused: bool,
}

impl Channel {
    /// Tells all readers that nothing is heard for now.
    fn lose(&self) {
        for reader in &self.readers {
            let mut post = reader.post.lock();
            // Whatever was missed is made good when the subscription stands again.
            (post.lost, post.missed) = (true, false);
            drop(post);
            wake(reader);
        }
    }
}

/// What is to be said to the server about subscriptions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) subscribe: Vec<Vec<u8>>,
    pub(super) unsubscribe: Vec<Vec<u8>>,
}

impl Wishes {
    pub(super) fn is_empty(&self) -> bool {
        self.subscribe.is_empty() && self.unsubscribe.is_empty()
    }
}

/// The channels of a node.
#[derive(Default)]
pub(super) struct Hub {
    channels: Mutex<BTreeMap<Vec<u8>, Channel>>,
    changed: tokio::sync::Notify,
}

impl Hub {
    /// Opens an inbox; whoever keeps the subscriptions is told.
    pub(super) fn open(self: &Arc<Hub>, channel: Vec<u8>, taker: Option<Taker>) -> Inbox {
        let post = Arc::new(Reader { post: Mutex::default(), taker });
        let mut channels = self.channels.lock();
        let entry = channels.entry(channel.clone()).or_default();
        // The subscription may be there already: then nobody will say that it was made.
        post.post.lock().missed = entry.on.is_some() && !entry.refused;
        entry.readers.push(post.clone());
        drop(channels);
        self.changed.notify_one();
        Inbox { channel, post, hub: Arc::downgrade(self) }
    }

    fn leave(&self, channel: &[u8], post: &Arc<Reader>) {
        if let Some(entry) = self.channels.lock().get_mut(channel) {
            entry.readers.retain(|reader| !Arc::ptr_eq(reader, post));
        }
        self.changed.notify_one();
    }

    /// Resolves when inboxes were opened or dropped since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What the server must be told so that the connection `on` hears what is wanted.
    pub(super) fn wishes(&self, on: u64) -> Wishes {
        let mut wishes = Wishes::default();
        self.channels.lock().retain(|name, channel| {
            let here = channel.on == Some(on);
            match (channel.readers.is_empty(), here) {
                (false, false) => wishes.subscribe.push(name.clone()),
                (true, true) => wishes.unsubscribe.push(name.clone()),
                _ => {}
            }
            !channel.readers.is_empty()
        });
        wishes
    }

    /// The channels are subscribed on a connection: whoever reads them looks again at all.
    pub(super) fn subscribed(&self, names: &[Vec<u8>], on: u64) {
        let mut channels = self.channels.lock();
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                (channel.on, channel.refused) = (Some(on), false);
                channel.readers.iter().for_each(|reader| tell(reader, None));
            }
        }
    }

    /// The server refuses the channels on this connection: they are not asked for there again.
    pub(super) fn refused(&self, names: &[Vec<u8>], on: u64) {
        let mut channels = self.channels.lock();
        for name in names {
            if let Some(channel) = channels.get_mut(name) {
                // One that was subscribed before is about to go, and nobody would tell of it.
                if channel.on.is_some() {
                    channel.lose();
                }
                (channel.on, channel.refused) = (Some(on), true);
            }
        }
    }

    /// Tells whether nobody wants to hear anything.
    pub(super) fn is_unused(&self) -> bool {
        self.channels.lock().is_empty()
    }

    /// The connection `on` is gone, and its subscriptions with it.
    pub(super) fn lost(&self, on: u64) {
        let mut channels = self.channels.lock();
        for channel in channels.values_mut().filter(|channel| channel.on == Some(on)) {
            channel.on = None;
            channel.lose();
        }
    }

    /// Hands a message to whoever reads the channel.
    pub(super) fn deliver(&self, channel: &[u8], message: &[u8]) {
        let readers = self.channels.lock().get(channel).map(|channel| channel.readers.clone());
        for reader in readers.into_iter().flatten() {
            match &reader.taker {
                Some(take) => take(message),
                None => tell(&reader, Some(message)),
            }
        }
    }

    /// Ends all inboxes.
    pub(super) fn close(&self) {
        for channel in self.channels.lock().values() {
            for reader in &channel.readers {
                reader.post.lock().closed = true;
                wake(reader);
            }
        }
    }
}

fn tell(reader: &Reader, message: Option<&[u8]>) {
    reader.post.lock().take_in(message);
    wake(reader);
}

fn wake(reader: &Reader) {
    let waker = reader.post.lock().reader.take();
    waker.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_core::Stream;

    fn next(inbox: &mut Inbox) -> Poll<Option<Heard>> {
        Pin::new(inbox).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn ready(heard: Heard) -> Poll<Option<Heard>> {
        Poll::Ready(Some(heard))
    }

    #[test]
    fn an_inbox_hears_first_that_it_is_subscribed_and_then_the_messages() {
        let hub: Arc<Hub> = Arc::default();
        let mut inbox = hub.open(b"c".to_vec(), None);
        assert_eq!(next(&mut inbox), Poll::Pending);
        assert_eq!(hub.wishes(1).subscribe, [b"c".to_vec()]);
        hub.subscribed(&[b"c".to_vec()], 1);
        assert!(hub.wishes(1).is_empty());
        hub.deliver(b"c", b"one");
        hub.deliver(b"other", b"two");
        assert_eq!(next(&mut inbox), ready(Heard::Resubscribed), "it missed what came between");
        assert_eq!(next(&mut inbox), Poll::Pending);
        hub.deliver(b"c", b"three");
        assert_eq!(next(&mut inbox), ready(Heard::Message(b"three".to_vec())));
    }

    #[test]
    fn a_taker_has_the_messages_as_they_come_and_the_inbox_only_what_else_there_is() {
        let hub: Arc<Hub> = Arc::default();
        let taken: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let keep = taken.clone();
        let taker: Taker = Box::new(move |message| keep.lock().push(message.to_vec()));
        let mut inbox = hub.open(b"c".to_vec(), Some(taker));
        hub.subscribed(&[b"c".to_vec()], 1);
        hub.deliver(b"c", b"one");
        hub.deliver(b"other", b"two");
        assert_eq!(*taken.lock(), [b"one".to_vec()]);
        assert_eq!(next(&mut inbox), ready(Heard::Resubscribed));
        assert_eq!(next(&mut inbox), Poll::Pending);
    }

    #[test]
    fn a_second_reader_of_a_channel_is_told_although_nothing_is_sent() {
        let hub: Arc<Hub> = Arc::default();
        let _first = hub.open(b"c".to_vec(), None);
        hub.subscribed(&[b"c".to_vec()], 1);
        let mut second = hub.open(b"c".to_vec(), None);
        assert_eq!(next(&mut second), ready(Heard::Resubscribed));
    }

    #[test]
    fn what_overflows_is_told_as_missed() {
        let hub: Arc<Hub> = Arc::default();
        let mut inbox = hub.open(b"c".to_vec(), None);
        for _ in 0..=ROOM {
            hub.deliver(b"c", b"x");
        }
        assert_eq!(next(&mut inbox), ready(Heard::Resubscribed));
        assert_eq!(next(&mut inbox), Poll::Pending);
    }

    #[test]
    fn a_lost_subscription_is_told_and_then_that_it_stands_anew() {
        let hub: Arc<Hub> = Arc::default();
        let mut inbox = hub.open(b"c".to_vec(), None);
        hub.subscribed(&[b"c".to_vec()], 1);
        hub.lost(2);
        hub.lost(1);
        hub.lost(1);
        assert_eq!(next(&mut inbox), ready(Heard::Lost), "the news before are worth nothing");
        assert_eq!(next(&mut inbox), Poll::Pending);
        assert_eq!(hub.wishes(1).subscribe, [b"c".to_vec()]);
        hub.lost(1);
        hub.subscribed(&[b"c".to_vec()], 3);
        assert_eq!(next(&mut inbox), ready(Heard::Resubscribed));
    }

    #[test]
    fn a_new_connection_subscribes_anew_and_a_dropped_inbox_is_unsubscribed() {
        let hub: Arc<Hub> = Arc::default();
        let inbox = hub.open(b"c".to_vec(), None);
        hub.subscribed(&[b"c".to_vec()], 1);
        assert_eq!(hub.wishes(2).subscribe, [b"c".to_vec()]);
        drop(inbox);
        assert_eq!(hub.wishes(1).unsubscribe, [b"c".to_vec()]);
        assert!(hub.wishes(1).is_empty(), "told once");
    }

    #[test]
    fn who_heard_on_another_connection_is_told_when_the_new_one_refuses() {
        let hub: Arc<Hub> = Arc::default();
        let mut inbox = hub.open(b"c".to_vec(), None);
        hub.subscribed(&[b"c".to_vec()], 1);
        assert_eq!(next(&mut inbox), ready(Heard::Resubscribed));
        hub.refused(&[b"c".to_vec()], 2);
        assert_eq!(next(&mut inbox), ready(Heard::Lost));
        hub.lost(1);
        assert_eq!(next(&mut inbox), Poll::Pending, "it was told");
        assert!(hub.wishes(2).is_empty(), "it is not asked for there again");
        let mut late = hub.open(b"c".to_vec(), None);
        assert_eq!(next(&mut late), Poll::Pending, "nothing is heard there");
        hub.lost(2);
        assert_eq!(hub.wishes(3).subscribe, [b"c".to_vec()]);
    }

    #[test]
    fn a_closed_hub_ends_its_inboxes() {
        let hub: Arc<Hub> = Arc::default();
        let mut inbox = hub.open(b"c".to_vec(), None);
        hub.deliver(b"c", b"last");
        hub.close();
        assert_eq!(next(&mut inbox), ready(Heard::Message(b"last".to_vec())));
        assert_eq!(next(&mut inbox), Poll::Ready(None));
    }
}
