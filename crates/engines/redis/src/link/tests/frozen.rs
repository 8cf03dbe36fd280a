//! A frozen server: nothing is lost, and nothing is answered.

use super::*;
use holdline_services::{Fault, FaultProxy, Frames, Traffic};

const ID: Affinity = [7; 16];

fn frozen_options(server: &RedisServer) -> RedisOptions {
    options(&server.url()).with_connect_timeout(SHORT).with_command_timeout(SHORT)
}

/// The undo goes behind the request on the same connection, so after the thaw nothing is left.
#[tokio::test]
async fn an_undo_goes_behind_what_it_undoes_and_new_requests_go_nowhere() {
    let server = server();
    let link = Link::new(&frozen_options(&server), clock()).expect("a link");
    ready(&link).await;
    server.stop();
    let taken = say_within(&link, "SET k mine NX", Some(ID), SHORT).await;
    unavailable(&taken.expect_err("no answer"), Certainty::Unknown);
    let undone = say_within(&link, "DEL k", Some(ID), SHORT).await;
    unavailable(&undone.expect_err("no answer"), Certainty::Unknown);
    let other = say_within(&link, "SET other x", None, SHORT).await;
    unavailable(&other.expect_err("no answer"), Certainty::NotApplied);
    server.cont();
    assert_eq!(say_until_taken(&link, "EXISTS k other").await, Value::Integer(0));
    let stats = ask_server(&server, "INFO commandstats").text().expect("text");
    for command in ["cmdstat_set:calls=1,", "cmdstat_del:calls=1,"] {
        assert!(stats.contains(command), "{command} in {stats}");
    }
    until("one connection is left", || connections(&server).len() == 1).await;
}

/// One connection hangs, the server does not: new requests take a new connection at once, and
/// requests that belong behind an unanswered one wait behind it.
#[tokio::test]
async fn a_suspect_connection_is_avoided_except_by_requests_that_belong_on_it() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    let hang = Frames::requests().on_connection(1);
    proxy.inject(hang, Fault::Hold);
    let taken = say_within(&link, "SET k mine", Some(ID), SHORT).await;
    unavailable(&taken.expect_err("no answer"), Certainty::Unknown);
    assert_eq!(say(&link, "SET other x").await.expect("passed by"), ok());
    let undone = tokio::spawn({
        let link = link.clone();
        async move { say_within(&link, "DEL k", Some(ID), LONG).await }
    });
    // It is seen on the old connection, behind what hangs there.
    let seen = proxy.await_event(|event| event.is_frame(Traffic::Requests, "DEL"));
    assert_eq!(seen.connection, 1);
    assert_eq!(ask_server(&server, "EXISTS k").integer(), Some(0));
    proxy.thaw();
    assert_eq!(in_time(undone).await.expect("no panic").expect("undone"), Value::Integer(1));
    // The old connection is no longer needed: it goes.
    until("the old connection is closed", || connections(&server).len() == 1).await;
    assert_eq!(ask_server(&server, "EXISTS k").integer(), Some(0));
}

/// The caller went away before the answer: the undo still finds the connection.
#[tokio::test]
async fn a_dropped_request_is_undone_behind_it() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    ready(&link).await;
    proxy.inject(Frames::requests().on_connection(1), Fault::Hold);
    let taken = say_within(&link, "SET k mine", Some(ID), LONG);
    let dropped = tokio::time::timeout(SHORT, taken).await;
    assert!(dropped.is_err(), "it hangs");
    let late = say_within(&link, "ECHO late", None, SHORT).await;
    unavailable(&late.expect_err("it hangs too"), Certainty::Unknown);
    assert_eq!(say(&link, "SET other x").await.expect("passed by"), ok());
    let undone = tokio::spawn({
        let link = link.clone();
        async move { say_within(&link, "DEL k", Some(ID), LONG).await }
    });
    let seen = proxy.await_event(|event| event.is_frame(Traffic::Requests, "DEL"));
    assert_eq!(seen.connection, 1);
    proxy.thaw();
    assert_eq!(in_time(undone).await.expect("no panic").expect("undone"), Value::Integer(1));
}

/// Behind an unanswered request a limited number is queued; the others fail as not applied.
#[tokio::test]
async fn the_queue_towards_a_frozen_server_is_bounded() {
    let server = server();
    let link = Link::new(&frozen_options(&server), clock()).expect("a link");
    ready(&link).await;
    server.stop();
    say_within(&link, "SET k mine", Some(ID), SHORT).await.expect_err("no answer");
    let ask = |_| {
        let link = link.clone();
        // Long enough that none of them ends before all have asked.
        tokio::spawn(async move { say_within(&link, "DEL k", Some(ID), 20 * SHORT).await })
    };
    let mut full = 0;
    for asked in (0..1_200).map(ask).collect::<Vec<_>>() {
        let error = in_time(asked).await.expect("no panic").expect_err("no answer");
        full += usize::from(error.certainty() == Certainty::NotApplied);
    }
    server.cont();
    assert!((170..=180).contains(&full), "{full} of 1200 found the queue full");
    assert_eq!(say_until_taken(&link, "EXISTS k").await, Value::Integer(0));
}

#[tokio::test]
async fn a_paused_server_answers_late_and_keeps_its_order() {
    let server = server();
    let link = Link::new(&frozen_options(&server), clock()).expect("a link");
    ready(&link).await;
    ask_server(&server, "CLIENT PAUSE 6000 ALL");
    let taken = say_within(&link, "SET k mine", Some(ID), SHORT).await;
    unavailable(&taken.expect_err("no answer"), Certainty::Unknown);
    assert_eq!(
        say_within(&link, "DEL k", Some(ID), LONG).await.expect("answered after the pause"),
        Value::Integer(1)
    );
}

/// Half of a request is in the server's socket when the connection is reset: the server does
/// nothing.
#[tokio::test]
async fn a_half_written_request_is_never_carried_out() {
    let server = server();
    let link = Link::new(&frozen_options(&server), clock()).expect("a link");
    ready(&link).await;
    server.stop();
    let words = vec![b"SET".to_vec(), b"k".to_vec(), vec![b'x'; 32 << 20]];
    let error = link.command(words, Some(ID), SHORT).await.expect_err("no answer");
    unavailable(&error, Certainty::Unknown);
    drop(link);
    server.cont();
    until("the connection is gone", || connections(&server).is_empty()).await;
    assert_eq!(ask_server(&server, "EXISTS k").integer(), Some(0));
}
