//! The client against servers that a test plays: what no real server does when it is asked to.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use holdline_core::{Certainty, ErrorKind};
use holdline_net::url::Server;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::calls::{Call, Deliver};
use super::dial::decode_session;
use super::jute::{Decoder, Encoder};
use super::link::{Link, Silence};
use super::messages::{Event, delete, exists, get_data, set_data};
use super::{Client, ClientOptions, SessionChannel, SessionState, Watch, Watched};
use crate::error::RequestError;

/// Longer than any machine that is busy needs.
const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const CONNECTION_LOST: &str = "the test server is gone";
const CLOSE_SESSION: i32 = -11;
const AUTHENTICATE: i32 = 100;
const PING: i32 = 11;
const DELETE: i32 = 2;
const STAT: [u8; 68] = [0; 68];

/// A server that the test plays.
struct TestServer(TcpListener);

/// One connection to it.
struct Accepted {
    stream: TcpStream,
    last_zxid: i64,
    session: i64,
    password: Vec<u8>,
    pings: usize,
}

/// A request, as a server gets it.
struct Received {
    xid: i32,
    op: i32,
    body: Vec<u8>,
}

impl TestServer {
    async fn start() -> TestServer {
        TestServer(TcpListener::bind("127.0.0.1:0").await.expect("a port"))
    }

    fn member(&self) -> Server {
        let port = self.0.local_addr().expect("bound").port();
        Server { host: "127.0.0.1".to_owned(), port }
    }

    /// Waits for a connection, and reads its first message.
    async fn accept(&self) -> Accepted {
        let accepting = timeout(LONG, self.0.accept()).await.expect("a connection in time");
        let (mut stream, _) = accepting.expect("accepted");
        let hello = read_frame(&mut stream).await.expect("the first message");
        let mut hello = Decoder::new(&hello);
        hello.int().expect("the version");
        let last_zxid = hello.long().expect("a transaction");
        hello.int().expect("a timeout");
        let session = hello.long().expect("a session");
        let password = hello.buffer().expect("a password").to_vec();
        Accepted { stream, last_zxid, session, password, pings: 0 }
    }

    /// Accepts a connection, and grants session 7 with this timeout.
    async fn welcome(&self, given: Duration) -> Accepted {
        let mut accepted = self.accept().await;
        accepted.grant(7, given).await;
        accepted
    }
}

impl Accepted {
    async fn grant(&mut self, session: i64, given: Duration) {
        let millis = i32::try_from(given.as_millis()).expect("short");
        let reply = Encoder::default().int(0).int(millis).long(session).buffer(b"its password");
        self.write(&reply.bool(false).into_frame()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("written");
    }

    /// Waits for the next request, and answers pings before it.
    async fn next(&mut self) -> Received {
        loop {
            let reading = timeout(LONG, read_frame(&mut self.stream)).await.expect("in time");
            let frame = reading.expect(CONNECTION_LOST);
            let mut decoder = Decoder::new(&frame);
            let (xid, op) = (decoder.int().expect("an xid"), decoder.int().expect("a type"));
            if op != PING {
                return Received { xid, op, body: frame[8..].to_vec() };
            }
            self.pings += 1;
            self.reply(xid, 0, 0, &[]).await;
        }
    }

    async fn reply(&mut self, xid: i32, zxid: i64, code: i32, body: &[u8]) {
        let reply = Encoder::default().int(xid).long(zxid).int(code).append(body);
        self.write(&reply.into_frame()).await;
    }
}

impl Received {
    /// The path, with which the body of each request here begins.
    fn path(&self) -> String {
        Decoder::new(&self.body).text().expect("a path").into_owned()
    }
}

async fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).expect("a length");
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

fn options(members: Vec<Server>, session_timeout: Duration) -> ClientOptions {
    ClientOptions {
        members,
        tls: None,
        credentials: None,
        session_timeout,
        silence: session_timeout / 3,
        request_timeout: LONG,
    }
}

/// A client with a long session, and the server's side of its connection.
async fn connected(server: &TestServer, request_timeout: Duration) -> (Client, Accepted) {
    let options = ClientOptions { request_timeout, ..options(vec![server.member()], LONG) };
    let (client, accepted) = tokio::join!(Client::connect(options), server.welcome(LONG));
    (client.expect("a session"), accepted)
}

