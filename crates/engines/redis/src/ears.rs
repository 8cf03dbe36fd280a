//! The inbox of this process on its server: one subscription, opened when it is first needed.
//!
//! Invariant E1: who asks to be queued with our inbox is queued only after the subscription
//! stands, or else with none: a hand-off passes over an inbox that nobody hears.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::Clock;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::node::{Heard, Node};
use crate::surroundings::{Surroundings, Task};
use crate::watches::Watches;

/// What hears the messages to this process. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Ears {
    node: Node,
    clock: Arc<dyn Clock>,
    surroundings: Option<Arc<dyn Surroundings>>,
    channel: Vec<u8>,
    watches: Arc<Watches>,
    opened: OnceLock<Opened>,
}

#[derive(Debug)]
struct Opened {
    hears: watch::Receiver<bool>,
    _end: DropGuard,
}

impl Ears {
    pub(crate) fn new(
        node: Node,
        clock: Arc<dyn Clock>,
        surroundings: Option<Arc<dyn Surroundings>>,
        channel: Vec<u8>,
        watches: Arc<Watches>,
    ) -> Ears {
        Ears { node, clock, surroundings, channel, watches, opened: OnceLock::new() }
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open(&self) {
        self.opened.get_or_init(|| self.begin());
    }

    /// Tells whether messages are heard already.
    pub(crate) fn hears(&self) -> bool {
        self.opened.get().is_some_and(|opened| *opened.hears.borrow())
    }

    /// Begins to listen, and waits until messages are heard; false when that takes too long.
    pub(crate) async fn hears_within(&self, limit: Duration) -> bool {
        let mut hears = self.opened.get_or_init(|| self.begin()).hears.clone();
        if *hears.borrow() {
            return true;
        }
        let end = self.clock.now().after(limit);
        tokio::select! {
            biased;
            heard = hears.wait_for(|hears| *hears) => heard.is_ok(),
            () = self.clock.sleep_until(end) => false,
        }
    }

    fn begin(&self) -> Opened {
        let (sender, hears) = watch::channel(false);
        let end = CancellationToken::new();
        let ended = end.clone();
        let mut inbox = self.node.subscribe(self.channel.clone());
        let watches = self.watches.clone();
        let listen: Task<()> = Box::pin(async move {
            loop {
                let next = poll_fn(|context| Pin::new(&mut inbox).poll_next(context));
                let heard = tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    heard = next => heard,
                };
                match heard {
                    Some(Heard::Message(message)) => watches.deliver(&message),
                    Some(Heard::Resubscribed) => {
                        sender.send_replace(true);
                        watches.tell_all();
                    }
                    None => return,
                }
            }
        });
        match &self.surroundings {
            Some(surroundings) => surroundings.spawn(listen),
            None => drop(tokio::spawn(listen)),
        }
        Opened { hears, _end: end.drop_guard() }
    }
}
