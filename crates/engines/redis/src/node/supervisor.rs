//! Keeps one good connection: dials, watches, dials again.
//!
//! - Invariant S1: no command is ever sent again by us. What failed is told with its certainty.
//! - Invariant S2: pauses between tries grow with full jitter. A server that refuses us is asked
//!   seldom; whoever sends a command meanwhile is told why at once.
//!   A connection that breaks soon after it was made counts as a failed try.
//! - Invariant S3: after each new connection, and whenever messages may have been missed, every
//!   inbox is told to look again. A connection that pushes is subscribed before it is used.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Backoff, Certainty, ErrorKind, LockError, Moment};

use super::board::{Changes, Found};
use super::dial::{Stage, dial};
use super::greet::{Greeted, Refused, greet};
use super::lane::{Health, Lane, Limit};
use super::lane_task::LaneTask;
use super::request::Request;
use super::{Shared, ear, reign};
use crate::error::{refusal, unavailable};
use crate::options::RedisOptions;
use crate::surroundings::Task;

/// Pauses between tries, while the server cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses while it refuses us: somebody must mend something first.
const FIRST_REFUSED: Duration = Duration::from_secs(1);
const LONGEST_REFUSED: Duration = Duration::from_secs(5);
/// How often the tasks move before the node is left alone: only one that panics comes here.
const MOST_MOVES: u32 = 8;
/// How soon a subscription that did not come about is asked for again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(100);

/// Starts the supervisor.
pub(super) fn start(shared: &Arc<Shared>) {
    let work: Task<()> = Box::pin(supervise(shared.clone()));
    shared.home.spawn(Box::pin(Watch { shared: shared.clone(), work: Some(work) }));
}

/// The supervisor's task: when it is dropped before its end, it moves.
struct Watch {
    shared: Arc<Shared>,
    work: Option<Task<()>>,
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.work.take().is_none() || self.shared.board.is_closed() {
            return;
        }
        let moves = self.shared.moves.fetch_add(1, Ordering::Relaxed);
        if moves < MOST_MOVES && self.shared.home.leave() {
            tracing::debug!("the runtime of a node ended: it moves to a thread");
            start(&self.shared);
        } else {
            self.shared.shut();
        }
    }
}

/// Ends with its node.
async fn supervise(shared: Arc<Shared>) {
    let ear = listen(&shared);
    let work = keep_connected(&shared);
    let follow = follow(&shared);
    tokio::select! {
        biased;
        () = work => {}
        () = ear => {}
        () = follow => {}
    }
}

/// Leaves each server that sentinels no longer name. Never ends.
async fn follow(shared: &Shared) {
    let Some(watcher) = &shared.watcher else { return std::future::pending().await };
    let mut told = watcher.told();
    let leave = async {
        while told.changed().await.is_ok() {
            leave_others(shared, told.borrow_and_update().as_ref());
        }
    };
    tokio::select! {
        biased;
        () = leave => {}
        () = watcher.watch(), if shared.leads => {}
    }
}

/// Leaves all servers but the master, if it is known.
fn leave_others(shared: &Shared, master: Option<&(String, u16)>) {
    if master.is_some() {
        shared.board.leave_all_but(master);
    }
}

/// Whom to dial: the place that the options name, or the one that the sentinels do, or the next of
/// those that will do.
pub(super) async fn aim(shared: &Shared) -> Result<Cow<'_, RedisOptions>, LockError> {
    if let Some(roster) = &shared.roster {
        let (host, port) = roster.next();
        return Ok(Cow::Owned(shared.options.at(&host, port)));
    }
    let Some(watcher) = &shared.watcher else { return Ok(Cow::Borrowed(&shared.options)) };
    let seen = watcher.look().await?;
    Ok(Cow::Owned(shared.options.at(&seen.host, seen.port)))
}