async fn reach(client: &Client, state: SessionState) {
    let mut changes = client.state_changes();
    let reaching = timeout(LONG, changes.wait_for(|now| *now == state)).await;
    reaching.expect("in time").expect("the client lives");
}

async fn soon<T>(doing: impl Future<Output = T>) -> T {
    timeout(LONG, doing).await.expect("in time")
}

/// The crate that was used before sent it after the reconnect.
#[tokio::test]
async fn a_request_whose_caller_gave_up_without_a_connection_is_never_sent() {
    let server = TestServer::start().await;
    let (client, accepted) = connected(&server, SECOND / 5).await;
    drop(accepted);
    reach(&client, SessionState::Disconnected).await;
    let error = client.ask(delete("/late", None)).await.expect_err("no connection");
    assert!(matches!(error, RequestError::NotSent(_)), "{error:?}");
    {
        let mut dropped = pin!(client.ask(delete("/dropped", None)));
        assert!(poll!(&mut dropped).is_pending());
        assert_eq!(client.0.channel.calls.len(), 1);
    }
    assert_eq!(client.0.channel.calls.len(), 0, "a dropped future leaves nothing");
    let mut accepted = server.welcome(LONG).await;
    reach(&client, SessionState::Connected).await;
    let mut asked = pin!(client.ask(delete("/next", None)));
    assert!(poll!(&mut asked).is_pending());
    assert_eq!(accepted.next().await.path(), "/next");
}

#[tokio::test]
async fn what_was_sent_before_a_break_is_unknown_and_is_not_sent_again() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let asking = client.ask(delete("/sent", None));
    let breaking = async {
        assert_eq!(accepted.next().await.path(), "/sent");
        drop(accepted);
    };
    let (outcome, ()) = tokio::join!(asking, breaking);
    let error = outcome.expect_err("no answer");
    assert!(matches!(error, RequestError::NoAnswer(_)), "{error:?}");
    let mut accepted = server.welcome(LONG).await;
    let asking = client.ask(delete("/next", None));
    let answering = async {
        let first = accepted.next().await;
        assert_eq!(first.path(), "/next");
        accepted.reply(first.xid, 9, 0, &[]).await;
    };
    let (outcome, ()) = tokio::join!(asking, answering);
    outcome.expect("answered");
}

#[tokio::test]
async fn what_a_broken_connection_has_not_taken_was_not_sent() {
    let server = TestServer::start().await;
    let (client, accepted) = connected(&server, LONG).await;
    // More than the kernel takes for a server that reads nothing.
    let data = vec![0; 1_000_000];
    let many = (0..64).map(|_| client.ask(set_data("/large", &data, 0)));
    let mut many: Vec<_> = many.map(Box::pin).collect();
    for asked in &mut many {
        assert!(poll!(asked).is_pending());
    }
    // The first bytes of the first request have left.
    accepted.stream.readable().await.expect("readable");
    drop(accepted);
    let all = futures_util::future::join_all(many);
    let (outcomes, mut accepted) = soon(async { tokio::join!(all, server.welcome(LONG)) }).await;
    let first = outcomes.first().expect("one");
    assert!(matches!(first, Err(RequestError::NoAnswer(_))), "{first:?}");
    let last = outcomes.last().expect("one");
    assert!(matches!(last, Err(RequestError::NotSent(_))), "{last:?}");
    let mut asked = pin!(client.ask(delete("/next", None)));
    assert!(poll!(&mut asked).is_pending());
    assert_eq!(accepted.next().await.path(), "/next", "none is sent on the next connection");
}

#[tokio::test]
async fn a_request_of_which_the_stream_has_taken_no_byte_was_not_sent() {
    let (ours, theirs) = duplex(1024);
    let channel = SessionChannel::new();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    // Their frames begin at the bytes 0, 1012 and 2024.
    for _ in 0..3 {
        let outcomes = outcomes.clone();
        let deliver: Deliver = Box::new(move |reply| {
            outcomes
                .lock()
                .extend(reply.err().map(|error| matches!(error, RequestError::NotSent(_))));
            Ok(())
        });
        assert!(channel.calls.push(Call { op: DELETE, body: vec![0; 1000], deliver }).is_ok());
    }
    let mut link = Link::new(Box::new(ours), Silence::of(LONG, LONG), 0);
    tokio::join!(link.run(&channel), async move { drop(theirs) });
    assert_eq!(*outcomes.lock(), [false, false, true]);
}

