//! Counting semaphores: the keys and messages of Redisson's `RSemaphore`, and what becomes of an
//! acquire that is dropped, cut off or not woken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, CountingSemaphore};
use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, CountingCommand, CountingReply, Engine, ErrorKind, LockError};
use holdline_redis::{RedisEngine, RedisOptions, RedissonEngine};
use holdline_services::{Fault, FaultProxy, Frames, Raw, RedisConfig, RedisServer, Reply};

use crate::support::{PATIENCE, client, connect, name};

const S: Duration = Duration::from_secs(1);

async fn ask(
    engine: &RedissonEngine,
    command: CountingCommand,
) -> Result<CountingReply, LockError> {
    Engine::counting(engine, &name("slots"), command).await
}

fn raw(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("the server answers")
}

/// A connection that receives the messages of the semaphore.
fn listener(server: &RedisServer) -> Raw {
    let mut raw = server.raw();
    raw.send(&["SUBSCRIBE", "redisson_sc:{slots}"]).expect("subscribed");
    raw
}

fn next_message(listener: &mut Raw) -> String {
    let message = listener.read().expect("a message");
    message.items().expect("a list").last().and_then(Reply::text).expect("a payload")
}

async fn semaphore(server: &RedisServer) -> CountingSemaphore {
    client(server).await.counting_semaphore("slots").expect("this dialect has them")
}

#[tokio::test]
async fn the_key_and_the_messages_are_redissons() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = connect(&server.url(), "").await.expect("connected");
    let mut messages = listener(&server);
    use CountingCommand::{Acquire, Available, Drain, Release, Set};
    let reply = |before, after| CountingReply { before, after };
    for (command, expected, message) in [
        (Acquire(1), reply(0, 0), None),
        (Set(3), reply(0, 3), Some("3")),
        (Set(9), reply(3, 3), None),
        (Acquire(2), reply(3, 1), None),
        (Release(5), reply(1, 6), Some("6")),
        (Drain, reply(6, 0), None),
        (Release(1), reply(0, 1), Some("1")),
        (Available, reply(1, 1), None),
    ] {
        assert_eq!(ask(&engine, command).await.expect("an answer"), expected, "{command:?}");
        let stored = raw(&server, &["GET", "slots"]).text();
        assert_eq!(stored.unwrap_or("0".into()), expected.after.to_string(), "{command:?}");
        if let Some(message) = message {
            assert_eq!(next_message(&mut messages), message, "{command:?}");
        }
    }
    // What another program left: below zero, with an expiry, which stays.
    raw(&server, &["SET", "slots", "-2", "PX", "600000"]);
    assert_eq!(ask(&engine, Acquire(1)).await.expect("an answer"), reply(-2, -2));
    assert_eq!(ask(&engine, Drain).await.expect("an answer"), reply(-2, -2));
    assert_eq!(ask(&engine, Release(3)).await.expect("an answer"), reply(-2, 1));
    assert!(matches!(raw(&server, &["PTTL", "slots"]), Reply::Integer(left) if left > 0));
}

