//! Requests to several nodes that are in flight at the same time.
//!
//! A small `FuturesUnordered` whose order of polling does not depend on wake-ups, so that simulated
//! runs repeat: each wake polls all pending requests, in order. There are at most a few.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use holdline_core::{Clock, Moment};

/// Pending requests, each with the index of its node.
pub(crate) struct InFlight<'a, T> {
    running: Vec<(usize, Request<'a, T>)>,
}

type Request<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<'a, T> InFlight<'a, T> {
    pub(crate) fn with_capacity(nodes: usize) -> InFlight<'a, T> {
        InFlight { running: Vec::with_capacity(nodes) }
    }

    pub(crate) fn push(&mut self, node: usize, request: impl Future<Output = T> + Send + 'a) {
        self.running.push((node, Box::pin(request)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the next answer with the index of its node; `None` when no request is left.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Returns the next answer as [`next`](Self::next) does; `None` also if it is not there by
    /// `end`, which may be [`Moment::NEVER`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next_before(
        &mut self,
        end: Moment,
        clock: &dyn Clock,
    ) -> Option<(usize, T)> {
        tokio::select! {
            biased;
            next = self.next() => next,
            () = clock.sleep_until(end) => None,
        }
    }

    /// Waits for all requests. Returns their answers in the order in which they arrived.
    pub(crate) async fn all(mut self) -> Vec<(usize, T)> {
        let mut answers = Vec::with_capacity(self.running.len());
        while let Some(answer) = self.next().await {
            answers.push(answer);
        }
        answers
    }

    /// Returns the next answer that has arrived; `None` if none has.
    pub(crate) fn next_ready(&mut self) -> Option<(usize, T)> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.running.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.running.len() {
            let (node, request) = &mut self.running[at];
            if let Poll::Ready(answer) = request.as_mut().poll(context) {
                let node = *node;
                drop(self.running.remove(at));
                return Poll::Ready(Some((node, answer)));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_arrive_in_order_of_completion() {
        let first = tokio::sync::Notify::new();
        let second = tokio::sync::Notify::new();
        let mut in_flight = InFlight::with_capacity(3);
        for (node, wake) in [(0, &first), (1, &second)] {
            in_flight.push(node, async move {
                wake.notified().await;
                node * 10
            });
        }
        in_flight.push(2, async { 7 });
        assert_eq!(in_flight.next().await, Some((2, 7)));
        second.notify_one();
        assert_eq!(in_flight.next().await, Some((1, 10)));
        first.notify_one();
        assert_eq!(in_flight.next().await, Some((0, 0)));
        assert!(in_flight.is_empty());
        assert_eq!(in_flight.next().await, None);
    }
}
