//! The runtime in which an engine's tasks run, and what happens when it ends.

use holdline_conformance::contender::without_runtime;
use holdline_core::{AcquireReply, Hint};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::runtime::{Builder, Runtime};

use crate::support::{contender, engine, hint};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
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
fn an_engine_that_was_made_outside_of_a_runtime_works() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    without_runtime(async {
        let engine = engine(&server.url()).await;
        let mut holder = contender(&engine, "b");
        holder.take().await;
        holder.let_go().await;
    });
}
