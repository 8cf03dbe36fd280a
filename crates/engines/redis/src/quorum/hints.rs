//! Hints that a name was released: each node publishes them while clients wait.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use holdline_core::{Hint, LockName};

use super::set::NodeSet;
use crate::link::{Subscription, SubscriptionEvent};

/// The hints of one wait: a message from any node, or a subscription that may have missed one.
pub(super) struct ReleaseHints {
    subscriptions: Vec<Subscription>,
}

impl ReleaseHints {
    pub(super) fn open(set: &NodeSet, name: &LockName) -> ReleaseHints {
        ReleaseHints::of_channel(set, &set.context.layout.wake(name))
    }

    /// Opens the hints of this channel.
    pub(super) fn of_channel(set: &NodeSet, channel: &[u8]) -> ReleaseHints {
        let subscriptions =
            set.members.iter().map(|member| member.link().subscribe(channel.to_vec()));
        ReleaseHints { subscriptions: subscriptions.collect() }
    }
}

impl Stream for ReleaseHints {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut woken = false;
        // Polls all subscriptions: the messages of one release count once.
        self.subscriptions.retain_mut(|subscription| {
            loop {
                match Pin::new(&mut *subscription).poll_next(context) {
                    Poll::Ready(Some(
                        SubscriptionEvent::Message(_) | SubscriptionEvent::Resubscribed,
                    )) => woken = true,
                    Poll::Ready(Some(SubscriptionEvent::Lost | SubscriptionEvent::Refused)) => {}
                    Poll::Ready(None) => return false,
                    Poll::Pending => return true,
                }
            }
        });
        match (woken, self.subscriptions.is_empty()) {
            (true, _) => Poll::Ready(Some(Hint::LookAgain)),
            (false, true) => Poll::Ready(None),
            (false, false) => Poll::Pending,
        }
    }
}