async fn keep_connected(shared: &Arc<Shared>) {
    let mut near = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut far = Backoff::new(FIRST_REFUSED, LONGEST_REFUSED);
    // When the last connection was made.
    let mut born: Option<Moment> = None;
    let mut last: Option<Arc<Lane>> = None;
    loop {
        let found = shared.board.tend();
        if let Some(gone) = last.take_if(|lane| lane.health() == Health::Closed) {
            shared.hub.lost(gone.id());
        }
        match found {
            Found::Closed => return,
            Found::Current(lane) => {
                far.reset();
                last = Some(lane.clone());
                attend(shared, &lane).await;
                continue;
            }
            Found::Nothing => {}
        }
        let now = shared.clock.now();
        match born.take().map(|born| born.until(now)) {
            Some(lived) if lived < LONGEST_PAUSE => {
                let end = now.after(near.next_pause(shared.random()));
                unless_changed(shared, shared.clock.sleep_until(end)).await;
                continue;
            }
            Some(_) => near.reset(),
            None => {}
        }
        match unless_changed(shared, connect(shared)).await {
            None => {}
            Some(Ok(())) => born = Some(shared.clock.now()),
            Some(Err(error)) => {
                let refused = !is_passing(&error);
                let backoff = if refused { &mut far } else { &mut near };
                let pause = backoff.next_pause(shared.random());
                tracing::debug!(%error, ?pause, "no connection to the server");
                shared.board.failed(error);
                let end = shared.clock.now().after(pause);
                unless_changed(shared, shared.clock.sleep_until(end)).await;
            }
        }
    }
}

/// Tells whether it may be over by itself.
fn is_passing(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable { .. } | ErrorKind::NoQuorum { .. })
}

/// Waits for the end of a piece of work, unless a connection has come back or the node is closed.
async fn unless_changed<T>(shared: &Shared, work: impl Future<Output = T>) -> Option<T> {
    let changed = async {
        loop {
            shared.board.changed().await;
            if !matches!(shared.board.tend(), Found::Nothing) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = changed => None,
        done = work => Some(done),
    }
}

/// Looks after the subscriptions of a connection until something changes.
async fn attend(shared: &Arc<Shared>, lane: &Arc<Lane>) {
    let wishes = async {
        if lane.facts().resp == 2 {
            return std::future::pending().await;
        }
        if !fulfil(shared, lane).await {
            let end = shared.clock.now().after(SUBSCRIBE_AGAIN);
            return shared.clock.sleep_until(end).await;
        }
        shared.hub.changed().await;
    };
    tokio::select! {
        biased;
        () = shared.board.changed() => {}
        () = wishes => {}
        () = measure(shared, lane) => {}
    }
}

/// Reports how much of a quarantine has passed, as long as it lasts. Never ends.
async fn measure(shared: &Shared, lane: &Arc<Lane>) {
    let facts = lane.facts();
    while let Some(next) =
        facts.quarantine.and_then(|quarantine| quarantine.next_report(shared.clock.now()))
    {
        shared.clock.sleep_until(next).await;
        if let Some(words) = reign::report(&shared.options, facts, shared.clock.now()) {
            drop(say(shared, lane, Request::Words(&words)).await);
        }
    }
    std::future::pending::<()>().await;
}

/// Subscribes to what is wanted on a connection; false when it must be tried again.
async fn fulfil(shared: &Shared, lane: &Arc<Lane>) -> bool {
    let wishes = shared.hub.wishes(lane.id());
    if wishes.is_empty() {
        return true;
    }
    if !wishes.unsubscribe.is_empty() {
        // Whether it works does not matter: nobody reads what comes.
        drop(say(shared, lane, Request::Unsubscribe(&wishes.unsubscribe)).await);
    }
    if wishes.subscribe.is_empty() {
        return true;
    }
    match say(shared, lane, Request::Subscribe(&wishes.subscribe)).await {
        Ok(()) => shared.hub.subscribed(&wishes.subscribe, lane.id()),
        Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            tracing::warn!(%error, "no subscription: waiters are left to their heartbeat");
            shared.hub.refused(&wishes.subscribe, lane.id());
        }
        Err(error) => {
            tracing::debug!(%error, "no subscription yet");
            return false;
        }
    }
    true
}

async fn say(shared: &Shared, lane: &Arc<Lane>, request: Request<'_>) -> Result<(), LockError> {
    let asked = shared.options.command_timeout();
    let limit = Limit { end: shared.clock.now().after(asked), asked };
    match lane.clone().begin(request, None, limit) {
        Ok(exchange) => exchange.await?.map(drop).map_err(refusal),
        Err(not_taken) => Err(not_taken.0),
    }
}

