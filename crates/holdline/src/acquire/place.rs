//! A place in the queue, and what an attempt hears there: hints of the engine, news of the
//! heartbeat, its own limit. A hint that never comes costs one heartbeat.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use holdline_core::{Hints, Moment};

use super::{Attempt, Next};
use crate::queue::{News, WaitCell};

/// A place in the queue, and what is heard there.
pub(super) struct Place {
    cell: Arc<WaitCell>,
    hints: Hints,
    hints_end: bool,
    /// How many stand before it, if the engine tells.
    position: Option<usize>,
}

/// What ends a wait in the queue.
enum Heard {
    Hint,
    HintsEnd,
    News(News),
    Limit,
}

impl Attempt<'_> {
    /// Waits in the queue until it is worth asking again.
    pub(super) async fn wait_in_queue(
        &mut self,
        position: Option<usize>,
        next_look: Duration,
    ) -> Next {
        self.repeats = 0;
        self.repeat_pause.reset();
        self.request.known = true;
        let cell = self.ticket.enqueue(next_look);
        cell.is_queued();
        if self.place.is_none() {
            // Opened after the reply: it misses nothing that has happened since (rule G4).
            let hints = self.shared.home.within(|| self.watch());
            self.place = Some(Place { cell, hints, hints_end: false, position });
            let holder = self.holder.as_deref();
            self.progress.wait();
            self.shared.observe(|observer| observer.queued(self.subject(), position, holder));
        }
        self.note_position(position);
        loop {
            match self.hear().await {
                Heard::Limit => return Next::TimedOut,
                Heard::Hint => return Next::Ask,
                Heard::HintsEnd => {}
                Heard::News(news) => {
                    if let Some(error) = news.refused {
                        return Next::Fail(error);
                    }
                    if news.handed {
                        self.shared.observe(|observer| observer.handed(self.subject()));
                        return Next::Ask;
                    }
                    if news.doubtful {
                        return Next::Ask;
                    }
                    if news.dropped {
                        self.shared.observe(|observer| observer.requeued(self.subject()));
                        return Next::Anew;
                    }
                    if news.position.is_some() {
                        self.note_position(news.position);
                    }
                    self.reopen_hints();
                }
            }
        }
    }

    fn watch(&self) -> Hints {
        self.shared.engine.watch(&self.plan.name, self.ticket.lease_id)
    }

    /// Opens a watch again that has ended, at the pace of the heartbeat.
    fn reopen_hints(&mut self) {
        if self.place.as_ref().is_some_and(|place| place.hints_end) {
            let hints = self.shared.home.within(|| self.watch());
            if let Some(place) = &mut self.place {
                place.hints = hints;
                place.hints_end = false;
            }
        }
    }

    fn note_position(&mut self, position: Option<usize>) {
        let Some(place) = &mut self.place else { return };
        if std::mem::replace(&mut place.position, position) != position {
            let holder = self.holder.as_deref();
            self.shared.observe(|observer| observer.queued(self.subject(), position, holder));
        }
    }

    /// Waits for the next thing that concerns the place in the queue.
    async fn hear(&mut self) -> Heard {
        let deadline = self.wait.deadline();
        let Some(place) = &mut self.place else { return Heard::Limit };
        let home = &self.shared.home;
        let hints = async {
            if place.hints_end {
                std::future::pending::<()>().await;
            }
            let hints = &mut place.hints;
            std::future::poll_fn(|context| home.within(|| hints.poll_next_unpin(context))).await
        };
        let news = std::pin::pin!(place.cell.news());
        let heard = async {
            match select(news, std::pin::pin!(hints)).await {
                Either::Left((news, _)) => Heard::News(news),
                Either::Right((Some(_), _)) => Heard::Hint,
                Either::Right((None, _)) => Heard::HintsEnd,
            }
        };
        let heard = match deadline {
            Moment::NEVER => heard.await,
            deadline => {
                let limit = self.shared.clock.sleep_until(deadline);
                match select(std::pin::pin!(heard), limit).await {
                    Either::Left((heard, _)) => heard,
                    Either::Right(_) => Heard::Limit,
                }
            }
        };
        if matches!(heard, Heard::HintsEnd) {
            place.hints_end = true;
        }
        heard
    }
}
