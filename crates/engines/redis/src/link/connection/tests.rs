//! What leaves when, and what a suspect connection accepts.

use super::*;
use crate::link::Value;
use crate::link::pending_reply::PendingReply;
use holdline::clock::ManualClock;

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio::task::JoinHandle;

struct NoObserver;

impl ConnectionObserver for NoObserver {
    fn connection_changed(&self) {}
}

fn connection() -> Arc<Connection> {
    let callbacks = ConnectionCallbacks { observer: Arc::new(NoObserver), reset: Arc::default() };
    Arc::new(Connection::new(
        1,
        ServerFacts::default(),
        Arc::new(ManualClock::new()),
        callbacks,
        None,
    ))
}

fn begin(connection: &Arc<Connection>) -> Option<PendingReply> {
    let limit = Limit { end: Moment::NEVER, asked: Duration::from_secs(1) };
    PendingReply::enqueue(connection.clone(), Request::Ping("1"), None, limit).ok()
}

#[test]
fn the_ticket_of_a_dropped_request_is_reused_once_it_is_answered() {
    let connection = connection();
    let first = begin(&connection).expect("room");
    let place = first.ticket();
    drop(first);
    assert_ne!(begin(&connection).expect("room").ticket(), place, "it is unanswered");
    let frames = [Frame::Reply(Ok(Value::Nil)), Frame::Reply(Ok(Value::Nil))];
    assert!(connection.dispatch(frames.into_iter(), &mut Vec::new()));
    let places =
        [begin(&connection), begin(&connection)].map(|begun| begun.expect("room").ticket());
    assert!(places.contains(&place), "{places:?} {place:?}");
}

#[test]
fn a_suspect_connection_accepts_a_few_more_and_a_cleared_one_accepts_all() {
    let connection = connection();
    let _first = begin(&connection);
    assert!(connection.mark_suspect());
    let behind: Vec<_> = std::iter::from_fn(|| begin(&connection)).collect();
    assert_eq!(behind.len(), MAX_QUEUED_WHILE_SUSPECT);
    connection.mark_good();
    assert_eq!(connection.health(), Health::Good);
    assert!(begin(&connection).is_some());
}

#[tokio::test]
async fn requests_wait_for_room_until_replies_come_or_the_connection_ends() {
    let connection = connection();
    let _asked: Vec<_> = std::iter::from_fn(|| begin(&connection)).collect();
    let waits = || {
        let connection = connection.clone();
        tokio::spawn(async move { connection.room().await })
    };
    let mut waiting: Vec<_> = (0..4).map(|_| waits()).collect();
    tokio::task::yield_now().await;
    waiting.remove(0).abort();
    tokio::task::yield_now().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    // Each reply makes room for one.
    assert!(answer(&connection));
    waiting.remove(0).await.expect("room");
    assert!(begin(&connection).is_some() && begin(&connection).is_none());
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    connection.finish(unavailable("it broke", Certainty::Unknown), &mut Vec::new());
    for one in waiting {
        one.await.expect("the connection has ended");
    }
}

/// Counts how often the connection's task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

const LIMIT: Limit = Limit { end: Moment::from_nanos(1), asked: Duration::from_secs(1) };

/// A connection whose task sleeps until its first deadline, and the server's end of its stream.
fn idle_connection() -> (Arc<Connection>, DuplexStream, Arc<Woken>) {
    let (near, mut far) = tokio::io::duplex(FLUSH_BYTES * 4);
    let callbacks = ConnectionCallbacks { observer: Arc::new(NoObserver), reset: Arc::default() };
    let (facts, clock) = (ServerFacts::default(), Arc::new(ManualClock::new()));
    let connection =
        Arc::new(Connection::new(1, facts, clock, callbacks, Some(Wire::new(Box::new(near)))));
    let woken: Arc<Woken> = Arc::default();
    connection.register_task(&Waker::from(woken.clone()));
    drop(ask(&connection));
    connection.arm(None);
    assert!(answer(&connection));
    connection.register_task(&Waker::from(woken.clone()));
    assert!(!read(&mut far).is_empty());
    woken.0.store(0, Ordering::SeqCst);
    (connection, far, woken)
}

fn ask(connection: &Arc<Connection>) -> PendingReply {
    let Ok(exchange) = PendingReply::enqueue(connection.clone(), Request::Ping("1"), None, LIMIT)
    else {
        panic!("no room")
    };
    exchange
}

fn answer(connection: &Connection) -> bool {
    connection.dispatch([Frame::Reply(Ok(Value::Nil))].into_iter(), &mut Vec::new())
}

fn read(far: &mut DuplexStream) -> Vec<u8> {
    let mut room = [0; FLUSH_BYTES * 4];
    let mut read = ReadBuf::new(&mut room);
    let mut context = Context::from_waker(Waker::noop());
    let _ = Pin::new(far).poll_read(&mut context, &mut read);
    read.filled().to_vec()
}

#[test]
fn a_request_to_an_idle_server_is_sent_at_once_and_wakes_no_task() {
    let (connection, mut far, woken) = idle_connection();
    for _ in 0..3 {
        let _asked = ask(&connection);
        assert_eq!(read(&mut far), b"*2\r\n$4\r\nPING\r\n$1\r\n1\r\n");
        assert!(answer(&connection));
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
}

#[test]
fn later_requests_are_buffered_until_the_task_runs_or_the_buffer_is_large() {
    let (connection, mut far, woken) = idle_connection();
    let mut asked = vec![ask(&connection)];
    let one = read(&mut far).len();
    asked.push(ask(&connection));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "the task is to send it");
    while asked.len() <= FLUSH_BYTES / one {
        asked.push(ask(&connection));
        assert!(read(&mut far).is_empty(), "{}", asked.len());
    }
    asked.push(ask(&connection));
    assert_eq!(read(&mut far).len(), (FLUSH_BYTES / one + 1) * one);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_batch_is_sent_at_its_end_but_for_its_first_request() {
    let (connection, mut far, woken) = idle_connection();
    batch::open();
    let mut asked = vec![ask(&connection)];
    let one = read(&mut far).len();
    assert_ne!(one, 0, "the server was idle");
    asked.extend([ask(&connection), ask(&connection)]);
    assert!(read(&mut far).is_empty());
    batch::end();
    assert_eq!(read(&mut far).len(), 2 * one);
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    asked.push(ask(&connection));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "the batch has ended");
}

/// A renewal does not wait for the batch of an event loop that is blocked.
#[test]
fn what_a_batch_holds_back_is_sent_with_the_request_of_another_thread() {
    let (connection, _far, woken) = idle_connection();
    batch::open();
    let _held_back = [ask(&connection), ask(&connection)];
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    let renewal = std::thread::spawn(move || ask(&connection)).join().expect("it ran");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "the task is to send all");
    drop(renewal);
    batch::end();
}

#[test]
fn while_the_task_uses_the_stream_it_is_woken_and_no_caller_blocks() {
    let (connection, mut far, woken) = idle_connection();
    let stream = connection.wire();
    let _asked = ask(&connection);
    drop(stream);
    assert!(read(&mut far).is_empty());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}
