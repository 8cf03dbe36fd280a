//! Requests to several nodes that run side by side.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Futures, each with the place of its node. They are few: all that wait are looked at whenever
/// one of them wakes.
pub(crate) struct Race<'a, T> {
    running: Vec<(usize, Runner<'a, T>)>,
}

type Runner<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<'a, T> Race<'a, T> {
    pub(crate) fn with_room(nodes: usize) -> Race<'a, T> {
        Race { running: Vec::with_capacity(nodes) }
    }

    pub(crate) fn add(&mut self, node: usize, runner: impl Future<Output = T> + Send + 'a) {
        self.running.push((node, Box::pin(runner)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns what comes next, and from which node; `None` when nothing runs any more.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.running.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.running.len() {
            let (node, runner) = &mut self.running[at];
            if let Poll::Ready(answer) = runner.as_mut().poll(context) {
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
    async fn answers_come_as_they_are_ready() {
        let (first, second) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let mut race = Race::with_room(3);
        for (node, bell) in [(0, &first), (1, &second)] {
            race.add(node, async move {
                bell.notified().await;
                node * 10
            });
        }
        race.add(2, async { 7 });
        assert_eq!(race.next().await, Some((2, 7)));
        second.notify_one();
        assert_eq!(race.next().await, Some((1, 10)));
        first.notify_one();
        assert_eq!(race.next().await, Some((0, 0)));
        assert!(race.is_empty());
        assert_eq!(race.next().await, None);
    }
}
