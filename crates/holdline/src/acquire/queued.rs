//! The wait in the engine's queue, for a hint of the engine, for news from the heartbeat, or for
//! the limit. A lost hint delays the attempt by at most one heartbeat interval.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use holdline_core::contract::Hint;
use holdline_core::{Certainty, FencingToken, HandOff, Hints, Mode, Moment};

use super::{Attempt, Next};
use crate::core::own_waiters::OwnPlace;
use crate::core::queue_cell::{QueueCell, QueueNews};
use crate::grant::{self, Granted};

/// An entry in the engine's queue, and its sources of events.
pub(super) struct QueuePlace {
    cell: Arc<QueueCell>,
    hints: Hints,
    hints_end: bool,
    /// Its place among those of this client, if it wants an exclusive lock.
    own: Option<OwnPlace>,
    /// The present request was sent only because this client released the name (`own_waiters`).
    asks_early: bool,
    /// How many entries are ahead of it, if the engine reports that.
    position: Option<usize>,
}

impl QueuePlace {
    /// Returns whether the last request was early, once.
    pub(super) fn asked_early(&mut self) -> bool {
        std::mem::take(&mut self.asks_early)
    }

    /// Leaves the attempts of this client that a release may wake.
    pub(super) fn leave(&mut self) {
        self.own = None;
    }
}

/// What ends a wait in the queue.
enum QueueEvent {
    Hint(Hint),
    HintsEnd,
    News(QueueNews),
    Limit,
}

impl Attempt<'_> {
    /// Waits in the queue until the request should be repeated.
    pub(super) async fn wait_in_queue(
        &mut self,
        sent: Moment,
        position: Option<usize>,
        next_look: Duration,
    ) -> Next {
        self.repeats = 0;
        self.repeat_pause.reset();
        self.request.known = true;
        let cell = self.ticket.enqueue(next_look);
        cell.mark_queued(sent);
        if self.place.is_none() {
            // Opened after the reply, so it includes everything that has happened since (rule G4).
            let hints = self.state.runtime.within(|| self.watch());
            let direct = self.state.engine.capabilities().hand_off == HandOff::Direct;
            let wakes = direct && self.plan.mode == Mode::Exclusive;
            let own = wakes.then(|| self.state.own_waiters.join(&self.plan.name, &cell));
            self.place = Some(QueuePlace {
                cell,
                hints,
                hints_end: false,
                own,
                asks_early: false,
                position,
            });
            let holder = self.holder.as_deref();
            self.progress.wait();
            self.state.observe(|observer| observer.queued(self.subject(), position, holder));
        }
        self.record_position(position);
        self.wait_for_news().await
    }

    /// Waits on after a request that a release of this client caused, and that the store did not
    /// answer, or for now could not: the heartbeat finds out whether the entry is still there.
    pub(super) async fn wait_on(&mut self, certainty: Certainty) -> Next {
        self.ticket.unsettled |= certainty == Certainty::Unknown;
        self.wait_for_news().await
    }

    async fn wait_for_news(&mut self) -> Next {
        loop {
            match self.next_event().await {
                QueueEvent::Limit => return Next::TimedOut,
                QueueEvent::Hint(Hint::Granted { token }) => return self.begin_handed(token),
                QueueEvent::Hint(_) => return Next::Ask,
                QueueEvent::HintsEnd => {}
                QueueEvent::News(news) => {
                    if let Some(error) = news.refused {
                        return Next::Fail(error);
                    }
                    if news.held {
                        return Next::Ask;
                    }
                    if news.doubtful || news.may_be_next {
                        self.place.iter_mut().for_each(|place| place.asks_early = !news.doubtful);
                        return Next::Ask;
                    }
                    if news.dropped {
                        self.state.observe(|observer| observer.requeued(self.subject()));
                        return Next::NewId;
                    }
                    if news.position.is_some() {
                        self.record_position(news.position);
                    }
                    self.reopen_hints();
                }
            }
        }
    }

    /// Returns the grant of a hand-off whose message has arrived. The store made it after it had
    /// answered the last request as queued, so its lease counts from before that request.
    ///
    /// The store is asked if little of the lease is left. It is asked, too, if the id may have been
    /// queued twice, since then the message may be about the first time: a request under it went
    /// unanswered, or the caller chose it and may have used it before.
    fn begin_handed(&self, token: FencingToken) -> Next {
        let now = self.state.clock.now();
        let queued_at = self.place.as_ref().and_then(|place| place.cell.queued_at());
        let once = !self.ticket.unsettled && self.plan.lease_id.is_none();
        let Some(sent) = queued_at.filter(|_| once) else { return Next::Ask };
        let sent = self.state.validity_start(sent);
        let lease = self.request.hand_off_lease;
        let until = grant::validity_of(self.plan, sent, Some(lease));
        let whole = sent.until(until);
        if now.until(until) < whole / 4 {
            return Next::Ask;
        }
        Next::Begin(Granted {
            lease_id: self.ticket.lease_id,
            token,
            sent,
            since: now,
            left: Some(lease),
            handed: true,
            anchor: None,
            unsettled: false,
        })
    }

    fn watch(&self) -> Hints {
        self.state.engine.watch(&self.plan.name, self.ticket.lease_id)
    }

    /// Reopens a watch that has ended, at the pace of the heartbeat.
    fn reopen_hints(&mut self) {
        if self.place.as_ref().is_some_and(|place| place.hints_end) {
            let hints = self.state.runtime.within(|| self.watch());
            if let Some(place) = &mut self.place {
                place.hints = hints;
                place.hints_end = false;
            }
        }
    }

    fn record_position(&mut self, position: Option<usize>) {
        let Some(place) = &mut self.place else { return };
        place.own.iter_mut().for_each(|own| own.record_position(position));
        if std::mem::replace(&mut place.position, position) != position {
            let holder = self.holder.as_deref();
            self.state.observe(|observer| observer.queued(self.subject(), position, holder));
        }
    }

    /// Waits for the next event of the queue entry.
    async fn next_event(&mut self) -> QueueEvent {
        let deadline = self.wait.deadline();
        let Some(place) = &mut self.place else { return QueueEvent::Limit };
        let runtime = &self.state.runtime;
        let hints = async {
            if place.hints_end {
                std::future::pending::<()>().await;
            }
            let hints = &mut place.hints;
            std::future::poll_fn(|context| runtime.within(|| hints.poll_next_unpin(context))).await
        };
        let news = std::pin::pin!(place.cell.news());
        let event = async {
            match select(news, std::pin::pin!(hints)).await {
                Either::Left((news, _)) => QueueEvent::News(news),
                Either::Right((Some(hint), _)) => QueueEvent::Hint(hint),
                Either::Right((None, _)) => QueueEvent::HintsEnd,
            }
        };
        let event = match deadline {
            Moment::NEVER => event.await,
            deadline => {
                let limit = self.state.clock.sleep_until(deadline);
                match select(std::pin::pin!(event), limit).await {
                    Either::Left((event, _)) => event,
                    Either::Right(_) => QueueEvent::Limit,
                }
            }
        };
        if matches!(event, QueueEvent::HintsEnd) {
            place.hints_end = true;
        }
        event
    }
}
