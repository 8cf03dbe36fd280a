//! The task of one connection: it writes and reads, watches the deadlines, and ends it.
//!
//! A deadline that passes makes the connection suspect at once: the server answers in order, so
//! nothing behind was answered either. One that gave it no time proves nothing: there a ping
//! decides. Its answer must be the one number that it carried; any other shows that the answers
//! are out of step, and ends the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use holdline_core::{Certainty, LockError, Moment};

use super::Value;
use super::hub::Hub;
use super::lane::{Exchange, Health, Lane, Limit};
use super::pending::Overdue;
use super::request::Request;
use super::resp::Frame;
use super::wire::Broke;
use crate::error::{protocol, unavailable};
use crate::surroundings::Task;

/// How long a suspect connection is kept, for what must go behind its requests: the longest
/// orphan's life, and a little.
pub(super) const PATIENCE: Duration = Duration::from_secs(35);

/// How often the deadlines are looked at before others have their turn.
const MOST_LOOKS: u32 = 8;

pub(super) struct LaneTask {
    lane: Arc<Lane>,
    over: bool,
    hub: Arc<Hub>,
    /// What was read, until it is told.
    frames: Vec<Frame>,
    wake: Vec<Waker>,
    alarm: Option<Task<()>>,
    bell: Arc<Bell>,
    /// There is something to look at that no waker will tell of.
    due: bool,
    probe: Option<Probe>,
    /// Since when the connection is suspect.
    suspected: Option<Moment>,
}

/// What an alarm rings: the task looks at it only then, and not whenever an answer comes.
struct Bell {
    rung: AtomicBool,
    lane: Arc<Lane>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.lane.wake_task();
    }
}

/// A ping that decides about the connection.
struct Probe {
    answer: Exchange,
    /// What it is to be answered with.
    number: String,
    since: Moment,
}

impl LaneTask {
    pub(super) fn new(lane: Arc<Lane>, hub: Arc<Hub>) -> LaneTask {
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), lane: lane.clone() });
        LaneTask {
            lane,
            over: false,
            hub,
            frames: Vec::new(),
            wake: Vec::new(),
            alarm: None,
            bell,
            due: false,
            probe: None,
            suspected: None,
        }
    }

    fn end(&mut self, error: LockError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.probe = None;
        let wire = self.lane.wire().take();
        self.lane.ended(error, &mut self.wake);
        drop(wire);
        self.lane.tell();
        self.wake.drain(..).for_each(Waker::wake);
    }

    /// Reads what there is and writes what there is to write: always both, as a server that
    /// cannot get rid of its answers stops to read.
    fn drive(&mut self, context: &mut Context<'_>) -> Result<(), Broke> {
        let lane = self.lane.clone();
        // Something may have been read together with the first words.
        let mut more = true;
        while more {
            let read = match &mut *lane.wire() {
                Some(wire) => wire.take_in(&mut self.frames),
                None => return Ok(()),
            };
            self.tell();
            read?;
            more = match &mut *lane.wire() {
                Some(wire) => wire.poll_read(context)?.is_ready(),
                None => false,
            };
        }
        if let Some(wire) = &mut *lane.wire() {
            lane.write(wire, context)?;
        }
        Ok(())
    }

    /// Tells what was read.
    fn tell(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        // First the messages: whoever was handed a name goes before whoever gave one back.
        for frame in &self.frames {
            if let Frame::Push(parts) = frame
                && let [kind, Value::Bytes(channel), Value::Bytes(message)] = parts.as_slice()
                && kind.as_text() == Some("message")
            {
                self.hub.deliver(channel, message);
            }
        }
        let asked = self.lane.settle(self.frames.drain(..), &mut self.wake);
        self.wake.drain(..).for_each(Waker::wake);
        if !asked {
            self.lane.close("the connection was given up: an answer came that nobody asked for");
        }
    }

    /// Looks at what is due when there is something to look at, and sleeps towards what is next.
    fn watch(&mut self, sooner: bool, context: &mut Context<'_>) {
        self.due |= sooner | self.hear(context);
        for _ in 0..MOST_LOOKS {
            self.due |= self.bell.rung.swap(false, Ordering::AcqRel) && self.alarm_is_over();
            if !std::mem::take(&mut self.due) || self.lane.health() == Health::Closed {
                return;
            }
            let now = self.lane.clock().now();
            let mut wake = Vec::new();
            let overdue = self.lane.expire(now, &mut wake);
            self.judge(&overdue, now);
            // A new ping is on the connection by now: before what the woken send.
            self.hear(context);
            wake.into_iter().for_each(Waker::wake);
            let next = self.lane.arm(self.next_verdict());
            self.alarm = next.map(|at| self.lane.clock().sleep_until(at));
            self.due = self.alarm_is_over();
        }
        context.waker().wake_by_ref();
    }

    /// Looks at the alarm, which then rings the bell when it is over.
    fn alarm_is_over(&mut self) -> bool {
        let waker = Waker::from(self.bell.clone());
        let mut context = Context::from_waker(&waker);
        let polled = self.alarm.as_mut().map(|alarm| alarm.as_mut().poll(&mut context));
        let over = matches!(polled, Some(Poll::Ready(())));
        if over {
            self.alarm = None;
        }
        over
    }

    /// Takes the answer to the ping; tells whether it came.
    fn hear(&mut self, context: &mut Context<'_>) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let Poll::Ready(answer) = Pin::new(&mut probe.answer).poll(context) else { return false };
        match answer {
            Ok(Ok(value)) if value.as_text() != Some(&probe.number) => {
                self.lane.close("the connection was given up: its answers are out of step");
            }
            // A server that refuses a ping is there.
            Ok(_) => {
                self.lane.clear();
                self.suspected = None;
            }
            // The connection is gone.
            Err(_) => {}
        }
        self.probe = None;
        true
    }

    /// Draws conclusions from requests whose deadline has passed, and from a silent ping.
    fn judge(&mut self, overdue: &Overdue, now: Moment) {
        if (overdue.silent || overdue.in_doubt) && self.probe.is_none() {
            self.probe = self.ping(now);
        }
        let silent =
            self.probe.as_ref().is_some_and(|probe| probe.since.after(self.lane.grace()) <= now);
        if (overdue.silent || silent) && self.lane.suspect() {
            self.suspected = Some(now);
        }
        if self.suspected.is_some_and(|since| since.after(PATIENCE) <= now) {
            self.lane.close("the connection was given up: no answer for too long");
        }
    }

    /// Puts a ping on the connection, if there is room.
    fn ping(&self, now: Moment) -> Option<Probe> {
        let limit = Limit { end: Moment::NEVER, asked: PATIENCE };
        let number = format!("{:x}.{:x}", self.lane.id(), now.as_nanos());
        let answer = self.lane.clone().begin(Request::Ping(&number), None, limit).ok()?;
        Some(Probe { answer, number, since: now })
    }

    /// When time decides about the connection.
    fn next_verdict(&self) -> Option<Moment> {
        match (self.suspected, &self.probe) {
            (Some(since), _) => Some(since.after(PATIENCE)),
            (None, Some(probe)) => Some(probe.since.after(self.lane.grace())),
            (None, None) => None,
        }
    }
}