/// A read must see what was created before it, also if both waited for the connection.
#[tokio::test]
async fn requests_that_wait_for_a_connection_are_sent_in_their_order() {
    let server = TestServer::start().await;
    let (client, accepted) = connected(&server, LONG).await;
    drop(accepted);
    reach(&client, SessionState::Disconnected).await;
    let paths = ["/a", "/b", "/c"];
    let asking = async {
        let (a, b, c) = tokio::join!(
            client.ask(delete("/a", None)),
            client.ask(delete("/b", None)),
            client.ask(delete("/c", None)),
        );
        [a, b, c].into_iter().for_each(|outcome| outcome.expect("answered"));
    };
    let answering = async {
        let mut accepted = server.welcome(LONG).await;
        for path in paths {
            let request = accepted.next().await;
            assert_eq!((request.path().as_str(), request.op), (path, DELETE));
            accepted.reply(request.xid, 1, 0, &[]).await;
        }
        accepted
    };
    tokio::join!(asking, answering);
}

#[tokio::test]
async fn a_session_continues_by_id_password_and_last_transaction_and_its_end_is_reported() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    assert_eq!((accepted.session, accepted.last_zxid), (0, 0));
    let asking = client.ask_and_watch(get_data("/a", true), Watched::Data, "/a");
    let answering = async {
        let request = accepted.next().await;
        let body = Encoder::default().buffer(b"data").append(&STAT).into_bytes();
        accepted.reply(request.xid, 42, 0, &body).await;
    };
    let (outcome, ()) = tokio::join!(asking, answering);
    let ((data, _), watch): (_, Watch) = outcome.expect("answered");
    assert_eq!(data, b"data");
    drop(accepted);
    assert_eq!(soon(watch.event()).await, Event::Disconnected);
    let mut accepted = server.accept().await;
    let shown = (accepted.session, accepted.password.as_slice(), accepted.last_zxid);
    assert_eq!(shown, (7, &b"its password"[..], 42));
    accepted.grant(0, Duration::ZERO).await;
    reach(&client, SessionState::Ended).await;
    let error = client.ask(exists("/a")).await.expect_err("ended");
    assert!(matches!(error, RequestError::SessionGone), "{error:?}");
    assert_eq!(client.0.channel.watches.len(), 0);
}

#[tokio::test]
async fn an_expired_session_is_reported_to_a_request_on_its_way() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let answering = async {
        let request = accepted.next().await;
        accepted.reply(request.xid, 1, -112, &[]).await;
    };
    let (outcome, ()) = tokio::join!(client.ask(exists("/a")), answering);
    assert!(matches!(outcome, Err(RequestError::SessionGone)), "{outcome:?}");
    reach(&client, SessionState::Ended).await;
}

#[tokio::test]
async fn a_watch_gets_its_event_and_events_for_nobody_are_ignored() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let event = |kind: i32, path: &str| {
        let header = Encoder::default().int(-1).long(-1).int(0);
        header.int(kind).int(3).text(path).into_frame()
    };
    let asking = client.ask_and_watch(get_data("/a", true), Watched::Data, "/a");
    let answering = async {
        let request = accepted.next().await;
        let body = Encoder::default().buffer(b"").append(&STAT).into_bytes();
        accepted.write(&event(3, "/a")).await;
        accepted.reply(request.xid, 1, 0, &body).await;
        for (kind, path) in [(3, "/b"), (4, "/a"), (99, "/a"), (2, "/a")] {
            accepted.write(&event(kind, path)).await;
        }
    };
    let (outcome, ()) = tokio::join!(asking, answering);
    let (_, watch) = outcome.expect("answered");
    assert_eq!(soon(watch.event()).await, Event::Deleted);
    assert_eq!(client.0.channel.watches.len(), 0);
}

#[tokio::test]
async fn a_client_that_is_dropped_closes_its_session_after_its_requests() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let asking = client.clone();
    let asked = tokio::spawn(async move { asking.ask(delete("/a", None)).await });
    let request = accepted.next().await;
    asked.abort();
    drop(client);
    let closing = accepted.next().await;
    assert_eq!((request.op, closing.op), (DELETE, CLOSE_SESSION));
    accepted.reply(request.xid, 1, 0, &[]).await;
    accepted.reply(closing.xid, 2, 0, &[]).await;
    let end = soon(accepted.stream.read(&mut [0])).await;
    assert_eq!(end.expect("read"), 0, "the connection is closed");
}

