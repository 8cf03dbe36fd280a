//! A future that is dropped before it is ready.

use std::future::poll_fn;
use std::task::Poll;

/// Drives a future for a number of polls, and drops it if it is not ready by then.
pub async fn cut<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
