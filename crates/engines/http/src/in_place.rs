//! Polls a connection again in place when it wakes itself. For this engine and for the server.
//!
//! hyper wakes the task of a connection while that task is running, for instance once for each
//! piece of a body that was read. The runtime then puts the task at the end of a queue and wakes
//! another thread for it, which costs a system call for each request, and often moves the
//! connection to another core.
//!
//! - I1: a wake-up during a poll is followed by another poll; one between polls wakes the task.
//! - I2: a future that keeps waking itself yields to other tasks after a few polls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// How often a future is polled before it yields.
const MOST_POLLS: usize = 8;

/// Nobody polls the future, and it waits.
const WAITING: u8 = 0;
const POLLED: u8 = 1;
/// It is to be polled again.
const WOKEN: u8 = 2;

#[derive(Default)]
struct WakeState {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITING {
            self.task.wake();
        }
    }
}

/// Runs a future; a wake-up during its poll does not leave the task.
///
/// # Cancel safety
/// That of the future.
pub async fn in_place<F: Future>(future: F) -> F::Output {
    let state = Arc::new(WakeState::default());
    let waker = Waker::from(state.clone());
    let mut future = pin!(future);
    poll_fn(|context| {
        state.task.register(context.waker());
        for _ in 0..MOST_POLLS {
            state.state.swap(POLLED, Ordering::AcqRel);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            let waits = || {
                let success = Ordering::AcqRel;
                let failure = Ordering::Acquire;
                state.state.compare_exchange(POLLED, WAITING, success, failure).is_ok()
            };
            if polled.is_ready() || waits() {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_wake_up_between_polls_wakes_the_task() {
        let task = Arc::new(Task::default());
        let polls = Cell::new(0);
        let inner = RefCell::new(None);
        let mut future = pin!(in_place(poll_fn(|context| {
            polls.set(polls.get() + 1);
            match polls.get() {
                1 | 2 => context.waker().wake_by_ref(),
                3 => *inner.borrow_mut() = Some(context.waker().clone()),
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        })));
        let waker = Waker::from(task.clone());
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        assert_eq!((polls.get(), task.0.load(Ordering::Relaxed)), (3, 0));
        inner.take().expect("a waker").wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(poll().is_ready());
    }

    #[test]
    fn a_future_that_keeps_waking_itself_yields() {
        let task = Arc::new(Task::default());
        let polls = Cell::new(0);
        let mut future = pin!(in_place(poll_fn(|context| {
            polls.set(polls.get() + 1);
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        let waker = Waker::from(task.clone());
        for turn in 1..=2 {
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(polls.get(), turn * MOST_POLLS);
            assert_eq!(task.0.load(Ordering::Relaxed), turn, "it is woken once for each turn");
        }
    }
}
