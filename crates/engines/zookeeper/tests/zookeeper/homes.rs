//! Where an engine's work runs, and what comes when that ends.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use holdline_core::{AcquireReply, Hint};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::runtime::{Builder, Runtime};

use crate::support::{contender, engine, hint};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future outside of any runtime.
fn by_hand<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn an_engine_outlives_the_runtime_that_it_was_made_in() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let first = runtime();
    let (holder, mut waiter, mut hints) = first.block_on(async {
        let engine = engine(&server.url()).await;
        let mut holder = contender(&engine, "a").for_seconds(30);
        let mut waiter = contender(&engine, "a").for_seconds(30);
        holder.take().await;
        waiter.queue().await;
        let hints = waiter.watch();
        (holder, waiter, hints)
    });
    drop(first);
    runtime().block_on(async {
        holder.let_go().await;
        hint(&mut hints, Hint::LookAgain).await;
        let granted = waiter.ask().await;
        assert!(matches!(granted, Ok(AcquireReply::Granted { .. })), "{granted:?}");
        waiter.let_go().await;
    });
}

#[test]
fn an_engine_that_was_made_in_no_runtime_works() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    by_hand(async {
        let engine = engine(&server.url()).await;
        let mut holder = contender(&engine, "b");
        holder.take().await;
        holder.let_go().await;
    });
}
