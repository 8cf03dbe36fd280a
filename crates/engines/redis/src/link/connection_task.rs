//! The task of one connection: it writes and reads, watches the deadlines, and ends it.
//!
//! A deadline that passes makes the connection suspect at once: the server replies in order, so no
//! later request was answered either. A deadline that was too short proves nothing: then a ping
//! decides. The reply to a ping must be the number that the ping carried. Any other reply shows
//! that replies are out of step, and ends the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{Certainty, LockError, Moment};

use super::connection::Connection;
use super::health::Health;
use super::pending::Limit;
use super::pending::Overdue;
use super::pending_reply::PendingReply;
use super::request::Request;
use super::resp::Frame;
use super::subscriptions::Subscriptions;
use super::wire::WireError;
use crate::environment::Task;
use crate::error::{protocol, unavailable};

/// How long a suspect connection is kept, for requests that must go behind its unanswered ones: as
/// long as an abandoned first grant can last, and a little longer.
pub(super) const MAX_SUSPECT: Duration = MAX_FIRST_LEASE.saturating_add(Duration::from_secs(5));

/// How often the deadlines are checked before other tasks have their turn.
const MAX_ROUNDS: u32 = 8;

pub(super) struct ConnectionTask {
    connection: Arc<Connection>,
    over: bool,
    subscriptions: Arc<Subscriptions>,
    /// Frames that were read and not yet dispatched.
    frames: Vec<Frame>,
    wake: Vec<Waker>,
    timer: Option<Task<()>>,
    alarm_waker: Arc<AlarmWaker>,
    /// The deadlines must be checked although no waker was called for it.
    check_due: bool,
    probe: Option<PingProbe>,
    /// Since when the connection is suspect.
    suspected: Option<Moment>,
}

/// The waker of the timer: the task polls the timer only after it has fired, not at every reply.
struct AlarmWaker {
    fired: AtomicBool,
    connection: Arc<Connection>,
}

impl Wake for AlarmWaker {
    fn wake(self: Arc<Self>) {
        self.fired.store(true, Ordering::Release);
        self.connection.wake_task();
    }
}

/// A ping that decides whether the connection works.
struct PingProbe {
    reply: PendingReply,
    /// The expected reply.
    number: String,
    since: Moment,
}

impl ConnectionTask {
    pub(super) fn new(
        connection: Arc<Connection>,
        subscriptions: Arc<Subscriptions>,
    ) -> ConnectionTask {
        let alarm_waker =
            Arc::new(AlarmWaker { fired: AtomicBool::new(false), connection: connection.clone() });
        ConnectionTask {
            connection,
            over: false,
            subscriptions,
            frames: Vec::new(),
            wake: Vec::new(),
            timer: None,
            alarm_waker,
            check_due: false,
            probe: None,
            suspected: None,
        }
    }

    fn end(&mut self, error: LockError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.probe = None;
        let wire = self.connection.wire().take();
        self.connection.finish(error, &mut self.wake);
        drop(wire);
        self.connection.notify_observer();
        self.wake.drain(..).for_each(Waker::wake);
    }

    /// Reads all input and writes all output. Always both: a server that cannot send its replies
    /// stops reading.
    fn drive(&mut self, context: &mut Context<'_>) -> Result<(), WireError> {
        let connection = self.connection.clone();
        // Input may have been read together with the handshake.
        let mut more = true;
        while more {
            let read = match &mut *connection.wire() {
                Some(wire) => wire.read_frames(&mut self.frames),
                None => return Ok(()),
            };
            self.dispatch_frames();
            read?;
            more = match &mut *connection.wire() {
                Some(wire) => wire.poll_read(context)?.is_ready(),
                None => false,
            };
        }
        if let Some(wire) = &mut *connection.wire() {
            connection.write(wire, context)?;
        }
        Ok(())
    }

    /// Delivers messages and replies.
    fn dispatch_frames(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        // Messages first: a contender that was handed a name proceeds before one that releases.
        for frame in &self.frames {
            if let Frame::Push(parts) = frame {
                self.subscriptions.handle_push(parts, Some(self.connection.facts()));
            }
        }
        let all_expected = self.connection.dispatch(self.frames.drain(..), &mut self.wake);
        self.wake.drain(..).for_each(Waker::wake);
        if !all_expected {
            self.connection.close("the connection was closed: a reply came without a request");
        }
    }

    /// Checks the deadlines if there is reason to, and sets the timer for the next one.
    fn check_deadlines(&mut self, sooner: bool, context: &mut Context<'_>) {
        self.check_due |= sooner | self.take_ping_reply(context);
        for _ in 0..MAX_ROUNDS {
            self.check_due |=
                self.alarm_waker.fired.swap(false, Ordering::AcqRel) && self.timer_is_over();
            if !std::mem::take(&mut self.check_due) || self.connection.health() == Health::Closed {
                return;
            }
            let now = self.connection.clock().now();
            let mut wake = Vec::new();
            let overdue = self.connection.expire(now, &mut wake);
            self.draw_conclusions(&overdue, now);
            // A new ping is on the connection now, before the requests of woken callers.
            self.take_ping_reply(context);
            wake.into_iter().for_each(Waker::wake);
            let next = self.connection.arm(self.next_decision());
            self.timer = next.map(|at| self.connection.clock().sleep_until(at));
            self.check_due = self.timer_is_over();
        }
        context.waker().wake_by_ref();
    }