#[tokio::test]
async fn a_session_whose_client_was_dropped_without_a_connection_is_closed_on_the_next_one() {
    let server = TestServer::start().await;
    let (client, accepted) = connected(&server, LONG).await;
    drop(accepted);
    reach(&client, SessionState::Disconnected).await;
    drop(client);
    let mut accepted = server.welcome(LONG).await;
    assert_eq!((accepted.session, accepted.next().await.op), (7, CLOSE_SESSION));
}

/// The lease would last for longer than the session.
#[tokio::test]
async fn a_member_that_grants_less_time_than_the_others_does_not_continue_a_session() {
    let server = TestServer::start().await;
    let (client, accepted) = connected(&server, LONG).await;
    drop(accepted);
    reach(&client, SessionState::Disconnected).await;
    let mut less = server.welcome(LONG / 2).await;
    // It is left before a ping is sent.
    let end = soon(less.stream.read(&mut [0])).await;
    assert_eq!(end.expect("read"), 0);
    let _as_much = server.welcome(LONG).await;
    reach(&client, SessionState::Connected).await;
}

#[tokio::test]
async fn a_client_authenticates_before_its_first_request_on_each_connection() {
    let server = TestServer::start().await;
    let credentials = Some("ann:hers".to_owned());
    let options = ClientOptions { credentials, ..options(vec![server.member()], LONG) };
    let authenticated = async |code: i32| {
        let mut accepted = server.welcome(LONG).await;
        let request = accepted.next().await;
        assert_eq!((request.xid, request.op), (-4, AUTHENTICATE));
        assert!(String::from_utf8_lossy(&request.body).contains("ann:hers"));
        accepted.reply(-4, 0, code, &[]).await;
        accepted
    };
    let (client, accepted) = tokio::join!(Client::connect(options.clone()), authenticated(0));
    let client = client.expect("a session");
    drop(accepted);
    let accepted = authenticated(0).await;
    reach(&client, SessionState::Connected).await;
    drop((client, accepted));
    let (refused, _) = tokio::join!(Client::connect(options), authenticated(-115));
    let error = refused.err().expect("refused").into_error();
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
}

#[tokio::test]
async fn a_silent_connection_gets_pings_and_is_dropped_for_another() {
    let server = TestServer::start().await;
    let options = ClientOptions { silence: SECOND, ..options(vec![server.member()], LONG) };
    let (client, accepted) = tokio::join!(Client::connect(options), server.welcome(LONG));
    let (client, mut silent) = (client.expect("a session"), accepted);
    // Nothing is answered here: not even the pings.
    let mut accepted = server.welcome(LONG).await;
    let ping = read_frame(&mut silent.stream).await.expect("a ping");
    assert_eq!(ping, [0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11]);
    reach(&client, SessionState::Connected).await;
    // On the next connection pings are answered, and it stays.
    let answering = async {
        while accepted.pings < 4 {
            let next = timeout(SECOND, accepted.next()).await;
            assert!(next.is_err(), "only pings are sent");
        }
    };
    soon(answering).await;
    assert_eq!(client.state(), SessionState::Connected);
}

#[test]
fn pings_and_silence_are_parts_of_the_session_timeout() {
    let seconds = Duration::from_secs;
    for (timeout, asked, ping, drop) in [(30, 99, 7_500, 20_000), (30, 8, 3_000, 8_000)] {
        let silence = Silence::of(seconds(timeout), seconds(asked));
        let (ping, drop) = (Duration::from_millis(ping), Duration::from_millis(drop));
        assert_eq!(silence, Silence { ping, drop });
        assert!(silence.ping <= seconds(timeout) / 3 && silence.drop <= seconds(timeout) * 2 / 3);
    }
}

