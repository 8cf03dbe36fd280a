//! A process that is copied by `fork` while it holds and waits: the copy has the memory of its
//! parent, its sockets, and a right to nothing.

use std::time::Duration;

use futures_util::FutureExt;
use holdline::{Client, Guard, ReleaseOutcome};
use holdline_services::PrivateNetwork;
use tokio::runtime::{Builder, Runtime};

use crate::copies::in_a_copy;
use crate::support::{
    behind, clean, client_at, connections, let_go, patient, queued, renewed, server, take, try_take,
};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Releases one guard, drops another and asks for a third name: all without waiting for anything.
fn misuse(client: &Client, released: Guard, dropped: Guard) -> String {
    let outcome = released.release().now_or_never();
    let confirmed = match outcome {
        Some(ReleaseOutcome::Released { confirmed, .. }) => format!("confirmed {confirmed}"),
        other => format!("{other:?}"),
    };
    drop(dropped);
    let mutex = client.mutex_with("c", &patient()).expect("a good lock");
    let asked = mutex.try_lock().now_or_never().map(|outcome| outcome.map(drop));
    let asked = match asked {
        Some(Err(error)) => error.to_string(),
        other => format!("{other:?}"),
    };
    format!("{confirmed}; {asked}")
}

/// In a process of its own: other tests' threads would be missing in the copy.
#[test]
fn a_copy_of_the_process_costs_its_parent_nothing() {
    let name = "forks::a_copy_of_the_process_costs_its_parent_nothing";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let (server, runtime) = (server(), runtime());
    let at = server.address();
    let (client, other) = runtime.block_on(async { (client_at(at).await, client_at(at).await) });
    let (first, second) = runtime.block_on(async {
        (take(&client, "a", &patient()).await, take(&client, "b", &patient()).await)
    });
    let waiter = runtime.spawn({
        let (client, options) = (client.clone(), patient());
        async move { take(&client, "d", &options).await }
    });
    let line = runtime.block_on(async {
        let held = waiter.await.expect("no panic");
        let next = tokio::spawn({
            let client = client.clone();
            async move { take(&client, "d", &patient()).await }
        });
        queued(&server, "d", 1).await;
        (held, next)
    });
    let before = connections(&server);
    let mut mine = Some((first, second));
    let written = in_a_copy(|| {
        let (first, second) = mine.take().expect("there");
        misuse(&client, first, second)
    });
    assert!(written.starts_with("confirmed false; "), "{written}");
    assert!(written.contains("make a new client after a fork"), "{written}");
    let (first, second) = mine.take().expect("the copy took its own");
    // A copy that makes a client of its own contends like any other process.
    let written = in_a_copy(|| {
        let alone = Builder::new_current_thread().enable_all().build().expect("a runtime");
        alone.block_on(async {
            let own = client_at(at).await;
            let busy = try_take(&own, "a", &patient()).await.expect_err("its parent holds it");
            let free = try_take(&own, "c", &patient()).await.expect("free");
            let_go(free).await;
            format!("{:?}", busy.kind())
        })
    });
    assert!(written.starts_with("Busy"), "{written}");
    runtime.block_on(async {
        renewed(&first).await;
        renewed(&second).await;
        assert_eq!(connections(&server), before, "no connection was broken");
        let busy = try_take(&other, "a", &patient()).await.expect_err("held");
        assert!(matches!(busy.kind(), holdline::ErrorKind::Busy { .. }), "{busy:?}");
        let_go(first).await;
        let_go(second).await;
        let (held, next) = line;
        let_go(held).await;
        let_go(next.await.expect("no panic")).await;
        clean(&server, &[&client, &other]).await;
    });
    // The counter and the master term stay.
    let left = behind(&server, "DBSIZE").integer();
    assert_eq!(left, Some(2));
    runtime.shutdown_timeout(Duration::from_secs(5));
}
