//! Requests and replies that come at the wrong time or in the wrong form: late, twice, in pieces,
//! never, or as rubbish.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdline::{Certainty, ErrorKind, Guard};
use holdline_services::{Event, Fault, FaultProxy, Frames, RedisServer, Reply, Traffic};

use crate::support::{
    behind, clean, client, client_at, leftovers, let_go, patient, queued, renewed, server, soon,
    take, try_take, until, url_of, within,
};

const KEY: &str = "holdline:{a}";

/// The token in the record under the lock key.
fn token_on(server: &RedisServer) -> Option<u64> {
    let record = behind(server, &format!("GET {KEY}")).text()?;
    record.get(67..83)?.parse().ok()
}

/// The requests about the name that the proxy has seen.
fn requests(proxy: &FaultProxy) -> Vec<Event> {
    let about = |event: &Event| event.is_frame(Traffic::Requests, KEY);
    proxy.events().into_iter().filter(about).collect()
}

/// Sends what was sent before once more, as a network does that holds a packet back.
fn again(server: &RedisServer, event: &Event) -> Reply {
    let mut raw = server.raw();
    raw.write_bytes(&event.bytes).expect("sent");
    raw.read().expect("an answer")
}

fn stands(server: &RedisServer, guard: &Guard) {
    assert!(guard.is_valid());
    assert_eq!(token_on(server), Some(guard.fencing_token().get()));
}

/// The named interleaving of two connections: an acquire hangs on the first, is given up, and is
/// made anew on the second; then the first thaws, and carries out the acquire and its undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_grant_survives_the_undo_of_an_attempt_that_thaws() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    let mutex = client.mutex_with("a", &patient()).expect("a good lock");
    proxy.inject(Frames::requests().containing(KEY).nth(1), Fault::Hold);
    let hangs = tokio::time::timeout(Duration::from_millis(100), mutex.lock()).await;
    assert!(hangs.is_err(), "it hangs");
    // Its undo goes behind it, on the same connection.
    until("the undo", || requests(&proxy).len() >= 2).await;
    let old: Vec<Event> = requests(&proxy).into_iter().take(2).collect();
    assert!(old.iter().all(|event| event.connection == 1));
    // The first one's silence is noticed, and a second connection is made.
    proxy.await_open_connections(2);
    let guard = soon("the lock", mutex.lock()).await.expect("the lock");
    let granted = requests(&proxy).pop().expect("seen");
    assert!(granted.connection > 1, "on another connection");
    stands(&server, &guard);
    let answered = proxy.seen_on(1, Traffic::Replies);
    proxy.thaw();
    until("both are carried out", || proxy.seen_on(1, Traffic::Replies) >= answered + 2).await;
    stands(&server, &guard);
    // And should the network bring them once more, that changes nothing either.
    for event in &old {
        again(&server, event);
        stands(&server, &guard);
    }
    renewed(&guard).await;
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

