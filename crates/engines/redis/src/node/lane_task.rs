//! The task of one connection: it drives the client, watches the deadlines, and ends it.
//!
//! A deadline that passes while somebody waits makes the connection suspect at once: the server
//! answers in order, so nothing behind was answered either. A request whose taker went away may
//! have been answered unseen, and one that was given no time proves nothing: there a ping decides.
//! Its answer must be the one number that it carried; any other shows that the answers are out of
//! step, and ends the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use holdline_core::Moment;

use super::lane::{Answered, Health, Lane, Limit, NotTaken, Request};
use super::pending::Overdue;
use crate::surroundings::Task;

/// How long a suspect connection is kept, for what must go behind its requests: the longest
/// orphan's life, and a little.
pub(super) const PATIENCE: Duration = Duration::from_secs(35);

/// How often the deadlines are looked at before others have their turn.
const MOST_LOOKS: u32 = 8;

pub(super) struct LaneTask {
    lane: Arc<Lane>,
    driver: Option<Task<()>>,
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
    answer: Task<Result<Answered, NotTaken>>,
    /// What it is to be answered with.
    number: String,
    since: Moment,
}

impl LaneTask {
    pub(super) fn new(lane: Arc<Lane>, driver: Task<()>) -> LaneTask {
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), lane: lane.clone() });
        let driver = Some(driver);
        LaneTask { lane, driver, alarm: None, bell, due: false, probe: None, suspected: None }
    }

    fn end(&mut self, why: &str) {
        let Some(driver) = self.driver.take() else { return };
        self.probe = None;
        self.lane.ended(why);
        drop(driver);
        self.lane.tell();
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
            // The first poll puts a new ping on the connection: before what the woken send.
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
        let Poll::Ready(answer) = probe.answer.as_mut().poll(context) else { return false };
        match answer {
            Ok(Ok(Ok(value))) if value.as_text() != Some(&probe.number) => {
                self.lane.close("the connection was given up: its answers are out of step");
            }
            // A server that refuses a ping is there.
            Ok(Ok(_)) => {
                self.lane.clear();
                self.suspected = None;
            }
            // The connection has no room or is gone.
            Ok(Err(_)) | Err(_) => {}
        }
        self.probe = None;
        true
    }

    /// Draws conclusions from requests whose deadline has passed, and from a silent ping.
    fn judge(&mut self, overdue: &Overdue, now: Moment) {
        if (overdue.waited_for || overdue.in_doubt) && self.probe.is_none() {
            self.probe = Some(self.ping(now));
        }
        let silent =
            self.probe.as_ref().is_some_and(|probe| probe.since.after(self.lane.grace()) <= now);
        if (overdue.waited_for || silent) && self.lane.suspect() {
            self.suspected = Some(now);
        }
        if self.suspected.is_some_and(|since| since.after(PATIENCE) <= now) {
            self.lane.close("the connection was given up: no answer for too long");
        }
    }

    fn ping(&self, now: Moment) -> Probe {
        let limit = Limit { end: Moment::NEVER, asked: PATIENCE };
        let number = format!("{:x}.{:x}", self.lane.id(), now.as_nanos());
        let mut ping = redis::cmd("PING");
        ping.arg(&number);
        let answer = self.lane.clone().exchange(Request::Command(Arc::new(ping)), None, limit);
        Probe { answer: Box::pin(answer), number, since: now }
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
        let sooner = self.lane.attend(context.waker());
        let Some(driver) = &mut self.driver else { return Poll::Ready(()) };
        if driver.as_mut().poll(context).is_ready() {
            self.end("the connection broke");
            return Poll::Ready(());
        }
        self.watch(sooner, context);
        if self.lane.health() == Health::Closed {
            self.end("the connection was closed");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for LaneTask {
    fn drop(&mut self) {
        self.end("the runtime of the connection ended");
    }
}
