//! Requests that one thread starts in a row are sent together.
//!
//! An event loop that starts many requests in one turn opens a batch, and ends it after the turn. A
//! connection that is used meanwhile joins the batch and sends nothing by itself; the end of the
//! batch flushes it. So a turn costs one system call, and wakes no other thread.
//!
//! A batch belongs to its thread. A request of another thread on the same connection must be sent
//! at once, and what has joined with it: a lease is renewed while an event loop is blocked.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// What has joined the batch of this thread; `None` while there is no batch.
    static JOINED: RefCell<Option<Vec<Arc<dyn Flush>>>> = const { RefCell::new(None) };
}

/// What sends requests, and can hold them back.
pub trait Flush: Send + Sync {
    /// Sends what was held back, if anything was.
    fn flush(&self);
}

/// Opens a batch on this thread, unless one is open.
pub fn open() {
    JOINED.with_borrow_mut(|joined| {
        joined.get_or_insert_default();
    });
}

/// Ends the batch of this thread, and flushes what has joined it.
pub fn end() {
    let joined = JOINED.with_borrow_mut(Option::take);
    joined.into_iter().flatten().for_each(|connection| connection.flush());
}

/// Joins the batch of this thread; returns whether there is one.
pub fn join<F: Flush + 'static>(connection: &Arc<F>) -> bool {
    JOINED.with_borrow_mut(|joined| {
        let Some(joined) = joined else { return false };
        let pointer = Arc::as_ptr(connection).cast::<()>();
        if !joined.iter().any(|one| std::ptr::eq(Arc::as_ptr(one).cast::<()>(), pointer)) {
            joined.push(connection.clone());
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Flush for Counts {
        fn flush(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_end_of_a_batch_flushes_each_connection_once() {
        let connection = Arc::new(Counts::default());
        assert!(!join(&connection), "there is no batch");
        open();
        open();
        assert!(join(&connection) && join(&connection));
        let other = connection.clone();
        let joins_elsewhere = std::thread::spawn(move || join(&other)).join().expect("it ran");
        assert!(!joins_elsewhere, "a batch is of one thread");
        assert_eq!(connection.0.load(Ordering::Relaxed), 0);
        end();
        end();
        assert_eq!(connection.0.load(Ordering::Relaxed), 1);
        assert!(!join(&connection), "the batch has ended");
    }
}