#[tokio::test]
async fn members_are_tried_in_random_order_and_a_silent_one_is_left() {
    let (one, other, silent) =
        (TestServer::start().await, TestServer::start().await, TestServer::start().await);
    let members = vec![one.member(), silent.member(), other.member()];
    // A member is known by the timeout that it grants.
    let timeouts = [LONG, LONG / 2];
    for (server, given) in [one, other].into_iter().zip(timeouts) {
        tokio::spawn(async move {
            let mut all = Vec::new();
            loop {
                all.push(server.welcome(given).await);
            }
        });
    }
    let options = ClientOptions { silence: SECOND / 2, ..options(members, LONG) };
    let mut chosen = Vec::new();
    // Each comes first with a half: that one never does is as likely as 20 heads in a row.
    for _ in 0..20 {
        let client = Client::connect(options.clone()).await.expect("a session");
        chosen.push(client.session_timeout());
    }
    assert!(timeouts.iter().all(|given| chosen.contains(given)), "{chosen:?}");
}

#[tokio::test]
async fn a_reply_that_is_none_ends_the_connection_and_not_the_session() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let short_stat = [0; 67];
    let reply = |xid: i32, body: &[u8]| {
        Encoder::default().int(xid).long(1).int(0).append(body).into_frame()
    };
    for (case, why) in [
        ("short", "no valid reply"),
        ("stranger", "a reply to no request"),
        ("ping", "a reply to no ping"),
        ("long", "too long"),
        ("negative", "too long"),
        ("header", "too early"),
    ] {
        let answering = async {
            let xid = accepted.next().await.xid;
            let bytes = match case {
                "short" => reply(xid, &short_stat),
                "stranger" => reply(xid + 1, &STAT),
                "ping" => reply(-2, &[]),
                "long" => i32::MAX.to_be_bytes().to_vec(),
                "negative" => (-1_i32).to_be_bytes().to_vec(),
                _ => Encoder::default().int(xid).into_frame(),
            };
            accepted.write(&bytes).await;
        };
        let (outcome, ()) = tokio::join!(client.ask(exists("/a")), answering);
        let error = outcome.expect_err(case).into_error();
        assert_eq!(error.certainty(), Certainty::Unknown, "{case}: {error}");
        assert!(error.to_string().contains(why), "{case}: {error}");
        accepted = server.welcome(LONG).await;
        assert_eq!(accepted.session, 7, "{case}");
    }
}

#[tokio::test]
async fn a_server_that_is_none_gives_no_session() {
    let server = TestServer::start().await;
    let answering = async {
        let mut accepted = server.accept().await;
        accepted.write(b"-ERR unknown command\r\n").await;
        accepted
    };
    let connecting = Client::connect(options(vec![server.member()], LONG));
    let (outcome, _accepted) = tokio::join!(connecting, answering);
    let error = outcome.err().expect("no session");
    assert!(
        matches!(&error, RequestError::NotSent(why) if why.contains("check the port")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_request_that_servers_would_not_take_is_refused_and_the_others_go_on() {
    let server = TestServer::start().await;
    let (client, mut accepted) = connected(&server, LONG).await;
    let error = client.ask(set_data("/a", &vec![0; 0x10_0000], 0)).await.expect_err("too long");
    assert_eq!(error.into_error().certainty(), Certainty::NotApplied);
    let mut asked = pin!(client.ask(delete("/next", None)));
    assert!(poll!(&mut asked).is_pending());
    assert_eq!(accepted.next().await.path(), "/next");
}

proptest! {
    /// Whatever a server sends, and however it is split, the client neither panics nor hangs.
    #[test]
    fn no_bytes_make_a_connection_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        frames in proptest::collection::vec((-10..10_i32, -130..2_i32), 0..8),
    ) {
        let _ = decode_session(&bytes);
        let (ours, _theirs) = duplex(1024);
        let channel = SessionChannel::new();
        let mut link = Link::new(Box::new(ours), Silence::of(LONG, LONG), 0);
        for _ in 0..4 {
            let call = Call { op: 3, body: Vec::new(), deliver: Box::new(|reply| match reply {
                Ok(reply) => (exists("/a").decode)(reply).map(drop),
                Err(_) => Ok(()),
            })};
            prop_assert!(channel.calls.push(call).is_ok());
        }
        link.take_requests(&channel);
        let mut input = Vec::new();
        for (xid, code) in frames {
            let frame = Encoder::default().int(xid).long(1).int(code).append(&STAT);
            input.extend(frame.into_frame());
        }
        input.extend(&bytes);
        for part in input.chunks(7) {
            if link.receive(part, &channel).is_err() {
                break;
            }
        }
    }
}
