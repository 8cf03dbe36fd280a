//! The inbox of this process on its server: one subscription, opened when it is first needed.
//!
//! - H1: who asks to be queued with our inbox is queued only after the subscription stands, or
//!   else with none: a hand-off passes over an inbox that nobody hears.
//! - H2: whenever the subscription stands anew, everything that is waited for is looked up again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::Clock;
use holdline_core::hints::Watches;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::messages;
use crate::node::{Heard, Node};

/// What hears the messages to this process. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Ears {
    node: Node,
    clock: Arc<dyn Clock>,
    channel: Vec<u8>,
    watches: Arc<Watches>,
    opened: Mutex<Option<Opened>>,
    /// It was waited for in vain, and not heard since: others do not wait again.
    in_vain: AtomicBool,
}

#[derive(Debug)]
struct Opened {
    /// Closed when the task that listens is gone, with its runtime.
    hears: watch::Receiver<bool>,
    _end: DropGuard,
}

impl Opened {
    fn is_gone(&self) -> bool {
        self.hears.has_changed().is_err()
    }
}

impl Ears {
    pub(crate) fn new(
        node: Node,
        clock: Arc<dyn Clock>,
        channel: Vec<u8>,
        watches: Arc<Watches>,
    ) -> Ears {
        Ears {
            node,
            clock,
            channel,
            watches,
            opened: Mutex::default(),
            in_vain: AtomicBool::new(false),
        }
    }

    /// Begins to listen, without waiting for it. Returns what tells whether messages are heard.
    pub(crate) fn open(&self) -> watch::Receiver<bool> {
        let mut opened = self.opened.lock();
        match &*opened {
            Some(open) if !open.is_gone() => open.hears.clone(),
            _ => opened.insert(self.begin()).hears.clone(),
        }
    }

    /// Tells whether messages are heard already.
    pub(crate) fn hears(&self) -> bool {
        let opened = self.opened.lock();
        opened.as_ref().is_some_and(|open| *open.hears.borrow() && !open.is_gone())
    }

    /// Begins to listen, and waits until messages are heard; false when that takes too long. Where
    /// it once did, as for a user who may not subscribe, nobody waits until messages are heard.
    pub(crate) async fn hears_within(&self, limit: Duration) -> bool {
        let mut hears = self.open();
        if *hears.borrow() {
            return true;
        }
        if self.in_vain.load(Ordering::Relaxed) {
            return false;
        }
        let end = self.clock.now().after(limit);
        let heard = tokio::select! {
            biased;
            heard = hears.wait_for(|hears| *hears) => heard.is_ok(),
            () = self.clock.sleep_until(end) => false,
        };
        self.in_vain.store(!heard, Ordering::Relaxed);
        heard
    }

    fn begin(&self) -> Opened {
        let (sender, hears) = watch::channel(false);
        let end = CancellationToken::new();
        let ended = end.clone();
        let mut inbox = self.node.subscribe(self.channel.clone());
        let watches = self.watches.clone();
        self.node.spawn(Box::pin(async move {
            loop {
                let next = poll_fn(|context| Pin::new(&mut inbox).poll_next(context));
                let heard = tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    heard = next => heard,
                };
                match heard {
                    Some(Heard::Message(message)) => messages::deliver(&watches, &message),
                    Some(Heard::Lost) => drop(sender.send_replace(false)),
                    Some(Heard::Resubscribed) => {
                        sender.send_replace(true);
                        messages::tell_all(&watches);
                    }
                    None => return,
                }
            }
        }));
        Opened { hears, _end: end.drop_guard() }
    }
}