    /// Polls the timer, which calls its waker when it fires.
    fn timer_is_over(&mut self) -> bool {
        let waker = Waker::from(self.alarm_waker.clone());
        let mut context = Context::from_waker(&waker);
        let polled = self.timer.as_mut().map(|timer| timer.as_mut().poll(&mut context));
        let over = matches!(polled, Some(Poll::Ready(())));
        if over {
            self.timer = None;
        }
        over
    }

    /// Takes the reply to the ping; returns whether it came.
    fn take_ping_reply(&mut self, context: &mut Context<'_>) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let Poll::Ready(reply) = Pin::new(&mut probe.reply).poll(context) else { return false };
        match reply {
            Ok(Ok(value)) if value.as_text() != Some(&probe.number) => {
                self.connection.close("the connection was closed: its replies are out of step");
            }
            // An error reply is a sign of life, too.
            Ok(_) => {
                self.connection.note_ping(probe.since.until(self.connection.clock().now()));
                self.connection.mark_good();
                self.suspected = None;
            }
            // The connection has ended.
            Err(_) => {}
        }
        self.probe = None;
        true
    }

    /// Draws conclusions from expired requests and from an unanswered ping.
    fn draw_conclusions(&mut self, overdue: &Overdue, now: Moment) {
        if (overdue.silent || overdue.uncertain) && self.probe.is_none() {
            self.probe = self.ping(now);
        }
        let silent = self
            .probe
            .as_ref()
            .is_some_and(|probe| probe.since.after(self.connection.grace()) <= now);
        if (overdue.silent || silent) && self.connection.mark_suspect() {
            self.suspected = Some(now);
        }
        if self.suspected.is_some_and(|since| since.after(MAX_SUSPECT) <= now) {
            self.connection.close("the connection was closed: no reply for too long");
        }
    }

    /// Puts a ping on the connection, if there is room.
    fn ping(&self, now: Moment) -> Option<PingProbe> {
        let limit = Limit { end: Moment::NEVER, asked: MAX_SUSPECT };
        let number = format!("{:x}.{:x}", self.connection.id(), now.as_nanos());
        let reply =
            PendingReply::enqueue(self.connection.clone(), Request::Ping(&number), None, limit)
                .ok()?;
        Some(PingProbe { reply, number, since: now })
    }

    /// Returns when the passing of time decides about the connection.
    fn next_decision(&self) -> Option<Moment> {
        match (self.suspected, &self.probe) {
            (Some(since), _) => Some(since.after(MAX_SUSPECT)),
            (None, Some(probe)) => Some(probe.since.after(self.connection.grace())),
            (None, None) => None,
        }
    }
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.over {
            return Poll::Ready(());
        }
        let sooner = self.connection.register_task(context.waker());
        if let Err(error) = self.drive(context) {
            self.end(lock_error(error));
            return Poll::Ready(());
        }
        self.check_deadlines(sooner, context);
        if self.connection.health() == Health::Closed {
            self.end(unavailable("the connection was closed", Certainty::Unknown));
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

fn lock_error(error: WireError) -> LockError {
    match error {
        WireError::Io(error) => {
            unavailable(format!("the connection broke: {error}"), Certainty::Unknown)
        }
        WireError::InvalidFrame => protocol("the server does not speak the Redis protocol"),
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.end(unavailable("the runtime of the connection ended", Certainty::Unknown));
    }
}

#[cfg(test)]
mod tests {
    use holdline::clock::ManualClock;
    use parking_lot::Mutex;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::link::ServerFacts;
    use crate::link::connection::ConnectionCallbacks;
    use crate::link::router::ConnectionRouter;
    use crate::link::subscriptions::Form;
    use crate::link::wire::Wire;

    type Order = Arc<Mutex<Vec<&'static str>>>;

    struct RecordsWake(&'static str, Order);

    impl Wake for RecordsWake {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    /// A contender that was handed a name proceeds before one that releases, although its message
    /// was read later.
    #[tokio::test]
    async fn messages_are_delivered_before_replies_that_were_read_with_them() {
        let (near, mut far) = tokio::io::duplex(1024);
        let callbacks = ConnectionCallbacks {
            observer: Arc::new(ConnectionRouter::new()),
            reset: Arc::default(),
        };
        let facts = ServerFacts::default();
        let clock = Arc::new(ManualClock::new());
        let connection =
            Arc::new(Connection::new(1, facts, clock, callbacks, Some(Wire::new(Box::new(near)))));
        let (subscriptions, order): (Arc<Subscriptions>, Order) = Default::default();
        let record = order.clone();
        let handler =
            Box::new(move |_: &[u8], _: Option<&ServerFacts>| record.lock().push("message"));
        let _inbox = subscriptions.subscribe(Form::Plain, b"c".to_vec(), Some(handler));
        let mut task = ConnectionTask::new(connection.clone(), subscriptions);
        let limit = Limit { end: Moment::NEVER, asked: Duration::from_secs(1) };
        let Ok(mut exchange) = PendingReply::enqueue(connection, Request::Ping("1"), None, limit)
        else {
            panic!("no room")
        };
        let waker = Waker::from(Arc::new(RecordsWake("reply", order.clone())));
        assert!(Pin::new(&mut exchange).poll(&mut Context::from_waker(&waker)).is_pending());
        far.write_all(b"+1\r\n>3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n").await.expect("room");
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut task).poll(&mut context).is_pending());
        assert_eq!(*order.lock(), ["message", "reply"]);
    }
}
