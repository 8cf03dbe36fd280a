//! Commands and scripts that succeed.

use super::*;
use crate::link::{Call, Script};
use holdline_services::{FaultProxy, Traffic};

static DOUBLE: Script = Script::new("double", "return {KEYS[1], ARGV[1] * 2, ARGV[2], false}");

fn double(number: &str) -> Call {
    Call {
        script: &DOUBLE,
        keys: Args::from([b"k\0\xff\r\n"]),
        arguments: Args::from([number, ""]),
        routing: RoutingPolicy::Behind([1; 16]),
        deadline: LONG,
    }
}

#[tokio::test]
async fn a_script_is_run_by_its_sha1_and_once_by_its_text() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let link = link_at(proxy.address());
    let expected = |doubled| {
        let key = Value::Bytes(b"k\0\xff\r\n".to_vec());
        Value::Array(vec![key, Value::Integer(doubled), bytes(""), Value::Nil])
    };
    for number in [1, 2] {
        let answer = link.call(|| double(&number.to_string())).await.expect("an answer");
        assert_eq!(answer, expected(2 * number));
    }
    ask_server(&server, "SCRIPT FLUSH");
    assert_eq!(link.call(|| double("3")).await.expect("an answer"), expected(6));
    let sent = |verb: &str| {
        let verb = format!("\r\n{verb}\r\n");
        let events = proxy.events();
        events.iter().filter(|event| event.is_frame(Traffic::Requests, &verb)).count()
    };
    assert_eq!((sent("EVALSHA"), sent("EVAL")), (3, 2), "by text after each time it was unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_requests_receives_its_own_reply() {
    let server = server();
    let link = link_at(server.address());
    let ask = |number: u32| {
        let link = link.clone();
        tokio::spawn(async move {
            for round in 0..5 {
                let text = format!("{number}/{round}");
                let answer = say(&link, &format!("ECHO {text}")).await.expect("an answer");
                assert_eq!(answer, bytes(&text));
            }
        })
    };
    for asked in (0..500).map(ask).collect::<Vec<_>>() {
        in_time(asked).await.expect("no panic");
    }
    assert_eq!(connections(&server).len(), 1);
}

#[tokio::test]
async fn the_server_is_known() {
    let server = server();
    let link = link_at(server.address());
    let facts = link.ready().await.expect("a connection");
    let info = ask_server(&server, "INFO server").text().expect("text");
    let field = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    assert_eq!(facts.run_id, field("run_id:"));
    assert_eq!(facts.resp, 3);
    assert!(facts.round_trip > Duration::ZERO);
    assert_eq!(link.last_facts(), Some(facts));
}

#[tokio::test]
async fn a_unix_socket_and_a_database_are_used() {
    let server = server();
    let socket = server.socket();
    let url = format!("redis+unix://{}?db=3&client_name=holdline-here", socket.display());
    let link = link(&url);
    assert_eq!(say(&link, "SET k v").await.expect("an answer"), ok());
    let mut raw = server.raw();
    raw.say("SELECT 3").expect("a reply");
    assert_eq!(raw.say("GET k").expect("a reply").text().as_deref(), Some("v"));
    let list = ask_server(&server, "CLIENT LIST").text().expect("text");
    assert!(list.contains(" name=holdline-here "), "{list}");
    let missing = super::link(&format!("redis+unix://{}-not", socket.display()));
    let error = say(&missing, "PING").await.expect_err("no such socket");
    assert!(unavailable(&error, Certainty::NotApplied).contains("no such socket"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused() {
    let server = server();
    let error = say(&link(&format!("{}/99", server.url())), "PING").await.expect_err("refused");
    assert!(refused(&error).contains("no such database"), "{error}");
}

#[tokio::test]
async fn resp2_works_too() {
    let server = server();
    let link = link(&format!("{}/1?protocol=resp2", server.url()));
    assert_eq!(link.ready().await.expect("a connection").resp, 2);
    assert_eq!(say(&link, "SET k v").await.expect("an answer"), ok());
    assert_eq!(say(&link, "GET k").await.expect("an answer"), bytes("v"));
    assert_eq!(say(&link, "GET nothing").await.expect("an answer"), Value::Nil);
}

#[tokio::test]
async fn an_error_reply_means_that_nothing_was_done() {
    let server = server();
    let link = link_at(server.address());
    say(&link, "LPUSH list x").await.expect("an answer");
    let error = say(&link, "GET list").await.expect_err("another type");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(source.is_some_and(|words| words.starts_with("WRONGTYPE ")));
}

/// However a request's future is dropped, replies stay in step.
#[tokio::test]
async fn futures_dropped_at_every_await_leave_the_replies_in_step() {
    let server = server();
    let link = link_at(server.address());
    for polls in 0..6 {
        let fresh = link_at(server.address());
        for link in [&link, &fresh] {
            let mut asked = Box::pin(say(link, "ECHO dropped"));
            for _ in 0..polls {
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(asked.as_mut().poll(context))
                });
                if polled.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(asked);
            let text = format!("kept/{polls}");
            let answer = say(link, &format!("ECHO {text}")).await.expect("an answer");
            assert_eq!(answer, bytes(&text));
        }
    }
    assert_eq!(say(&link, "PING").await.expect("an answer"), Value::Status("PONG".to_owned()));
}
