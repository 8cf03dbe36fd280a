//! Connections that come too late, come back, or are waited for.

use std::time::Duration;

use super::*;
use crate::link::Value;
use crate::link::connection::ConnectionCallbacks;
use crate::link::pending::Limit;
use crate::link::pending_reply::PendingReply;
use crate::link::request::Request;
use crate::link::resp::Frame;

/// Counts the notifications of a connection.
#[derive(Default)]
struct Counted(AtomicU64);

impl ConnectionObserver for Counted {
    fn connection_changed(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn connection(id: u64, counted: &Arc<Counted>) -> Arc<Connection> {
    let callbacks = ConnectionCallbacks { observer: counted.clone(), reset: Arc::default() };
    let clock = Arc::new(holdline::clock::ManualClock::new());
    Arc::new(Connection::new(id, ServerFacts::default(), clock, callbacks, None))
}

#[test]
fn a_connection_that_is_made_after_the_close_is_closed() {
    let (router, counted) = (ConnectionRouter::new(), Arc::default());
    router.close();
    let late = connection(1, &counted);
    router.add(late.clone());
    assert_eq!((late.health(), router.current()), (Health::Closed, None));
}

/// A retired connection that is used again no longer ends when it is empty.
#[test]
fn a_reinstated_connection_does_not_report_that_it_is_empty() {
    let (router, counted) = (ConnectionRouter::new(), Arc::default());
    let (first, second) = (connection(1, &counted), connection(2, &counted));
    let limit = Limit { end: holdline_core::Moment::NEVER, asked: Duration::from_secs(1) };
    let ask = || PendingReply::enqueue(first.clone(), Request::Ping("1"), None, limit).ok();
    router.add(first.clone());
    let _hangs = ask().expect("room");
    first.mark_suspect();
    router.maintain();
    router.add(second.clone());
    first.mark_good();
    assert!(matches!(router.maintain(), RouterState::Current(connection) if connection.id() == 2));
    second.close("gone");
    assert!(matches!(router.maintain(), RouterState::Current(connection) if connection.id() == 1));
    let before = counted.0.load(Ordering::SeqCst);
    let answers = [Frame::Reply(Ok(Value::Nil))].into_iter();
    assert!(first.dispatch(answers, &mut Vec::new()));
    assert_eq!(counted.0.load(Ordering::SeqCst), before);
}
