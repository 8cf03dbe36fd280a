//! Clients on other machines, for which a server asks: its death is not theirs.

use holdline_core::{AcquireReply, AcquireRequest, ClientId, Engine, Hint};
use holdline_services::steady;

use crate::support::{Scratch, Verbs, ask, hint, id, name, until};

/// How many remote clients of one process have a name for wake-ups.
const MOST: usize = 1_024;

fn remote(text: &str, number: u64) -> AcquireRequest {
    AcquireRequest { client: ClientId::from_u64(number).remote(), ..ask(text, number) }
}

#[test]
fn what_a_remote_client_holds_outlives_the_process_that_asked_for_it() {
    let scratch = Scratch::new();
    let (server, other) = (scratch.open(), scratch.open());
    server.granted(&ask("own", 1));
    server.granted(&remote("remote", 2));
    drop(server);
    let mut next = ask("own", 3);
    next.queue = false;
    other.granted(&next);
    let mut next = ask("remote", 4);
    next.queue = false;
    let busy = other.acquire(&next);
    assert!(matches!(busy, Ok(AcquireReply::Busy { .. })), "{busy:?}");
}

/// A server that runs for months has requests of very many clients.
#[test]
fn names_for_wake_ups_of_remote_clients_have_a_bound() {
    steady(|| {
        let scratch = Scratch::new();
        let (server, other) = (scratch.open(), scratch.open());
        let names = || std::fs::read_dir(scratch.path().join("wake")).expect("there").count();
        let many = u64::try_from(MOST).expect("fits") + 20;
        for number in 1..=many {
            server.granted(&remote(&format!("n{number}"), number));
        }
        assert_eq!(names(), MOST);
        // The first one has the socket itself, and the newest a link to it: both are woken.
        for (text, number) in [("first", 1), ("last", many)] {
            let waiter = 10_000 + number;
            other.granted(&ask(text, waiter));
            let request = AcquireRequest { lease_id: id(waiter + 1), ..remote(text, number) };
            server.queued(&request);
            let mut hints = server.watch(&name(text), id(waiter + 1));
            other.end(text, waiter);
            assert!(matches!(hint(&mut hints), Hint::Granted { .. }));
        }
        drop((server, other));
        // They go with their engines, which end on threads of their own.
        until(|| (names() == 0).then_some(()));
    });
}