impl Future for LaneTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.over {
            return Poll::Ready(());
        }
        let sooner = self.lane.attend(context.waker());
        if let Err(broke) = self.drive(context) {
            self.end(broken(broke));
            return Poll::Ready(());
        }
        self.watch(sooner, context);
        if self.lane.health() == Health::Closed {
            self.end(unavailable("the connection was closed", Certainty::Unknown));
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

fn broken(broke: Broke) -> LockError {
    match broke {
        Broke::Stream(error) => {
            unavailable(format!("the connection broke: {error}"), Certainty::Unknown)
        }
        Broke::Rubbish => protocol("the server does not speak its protocol"),
    }
}

impl Drop for LaneTask {
    fn drop(&mut self) {
        self.end(unavailable("the runtime of the connection ended", Certainty::Unknown));
    }
}

#[cfg(test)]
mod tests {
    use holdline::ManualClock;
    use parking_lot::Mutex;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::node::ServerFacts;
    use crate::node::board::Board;
    use crate::node::lane::Ends;
    use crate::node::wire::Wire;

    type Order = Arc<Mutex<Vec<&'static str>>>;

    struct Tells(&'static str, Order);

    impl Wake for Tells {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    /// Who was handed a name goes before who gave one back, although it is told of later.
    #[tokio::test]
    async fn a_message_is_told_before_the_answers_that_came_with_it() {
        let (near, mut far) = tokio::io::duplex(1024);
        let ends = Ends { told: Arc::new(Board::new()), reset: Arc::default() };
        let (facts, clock) = (ServerFacts::default(), Arc::new(ManualClock::new()));
        let lane = Arc::new(Lane::new(1, facts, clock, ends, Some(Wire::new(Box::new(near)))));
        let (hub, order): (Arc<Hub>, Order) = Default::default();
        let told = order.clone();
        let taker = Box::new(move |_: &[u8]| told.lock().push("message"));
        let _inbox = hub.open(b"c".to_vec(), Some(taker));
        let mut task = LaneTask::new(lane.clone(), hub);
        let limit = Limit { end: Moment::NEVER, asked: Duration::from_secs(1) };
        let Ok(mut exchange) = lane.begin(Request::Ping("1"), None, limit) else {
            panic!("no room")
        };
        let waker = Waker::from(Arc::new(Tells("answer", order.clone())));
        assert!(Pin::new(&mut exchange).poll(&mut Context::from_waker(&waker)).is_pending());
        far.write_all(b"+1\r\n>3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n").await.expect("room");
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut task).poll(&mut context).is_pending());
        assert_eq!(*order.lock(), ["message", "answer"]);
    }
}
