//! A process that is copied by `fork` while it holds and waits: the copy has the memory of its
//! parent and its connections, and a right to nothing. It remembers the lease ids of its parent, so
//! it gets an error when it makes a client of its own.

use holdline::{Client, ErrorKind};
use holdline_services::{PrivateNetwork, ZooKeeper, ZooKeeperConfig};
use tokio::runtime::Builder;

use crate::contenders::misuse;
use crate::copies::in_a_copy;
use crate::support::{LONG, client, let_go, patient, queued, renewed, soon, take, taking};

fn connect(url: &str) -> String {
    let alone = Builder::new_current_thread().enable_all().build().expect("a runtime");
    match alone.block_on(Client::connect(url)) {
        Ok(_) => "connected".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// In a process of its own: other tests' threads would be missing in the copy.
#[test]
fn a_copy_of_the_process_costs_its_parent_nothing() {
    let name = "forks::a_copy_of_the_process_costs_its_parent_nothing";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (ours, other, first, second, held, next) = runtime.block_on(async {
        let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
        let first = take(&ours, "a", &patient()).await;
        let second = take(&ours, "b", &patient()).await;
        let held = take(&ours, "d", &patient()).await;
        let next = taking(&ours, "d");
        queued(&other, "d", 1).await;
        (ours, other, first, second, held, next)
    });
    let mut mine = Some((first, second));
    let written = in_a_copy(|| {
        let (first, second) = mine.take().expect("there");
        misuse(&ours, first, second)
    });
    assert!(written.contains("make a new client after a fork"), "{written}");
    let (first, second) = mine.take().expect("the copy took its own");
    let written = in_a_copy(|| connect(&server.url()));
    assert!(written.contains("start a new program"), "{written}");
    runtime.block_on(async {
        renewed(&first, 1).await;
        renewed(&second, 1).await;
        let mutex = other.mutex_with("a", &patient()).expect("a good lock");
        let busy = soon("an answer", mutex.try_lock()).await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
        for guard in [first, second, held] {
            let_go(guard).await;
        }
        let_go(soon("the next one", next).await.expect("no panic")).await;
        for client in [&ours, &other] {
            let report = soon("a shutdown", client.shutdown(LONG)).await;
            assert!(report.is_clean(), "{report:?}");
        }
    });
    assert!(server.sessions_below("/holdline").is_empty());
}
