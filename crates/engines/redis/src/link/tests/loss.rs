//! Requests and replies that are lost, and connections that break.

use super::*;
use holdline_services::{Fault, FaultProxy, Frames, Traffic, What};

fn count(server: &RedisServer, key: &str) -> Option<String> {
    ask_server(server, &format!("GET {key}")).text()
}

/// The k-th request is lost: its outcome is unknown, the server did nothing, and it is never
/// resent.
#[tokio::test]
async fn a_lost_request_is_unknown_and_not_sent_again() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    for k in 1..=3 {
        let link = link_at(proxy.address());
        ready(&link).await;
        proxy.inject(Frames::requests().containing("INCR").nth(k), Fault::Swallow);
        for turn in 1..=3 {
            let deadline = if turn == k { SHORT } else { LONG };
            let answer = say_within(&link, &format!("INCR r{k}"), None, deadline).await;
            match turn == k {
                true => {
                    let error = answer.expect_err("lost");
                    assert!(unavailable(&error, Certainty::Unknown).contains("300ms"), "{error}");
                }
                false => drop(answer.expect("an answer")),
            }
        }
        assert_eq!(count(&server, &format!("r{k}")).as_deref(), Some("2"));
        proxy.pass();
    }
}

/// The k-th reply is lost: its outcome is unknown, the server acted once, and later replies are
/// right.
#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_next_ones_are_right() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    for k in 1..=3 {
        let link = link_at(proxy.address());
        ready(&link).await;
        proxy.inject(Frames::replies().containing("INCR").nth(k), Fault::Swallow);
        for turn in 1..=3 {
            let deadline = if turn == k { SHORT } else { LONG };
            let answer = say_within(&link, &format!("INCR p{k}"), None, deadline).await;
            match turn == k {
                true => drop(unavailable(&answer.expect_err("lost"), Certainty::Unknown)),
                false => {
                    let number = i64::try_from(turn).expect("small");
                    assert_eq!(answer.expect("an answer"), Value::Integer(number));
                }
            }
        }
        assert_eq!(count(&server, &format!("p{k}")).as_deref(), Some("3"));
        proxy.pass();
    }
}

#[tokio::test]
async fn a_late_reply_never_goes_to_another_request() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    proxy.inject(Frames::replies().containing("late"), Fault::Hold);
    let error = say_within(&link, "ECHO late", None, SHORT).await.expect_err("held");
    unavailable(&error, Certainty::Unknown);
    let asked = tokio::spawn({
        let link = link.clone();
        async move {
            let mut answers = Vec::new();
            for number in 0..50 {
                answers.push(say(&link, &format!("ECHO {number}")).await.expect("an answer"));
            }
            answers
        }
    });
    proxy.thaw();
    let answers = in_time(asked).await.expect("no panic");
    assert_eq!(answers, (0..50).map(|n| bytes(&n.to_string())).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reset_in_mid_reply_is_unknown_and_the_next_request_dials_anew() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    proxy.inject(Frames::replies().containing("SET").nth(1), Fault::SwallowThenReset);
    let error = say(&link, "SET k v").await.expect_err("reset");
    assert!(unavailable(&error, Certainty::Unknown).contains("broke"), "{error}");
    assert_eq!(say(&link, "GET k").await.expect("an answer"), bytes("v"));
}

#[tokio::test]
async fn replies_that_arrive_byte_by_byte_are_decoded() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let byte = Duration::from_millis(2);
    proxy.inject(Frames::replies().containing("slowly"), Fault::Dribble(byte));
    let link = link_at(proxy.address());
    assert_eq!(say(&link, "ECHO slowly").await.expect("an answer"), bytes("slowly"));
}

/// All pending requests fail at once when the connection breaks.
#[tokio::test]
async fn a_break_fails_all_pending_requests() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    proxy.inject(Frames::replies(), Fault::Hold);
    let before = proxy.seen(Traffic::Requests);
    let ask = |number: u32| {
        let link = link.clone();
        tokio::spawn(async move { say(&link, &format!("ECHO {number}")).await })
    };
    let asked: Vec<_> = (0..20).map(ask).collect();
    let seen = || proxy.seen(Traffic::Requests) >= before + 20;
    until("all requests are on their way", seen).await;
    proxy.pass();
    proxy.inject(Frames::replies(), Fault::Swallow);
    proxy.reset();
    proxy.pass();
    for one in asked {
        // What was let go before the reset is right; the others are unknown.
        match in_time(one).await.expect("no panic") {
            Ok(answer) => assert!(matches!(answer, Value::Bytes(_))),
            Err(error) => drop(unavailable(&error, Certainty::Unknown)),
        }
    }
    assert_eq!(say(&link, "ECHO after").await.expect("an answer"), bytes("after"));
}

#[tokio::test]
async fn a_refused_connection_is_reported_at_once_and_made_when_the_server_returns() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    proxy.refuse();
    let link = link_at(proxy.address());
    let error = say(&link, "PING").await.expect_err("nobody listens");
    assert!(unavailable(&error, Certainty::NotApplied).contains("nobody listens"), "{error}");
    proxy.accept();
    let answered = async { while say(&link, "PING").await.is_err() {} };
    in_time(answered).await;
}

