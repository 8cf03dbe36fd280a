//! What tells a waiter that a name was released: each node publishes it where somebody waits.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use holdline_core::{Hint, LockName};

use super::set::Set;
use crate::node::{Heard, Inbox};

/// The hints of one wait: a message from any node, and whenever one may have been missed.
pub(super) struct Wakes {
    inboxes: Vec<Inbox>,
}

impl Wakes {
    pub(super) fn open(set: &Set, name: &LockName) -> Wakes {
        let channel = set.asker.layout.wake(name);
        let inboxes = set.members.iter().map(|member| member.node().listen(channel.clone()));
        Wakes { inboxes: inboxes.collect() }
    }
}

impl Stream for Wakes {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut told = false;
        // All are looked at, and what one release says several times counts once.
        self.inboxes.retain_mut(|inbox| {
            loop {
                match Pin::new(&mut *inbox).poll_next(context) {
                    Poll::Ready(Some(Heard::Message(_) | Heard::Resubscribed)) => told = true,
                    Poll::Ready(Some(Heard::Lost)) => {}
                    Poll::Ready(None) => return false,
                    Poll::Pending => return true,
                }
            }
        });
        match (told, self.inboxes.is_empty()) {
            (true, _) => Poll::Ready(Some(Hint::LookAgain)),
            (false, true) => Poll::Ready(None),
            (false, false) => Poll::Pending,
        }
    }
}