/// Makes a connection and puts it on the board.
async fn connect(shared: &Arc<Shared>) -> Result<(), LockError> {
    let resp3 = shared.options.resp3() && !shared.old_protocol.load(Ordering::Relaxed);
    let stage = Stage::default();
    let greeted = match within(shared, &stage, open(shared, resp3, &stage)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(OldProtocol)) => {
            let greeted = within(shared, &stage, open(shared, false, &stage)).await?.map_err(
                |OldProtocol| {
                    unavailable("the server speaks no known protocol", Certainty::NotApplied)
                },
            )?;
            shared.old_protocol.store(true, Ordering::Relaxed);
            greeted
        }
        Err(error) => return Err(error),
    };
    let Greeted { wire, facts, reset } = greeted;
    let address = shared.options.address();
    tracing::debug!(%address, ?facts, "connected");
    if shared.board.facts().is_some_and(|before| facts.is_another_than(&before)) {
        tracing::warn!(%address, "another server than before, or started anew: is all kept?");
    }
    let ends = super::lane::Ends { told: shared.board.clone(), reset };
    let lane = Lane::new(shared.next_id(), facts, shared.clock.clone(), ends, Some(wire));
    let lane = Unadopted(Some(Arc::new(lane)));
    if let Some(lane) = &lane.0 {
        let task = LaneTask::new(lane.clone(), shared.hub.clone());
        shared.home.spawn(Box::pin(task));
        // Before any request: so who queues with our inbox is never passed over as deaf.
        if lane.facts().resp == 3 {
            fulfil(shared, lane).await;
        }
    }
    lane.adopt(shared);
    // It was dialled before the sentinels named another, and nobody saw it then.
    if let Some(watcher) = &shared.watcher {
        leave_others(shared, watcher.told().borrow().as_ref());
    }
    Ok(())
}

/// A connection that ends unless it is put on the board.
struct Unadopted(Option<Arc<Lane>>);

impl Unadopted {
    fn adopt(mut self, shared: &Shared) {
        self.0.take().into_iter().for_each(|lane| shared.board.adopt(lane));
    }
}

impl Drop for Unadopted {
    fn drop(&mut self) {
        self.0.iter().for_each(|lane| lane.close("the connection is no longer needed"));
    }
}

struct OldProtocol;

async fn open(
    shared: &Shared,
    resp3: bool,
    stage: &Stage,
) -> Result<Result<Greeted, OldProtocol>, LockError> {
    let options = aim(shared).await?;
    let dialled = dial(&options, stage).await?;
    let reset = dialled.reset.clone();
    // Until it has said its words, it is reset when it is given up.
    reset.store(true, Ordering::Release);
    let greeted = greet(dialled, &options, resp3, &*shared.clock).await;
    match greeted {
        Ok(mut greeted) => {
            if shared.watcher.is_some() {
                let asked = reign::ask(&mut greeted.wire, &shared.options, &*shared.clock).await?;
                greeted.facts.run_id = asked.run_id.or(greeted.facts.run_id);
                greeted.facts.quarantine = asked.quarantine;
            }
            if shared.watcher.is_some() || shared.roster.is_some() {
                greeted.facts.place = options.place();
            }
            reset.store(false, Ordering::Release);
            Ok(Ok(greeted))
        }
        Err(Refused::OldProtocol) => Ok(Err(OldProtocol)),
        Err(Refused::Error(error)) => Err(error),
    }
}

/// Gives a piece of work the time that a connection may take.
pub(super) async fn within<T>(
    shared: &Shared,
    stage: &Stage,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let limit = shared.options.connect_timeout();
    let end: Moment = shared.clock.now().after(limit);
    tokio::select! {
        biased;
        done = work => done,
        () = shared.clock.sleep_until(end) => {
            let address = shared.options.address();
            let message = format!("{address}: {} within {limit:?}", stage.hangs_at());
            Err(unavailable(message, Certainty::NotApplied))
        }
    }
}

/// Keeps the second connection, while the first speaks the older protocol.
async fn listen(shared: &Arc<Shared>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut board = shared.board.watch();
    loop {
        let old = shared.board.facts().is_some_and(|facts| facts.resp == 2);
        if !old || shared.hub.is_unused() {
            tokio::select! {
                biased;
                () = board.changed() => {}
                () = shared.hub.changed(), if old => {}
            }
            continue;
        }
        let (since, known) = (shared.clock.now(), shared.board.current());
        let error = ear::listen(shared).await;
        if since.until(shared.clock.now()) > LONGEST_PAUSE {
            backoff.reset();
        }
        let pause = backoff.next_pause(shared.random());
        tracing::debug!(%error, ?pause, "the subscriptions are made anew");
        tokio::select! {
            biased;
            () = another(shared, known, &mut board) => {}
            () = shared.clock.sleep_until(shared.clock.now().after(pause)) => {}
        }
    }
}

/// Waits for another connection than the known one: then the server is there, and whoever wants
/// to hear need not wait for the end of a pause.
async fn another(shared: &Shared, known: Option<u64>, board: &mut Changes<'_>) {
    while shared.board.current().is_none_or(|current| Some(current) == known) {
        board.changed().await;
    }
}