#[tokio::test]
async fn what_is_no_number_of_permits_is_foreign_and_stays() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = connect(&server.url(), "").await.expect("connected");
    for plant in [
        &["SET", "slots", "many"][..],
        &["SET", "slots", "1.5"],
        &["SET", "slots", "99999999999"],
        &["HSET", "slots", "a", "1"],
    ] {
        raw(&server, &["DEL", "slots"]);
        raw(&server, plant);
        let before = raw(&server, &["DUMP", "slots"]);
        use CountingCommand::{Acquire, Available, Drain, Release, Set};
        for command in [Set(1), Acquire(1), Release(1), Drain, Available] {
            let error = ask(&engine, command).await.expect_err("foreign");
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {error}");
            assert_eq!(error.certainty(), Certainty::NotApplied);
        }
        assert_eq!(raw(&server, &["DUMP", "slots"]), before, "{plant:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_the_message_changes_nothing() {
    let server = RedisServer::start(RedisConfig::default());
    let rules = ["ACL", "SETUSER", "quiet", "on", ">secret", "~*", "+@all", "resetchannels"];
    raw(&server, &rules);
    let url = server.url().replace("redis://", "redis://quiet:secret@");
    let engine = connect(&url, "").await.expect("connected");
    let error = ask(&engine, CountingCommand::Release(1)).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert_eq!(raw(&server, &["EXISTS", "slots"]), Reply::Integer(0));
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_of_another() {
    let server = RedisServer::start(RedisConfig::default());
    let (engine, other) = (
        connect(&server.url(), "").await.expect("connected"),
        connect(&server.url(), "").await.expect("connected"),
    );
    ask(&engine, CountingCommand::Set(1)).await.expect("set");
    ask(&engine, CountingCommand::Acquire(1)).await.expect("taken");
    let at_most = 10 * S;
    let began = Instant::now();
    let waits = tokio::spawn({
        let engine = engine.clone();
        async move { ask(&engine, CountingCommand::Await { permits: 2, at_most }).await }
    });
    until_subscribed(&server).await;
    // One permit is not enough for it.
    ask(&other, CountingCommand::Release(1)).await.expect("released");
    ask(&other, CountingCommand::Release(1)).await.expect("released");
    let reply = waits.await.expect("no panic").expect("an answer");
    assert_eq!(reply, CountingReply { before: 2, after: 2 });
    assert!(began.elapsed() < at_most, "the message did not wake it");
}

#[tokio::test]
async fn a_waiter_that_may_not_subscribe_asks_again() {
    let server = RedisServer::start(RedisConfig::default());
    let rules = ["ACL", "SETUSER", "quiet", "on", ">secret", "~*", "+@all", "resetchannels"];
    raw(&server, &rules);
    let url = server.url().replace("redis://", "redis://quiet:secret@");
    let (quiet, other) = (
        connect(&url, "").await.expect("connected"),
        connect(&server.url(), "").await.expect("connected"),
    );
    ask(&other, CountingCommand::Set(1)).await.expect("set");
    ask(&other, CountingCommand::Acquire(1)).await.expect("taken");
    let waits = tokio::spawn(async move {
        ask(&quiet, CountingCommand::Await { permits: 1, at_most: 10 * S }).await
    });
    ask(&other, CountingCommand::Release(1)).await.expect("released");
    let reply = waits.await.expect("no panic").expect("an answer");
    assert_eq!(reply.after, 1, "{reply:?}");
}

async fn until_subscribed(server: &RedisServer) {
    let end = Instant::now() + PATIENCE;
    let subscribers = || raw(server, &["PUBSUB", "NUMSUB", "redisson_sc:{slots}"]);
    while subscribers().items().is_none_or(|items| items[1] != Reply::Integer(1)) {
        assert!(Instant::now() < end, "nobody subscribes");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked again until it is seen
    }
}

#[tokio::test]
async fn a_waiter_finds_permits_of_which_no_message_came() {
    let server = RedisServer::start(RedisConfig::default());
    let semaphore = semaphore(&server).await;
    let waits = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_for(2, PATIENCE).await }
    });
    until_subscribed(&server).await;
    raw(&server, &["SET", "slots", "2"]);
    assert!(waits.await.expect("no panic").expect("an answer"));
    assert_eq!(semaphore.available().await.expect("an answer"), 0);
    assert!(!semaphore.try_acquire(1).await.expect("an answer"));
    assert!(!semaphore.acquire_for(1, Duration::from_millis(20)).await.expect("an answer"));
}

#[tokio::test]
async fn an_acquire_that_is_dropped_gives_back_what_it_took() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address());
    let engine = connect(&format!("redis://{}", proxy.address()), "").await.expect("connected");
    ask(&engine, CountingCommand::Set(3)).await.expect("set");
    let mut messages = listener(&server);
    // The reply stays in the proxy until the caller has gone.
    proxy.inject(Frames::replies().containing("acquire").nth(1), Fault::Hold);
    {
        let taking = ask(&engine, CountingCommand::Acquire(2));
        let taken = async {
            let end = Instant::now() + PATIENCE;
            while raw(&server, &["GET", "slots"]).text().as_deref() != Some("1") {
                assert!(Instant::now() < end, "nothing was taken");
                tokio::time::sleep(Duration::from_millis(5)).await; // event: until it is taken
            }
        };
        tokio::select! {
            reply = taking => panic!("the reply is held: {reply:?}"),
            () = taken => {}
        }
    }
    proxy.thaw();
    let message = tokio::task::spawn_blocking(move || next_message(&mut messages)).await;
    assert_eq!(message.expect("no panic"), "3");
    assert_eq!(raw(&server, &["GET", "slots"]).text().as_deref(), Some("3"));
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_says_that_it_may_have_taken_permits() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address());
    let engine = connect(&format!("redis://{}", proxy.address()), "").await.expect("connected");
    let client = Client::with_options(Arc::new(engine), holdline::ClientOptions::default())
        .expect("a client");
    let semaphore = client.counting_semaphore("slots").expect("this dialect has them");
    assert!(semaphore.try_set_permits(3).await.expect("set"));
    proxy.inject(Frames::replies().containing("acquire").nth(1), Fault::SwallowThenReset);
    // It does not ask again, which could take them twice.
    let error = semaphore.acquire(2).await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(semaphore.available().await.expect("an answer"), 1);
}

#[tokio::test]
async fn other_engines_refuse_a_counting_semaphore() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let native = RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected");
    for client in [
        Client::connect("memory:counting").await,
        Client::with_options(Arc::new(native), holdline::ClientOptions::default()),
    ] {
        let client = client.expect("a client");
        let error = client.counting_semaphore("slots").expect_err("refused");
        assert!(error.to_string().contains("dialect=redisson"), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}