/// The same within one attempt: it is asked again over another connection, and so is its release;
/// what hangs is undone behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_connection_hangs_goes_on_over_another() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    let_go(take(&client, "a", &patient()).await).await;
    proxy.forget();
    proxy.inject(Frames::requests().containing(KEY).nth(1), Fault::Hold);
    let guard = take(&client, "a", &patient()).await;
    stands(&server, &guard);
    renewed(&guard).await;
    let_go(guard).await;
    // The hanging connection has the acquire, and at its end a release.
    let hanging = || requests(&proxy).iter().filter(|event| event.connection == 1).count() as u64;
    until("the undo", || hanging() >= 2).await;
    let next = take(&client, "a", &patient()).await;
    let answered = proxy.seen_on(1, Traffic::Replies);
    proxy.thaw();
    let count = hanging();
    until("all is carried out", || proxy.seen_on(1, Traffic::Replies) >= answered + count).await;
    stands(&server, &next);
    let_go(next).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicated_acquire_is_one_grant_and_after_the_release_none() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    // Scripts are known by name from here on.
    let_go(take(&client, "a", &patient()).await).await;
    proxy.forget();
    // The answer is lost: it is asked again under the same lease id.
    proxy.inject(Frames::replies().containing(KEY).nth(1), Fault::SwallowThenReset);
    let guard = take(&client, "a", &patient()).await;
    let first = requests(&proxy).swap_remove(0);
    let twice = again(&server, &first);
    let word = twice.items().and_then(|parts| parts.first()?.text());
    assert_eq!(word.as_deref(), Some("granted"), "{twice:?}");
    stands(&server, &guard);
    let_go(guard).await;
    let late = again(&server, &first);
    let word = late.items().and_then(|parts| parts.first()?.text());
    assert_eq!(word.as_deref(), Some("cancelled"), "{late:?}");
    assert_eq!(leftovers(&server), Vec::<String>::new());
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_answers_no_other_request() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    let late = Frames::replies().containing(KEY).nth(1);
    proxy.inject(late, Fault::Delay(Duration::from_secs(6)));
    let first = tokio::spawn({
        let client = client.clone();
        async move { take(&client, "a", &patient()).await }
    });
    proxy.await_event(|event| event.fault.is_some());
    // Behind the one that is late, and then beside it.
    let mut others = Vec::new();
    for number in 0..20 {
        others.push(take(&client, &format!("other-{number}"), &patient()).await);
    }
    let first = soon("the lock", first).await.expect("no panic");
    stands(&server, &first);
    for other in others {
        let record = behind(&server, &format!("GET holdline:{{{}}}", other.name().as_str()));
        let record = record.text().expect("it is held");
        assert!(record.starts_with(&other.lease_id().to_hex()), "{other:?}");
        assert_eq!(record[67..83].parse(), Ok(other.fencing_token().get()), "{other:?}");
        let_go(other).await;
    }
    let_go(first).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_replies_may_come_byte_by_byte() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let url = format!("redis://{}?command_timeout_ms=20000", proxy.address());
    let clients = [crate::support::client(&url).await, crate::support::client(&url).await];
    // Scripts are known by name from here on.
    let first = take(&clients[0], "a", &patient()).await;
    renewed(&first).await;
    let_go(first).await;
    let slow = Fault::Dribble(Duration::from_micros(200));
    proxy.inject(Frames::replies(), slow);
    proxy.inject(Frames::pushes(), slow);
    proxy.inject(Frames::requests(), slow);
    let guard = take(&clients[0], "a", &patient()).await;
    let next = tokio::spawn({
        let client = clients[1].clone();
        async move { take(&client, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    renewed(&guard).await;
    let_go(guard).await;
    let_go(soon("the next", next).await.expect("no panic")).await;
    proxy.pass();
    clean(&server, &[&clients[0], &clients[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_wake_ups_cost_a_heartbeat() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let (holder, waiter) = (client_at(server.address()).await, client_at(proxy.address()).await);
    // A heartbeat, and room for a busy machine.
    within(Duration::from_millis(2_500), async || {
        let guard = take(&holder, "a", &patient()).await;
        let next = tokio::spawn({
            let waiter = waiter.clone();
            async move { take(&waiter, "a", &patient()).await }
        });
        queued(&server, "a", 1).await;
        let swallowed = || proxy.events().iter().filter(|event| event.fault.is_some()).count();
        let before = swallowed();
        proxy.inject(Frames::pushes(), Fault::Swallow);
        let freed = Instant::now();
        let_go(guard).await;
        until("the wake-up is lost", || swallowed() > before).await;
        let next = soon("the next", next).await.expect("no panic");
        let took = freed.elapsed();
        proxy.pass();
        let_go(next).await;
        took
    })
    .await;
    clean(&server, &[&holder, &waiter]).await;
}

/// Listens, passes everything on, and answers scripts itself with the same bytes every time.
fn answers_scripts_with(server: &RedisServer, answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (here, upstream) = (listener.local_addr().expect("an address"), server.address());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(upstream) else { return };
            let (Ok(mut from), Ok(mut to)) = (server.try_clone(), client.try_clone()) else {
                return;
            };
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || forge(client, server, answer));
        }
    });
    here
}

fn forge(mut client: TcpStream, mut server: TcpStream, answer: &[u8]) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let sent = &bytes[..count];
        let is_script = sent.windows(4).any(|window| window == b"EVAL");
        let passed = if is_script { client.write_all(answer) } else { server.write_all(sent) };
        if passed.is_err() {
            break;
        }
    }
    // A peer that still reads sees the end.
    let _ = server.shutdown(Shutdown::Both);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_is_never_a_grant() {
    let server = server();
    let rubbish: [(&[u8], bool); 9] = [
        (b"+OK\r\n", true),
        (b":7\r\n", true),
        (b"_\r\n", true),
        (b"$0\r\n\r\n", true),
        (b"*3\r\n$7\r\ngranted\r\n$1\r\n0\r\n$4\r\n9999\r\n", true),
        (b"*2\r\n$7\r\ngranted\r\n$5\r\n12345\r\n", true),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", true),
        // More is to come, and never does.
        (b"$536870912\r\n", false),
        (b"*1000000\r\n", false),
    ];
    for (answer, whole) in rubbish {
        let url = url_of(answers_scripts_with(&server, answer));
        // The handshake sends no script then.
        let client = client(&format!("{url}&quarantine=off")).await;
        let shown = answer.escape_ascii();
        let error = try_take(&client, "a", &patient()).await.expect_err("no grant");
        let good = match error.kind() {
            ErrorKind::Protocol { .. } => whole,
            ErrorKind::Unavailable { .. } => !whole,
            _ => false,
        };
        assert!(good, "{shown}: {error:?}");
        assert_eq!(error.certainty(), Certainty::Unknown, "{shown}: {error:?}");
    }
}