#[tokio::test]
async fn a_host_without_an_address_is_reported() {
    let options = options("redis://no-such-host.invalid:1").with_connect_timeout(LONG);
    let link = Link::new(&options, clock()).expect("a link");
    let error = say_within(&link, "PING", None, LONG).await.expect_err("no such host");
    assert!(unavailable(&error, Certainty::NotApplied).contains("cannot be looked up"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let rubbish = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let text = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            drop(tokio::io::AsyncWriteExt::write_all(&mut stream, text).await);
        }
    });
    let error = say(&link_at(address), "PING").await.expect_err("no Redis");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    rubbish.abort();
}

/// The loss is detected although nobody sends anything.
#[tokio::test]
async fn an_idle_connection_that_is_killed_is_replaced_at_once() {
    let server = server();
    let link = link_at(server.address());
    ready(&link).await;
    let before = connections(&server);
    ask_server(&server, &format!("CLIENT KILL ID {}", before[0]));
    let replaced = || connections(&server).len() == 1 && connections(&server) != before;
    until("a new connection", replaced).await;
}

#[tokio::test]
async fn another_server_on_the_same_port_is_seen() {
    let server = server();
    let link = link_at(server.address());
    let first = link.ready().await.expect("a connection").run_id.clone();
    server.kill();
    server.restart();
    let changed = || link.last_facts().is_some_and(|facts| facts.run_id != first);
    until("another run id", changed).await;
    assert_eq!(say(&link, "PING").await.expect("an answer"), Value::Status("PONG".to_owned()));
}

/// The undo goes behind the request whose reply was lost. Its own reply is then out of step, and
/// goes to no request.
#[tokio::test]
async fn replies_out_of_step_end_the_connection() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    for fault_on in [Frames::replies(), Frames::requests()] {
        let link = link_at(proxy.address());
        ready(&link).await;
        proxy.inject(fault_on.containing("mine").nth(1), Fault::Swallow);
        let id = Some([9; 16]);
        let taken = say_within(&link, "SET k mine", id, SHORT).await;
        unavailable(&taken.expect_err("lost"), Certainty::Unknown);
        let undone = say_within(&link, "DEL k", id, LONG).await.expect_err("out of step");
        assert!(unavailable(&undone, Certainty::Unknown).contains("out of step"), "{undone}");
        say_within(&link, "DEL k", id, LONG).await.expect("on a new connection");
        assert_eq!(count(&server, "k"), None);
        proxy.pass();
    }
}

/// A connection that ends with unanswered requests is reset, not closed.
#[tokio::test]
async fn a_connection_with_something_unanswered_is_reset() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    proxy.inject(Frames::replies().containing("held"), Fault::Hold);
    say_within(&link, "ECHO held", None, SHORT).await.expect_err("held");
    drop(link);
    let ended = in_time(tokio::task::spawn_blocking(move || {
        let end = |event: &holdline_services::Event| {
            event.connection == 1 && matches!(event.what, What::Reset | What::Closed)
        };
        proxy.await_event(end).what
    }));
    assert_eq!(ended.await.expect("no panic"), What::Reset);
}

/// Under resets at random moments, the outcome of each request matches the server's data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certainty_of_a_request_matches_what_the_server_did() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    let breaking = std::sync::atomic::AtomicBool::new(true);
    let worker = |number: u32| {
        let link = link.clone();
        tokio::spawn(async move {
            let mut replies = Vec::new();
            for turn in 0..60 {
                let key = format!("{number}.{turn}");
                let answer = say_within(&link, &format!("INCR {key}"), None, LONG).await;
                replies.push((key, answer.map_err(|error| error.certainty())));
            }
            replies
        })
    };
    let workers: Vec<_> = (0..16).map(worker).collect();
    let replies = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while breaking.load(std::sync::atomic::Ordering::SeqCst) {
                // After some more requests, in the middle of whatever is on its way.
                seen = proxy.seen(Traffic::Requests).max(seen + 40);
                while proxy.seen(Traffic::Requests) < seen
                    && breaking.load(std::sync::atomic::Ordering::SeqCst)
                {
                    std::thread::yield_now();
                }
                proxy.reset();
            }
        });
        let replies = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut replies = Vec::new();
                for worker in workers {
                    replies.extend(worker.await.expect("no panic"));
                }
                replies
            })
        });
        breaking.store(false, std::sync::atomic::Ordering::SeqCst);
        replies
    });
    let mut raw = server.raw();
    let mut outcomes = [0; 3];
    for (key, answer) in replies {
        let done = raw.send(&["GET", &key]).expect("a reply").text();
        let done = done.as_deref();
        match answer {
            Ok(value) => {
                assert_eq!((value, done), (Value::Integer(1), Some("1")), "{key}");
                outcomes[0] += 1;
            }
            Err(Certainty::NotApplied) => {
                assert_eq!(done, None, "{key}");
                outcomes[1] += 1;
            }
            Err(_) => {
                assert!(matches!(done, None | Some("1")), "{key}: sent again");
                outcomes[2] += 1;
            }
        }
    }
    assert!(outcomes[0] > 0 && outcomes[2] > 0, "answered, not applied, unknown: {outcomes:?}");
}
