//! Watches: one stream for the engine. Each watched lease id has a watch of its own key, and one of
//! each key that blocks it.
//!
//! - W1: no change is missed between reading a key and watching it. The watch of the own key starts
//!   at the revision after the read; if that revision was compacted, the watcher gets a hint. The
//!   watches of the keys that block it start at the current revision, because a server serves a
//!   watch that starts in the past only every tenth of a second. If that is not the revision of the
//!   read, the key is read once more: all such keys together, when no further message is there. The
//!   watch of the own key is opened a little later: most waits and leases are over by then.
//! - W2: a stream that broke is opened again, and its watches resume where they were.
//! - W3: a hint is never a grant: its receiver asks the store. A contender for permits gets one
//!   when so many of the watched keys were deleted that the others do not block it any more.
//! - W4: a server refuses a watch if it no longer accepts the stream's authentication token, which
//!   stays the one from when the stream was opened. The token has expired, or users or roles have
//!   changed. So the whole stream is opened again with a new token. If that is refused too, the
//!   pause before the next try doubles.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use holdline_core::hints::{WatchStream, Watches};
use holdline_core::{Hint, LeaseId};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

mod server_watch;

use server_watch::{EventOf, Recheck, ServerWatch, create, run_rechecks};

use crate::client::Client;
use crate::keys::Span;
use crate::proto::{WatchCancelRequest, WatchRequest, WatchResponse, WatchWhat};
use crate::queue::Blockers;
use holdline_net::executor::Executor;

/// How long to wait before a broken stream is opened again.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause after refusals. A stream that lasts this long resets the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The delay before the own key is watched. Changes of it are rare, and none is missed.
const LATER: Duration = Duration::from_millis(50);

/// What to watch for one lease id.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKeys {
    /// Its own key, and the first revision to watch.
    pub(crate) own: (Vec<u8>, i64),
    /// The keys that block it, of which one must be deleted before it may hold the name.
    pub(crate) before: Predecessors,
}

/// The keys that block a contender.
#[derive(Clone, Debug)]
pub(crate) struct Predecessors {
    /// The range of the queue.
    pub(crate) queue: Span,
    pub(crate) blockers: Blockers,
    pub(crate) from: i64,
}

enum Command {
    Watch(LeaseId, WatchedKeys),
    Retarget(LeaseId, Predecessors),
    Forget(LeaseId),
}

/// The watches of one engine.
pub(crate) struct Watcher {
    watches: Arc<Watches>,
    watched: Arc<Mutex<HashSet<LeaseId>>>,
    commands: UnboundedSender<Command>,
}

impl Watcher {
    /// Starts the task, which ends with the watcher.
    pub(crate) fn start(executor: &Executor, client: Client) -> Watcher {
        let watches = Arc::new(Watches::default());
        let (commands, received) = unbounded_channel();
        let task = WatchTask {
            executor: executor.clone(),
            client,
            watches: watches.clone(),
            received,
            targets: HashMap::new(),
            by_id: HashMap::new(),
            later: VecDeque::new(),
            rechecks: Vec::new(),
            next: 0,
            requests: None,
            over: false,
            moved: false,
        };
        executor.spawn(task.work());
        Watcher { watches, watched: Arc::default(), commands }
    }

    /// Opens a watch. Without keys it only gets the hint that there is nothing to watch.
    pub(crate) fn open(&self, id: LeaseId, wanted: Option<WatchedKeys>) -> WatchOf {
        let stream = Watches::open(&self.watches, id);
        match wanted {
            Some(wanted) if self.watched.lock().insert(id) => {
                let _ = self.commands.send(Command::Watch(id, wanted));
            }
            // Another watch of this id may have taken the hints.
            Some(_) => {
                self.watches.notify(id, Hint::LookAgain);
                self.watches.notify(id, Hint::CheckLease);
            }
            None => {
                self.watches.notify(id, Hint::CheckLease);
            }
        }
        WatchOf {
            id,
            stream: Some(stream),
            watches: self.watches.clone(),
            watched: self.watched.clone(),
            commands: self.commands.clone(),
        }
    }

    /// Changes the keys before a contender.
    pub(crate) fn retarget(&self, id: LeaseId, before: Predecessors) {
        if self.watched.lock().contains(&id) {
            let _ = self.commands.send(Command::Retarget(id, before));
        }
    }
}

/// The hints of one watch.
pub(crate) struct WatchOf {
    id: LeaseId,
    stream: Option<WatchStream>,
    watches: Arc<Watches>,
    watched: Arc<Mutex<HashSet<LeaseId>>>,
    commands: UnboundedSender<Command>,
}

impl Stream for WatchOf {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_next(context),
            None => Poll::Pending,
        }
    }
}

impl Drop for WatchOf {
    fn drop(&mut self) {
        self.stream = None;
        if self.watches.ids_in(self.id..=self.id).is_empty() && self.watched.lock().remove(&self.id)
        {
            let _ = self.commands.send(Command::Forget(self.id));
        }
    }
}

/// Why a stream of watches ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It broke, or could not be opened.
    Broken,
    /// The server refused a watch (W4).
    Refused,
    /// The engine is gone.
    Over,
}

/// The watches of a lease id.
#[derive(Default)]
struct WatchIds {
    /// That of its own key, once it is due.
    own: Option<i64>,
    /// Those of the keys that block it.
    before: Vec<i64>,
    /// What still blocks it.
    blockers: Blockers,
}

/// The task that reads the stream.
struct WatchTask {
    executor: Executor,
    client: Client,
    watches: Arc<Watches>,
    received: UnboundedReceiver<Command>,
    targets: HashMap<i64, ServerWatch>,
    by_id: HashMap<LeaseId, WatchIds>,
    /// The own keys to watch later, and when.
    later: VecDeque<(Instant, ServerWatch)>,
    /// The keys to read once more (W1).
    rechecks: Vec<Recheck>,
    next: i64,
    requests: Option<UnboundedSender<WatchRequest>>,
    /// The engine is gone.
    over: bool,
    /// It was moved to another runtime before: that is done once.
    moved: bool,
}

/// If its runtime ends, the task moves to the thread of the process, with a new connection.
impl Drop for WatchTask {
    fn drop(&mut self) {
        if self.over || self.moved || self.received.is_closed() {
            return;
        }
        self.executor.move_to_thread();
        self.client.leave_connection();
        tracing::debug!("the runtime of the watches ended: they move to another thread");
        let (_, closed) = unbounded_channel();
        let next = WatchTask {
            executor: self.executor.clone(),
            client: self.client.clone(),
            watches: self.watches.clone(),
            received: std::mem::replace(&mut self.received, closed),
            targets: std::mem::take(&mut self.targets),
            by_id: std::mem::take(&mut self.by_id),
            later: std::mem::take(&mut self.later),
            // The watches are made anew, which checks all keys again.
            rechecks: Vec::new(),
            next: self.next,
            requests: None,
            over: false,
            moved: true,
        };
        self.executor.spawn(next.work());
    }
}

impl WatchTask {
    async fn work(mut self) {
        let mut pause = PAUSE;
        loop {
            while self.targets.is_empty() {
                let due = self.due();
                tokio::select! {
                    command = self.received.recv() => match command {
                        Some(command) => self.handle(command),
                        None => return self.over = true,
                    },
                    () = at(due) => self.add_own(),
                }
            }
            let opened = Instant::now();
            let end = self.listen().await;
            self.requests = None;
            pause = match end {
                End::Over => return self.over = true,
                End::Broken => PAUSE,
                End::Refused => pause_after_refusal(pause, opened.elapsed()),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the stream until it ends.
    async fn listen(&mut self) -> End {
        let (requests, mut asked) = unbounded_channel();
        for (watch, target) in &self.targets {
            let _ = requests.send(create(*watch, target));
        }
        self.requests = Some(requests);
        let asked = futures_util::stream::poll_fn(move |context| asked.poll_recv(context));
        let (connection, mut stream) = match self.client.watch(asked).await {
            Ok(opened) => opened,
            Err(failure) => {
                tracing::debug!(error = %failure.into_error(), "no stream of watches");
                return End::Broken;
            }
        };
        loop {
            let due = self.due();
            let has_rechecks = !self.rechecks.is_empty();
            tokio::select! {
                biased;
                command = self.received.recv() => match command {
                    Some(command) => self.handle(command),
                    None => return End::Over,
                },
                () = at(due) => self.add_own(),
                message = stream.message() => match message {
                    Ok(Some(response)) => if !self.handle_response(&response) {
                        tracing::debug!(reason = response.cancel_reason, "a watch was refused");
                        self.client.renew_token(connection);
                        return End::Refused;
                    },
                    Ok(None) => return End::Broken,
                    Err(status) => {
                        tracing::debug!(%status, "the stream of watches broke");
                        return End::Broken;
                    }
                },
                // No further message is there.
                () = std::future::ready(()), if has_rechecks => self.start_rechecks(),
            }
        }
    }

    /// Reads the keys whose deletion the new watches may have missed (W1).
    fn start_rechecks(&mut self) {
        let rechecks = std::mem::take(&mut self.rechecks);
        let client = self.client.clone();
        let watches = self.watches.clone();
        self.executor.spawn(async move { run_rechecks(rechecks, &client, &watches).await });
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Watch(id, wanted) => {
                let (key, from) = wanted.own;
                let own = ServerWatch { id, span: (key, Vec::new()), from, keys: None };
                self.later.push_back((Instant::now() + LATER, own));
                self.by_id.insert(id, WatchIds::default());
                self.retarget(id, wanted.before);
            }
            Command::Retarget(id, before) => self.retarget(id, before),
            Command::Forget(id) => {
                let Some(WatchIds { own, before, .. }) = self.by_id.remove(&id) else { return };
                self.later.retain(|(_, own)| own.id != id);
                for watch in before.into_iter().chain(own) {
                    self.drop_watch(watch);
                }
            }
        }
    }

    /// Watches these keys in place of those before. A watch that is there already stays: so it has
    /// missed nothing.
    fn retarget(&mut self, id: LeaseId, before: Predecessors) {
        let Some(WatchIds { before: known, .. }) = self.by_id.get_mut(&id) else { return };
        let known = std::mem::take(known);
        let mut wanted = before.watches(id);
        let mut kept = Vec::with_capacity(wanted.len());
        for number in known {
            let watch = self.targets.get(&number);
            let same = |wanted: &ServerWatch| watch.is_some_and(|watch| watch.covers_as(wanted));
            if let Some(at) = wanted.iter().position(same) {
                wanted.swap_remove(at);
                kept.push(number);
            } else {
                self.drop_watch(number);
            }
        }
        kept.extend(wanted.into_iter().map(|watch| self.add(watch)));
        if let Some(ids) = self.by_id.get_mut(&id) {
            ids.before = kept;
            ids.blockers = before.blockers;
        }
    }

    /// When the next own key is due to be watched.
    fn due(&self) -> Option<Instant> {
        self.later.front().map(|(due, _)| *due)
    }

    /// Watches the own keys that are due.
    fn add_own(&mut self) {
        let now = Instant::now();
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, target)) = self.later.pop_front() else { return };
            let id = target.id;
            let watch = self.add(target);
            if let Some(ids) = self.by_id.get_mut(&id) {
                ids.own = Some(watch);
            }
        }
    }

    fn add(&mut self, target: ServerWatch) -> i64 {
        self.next += 1;
        self.send(create(self.next, &target));
        self.targets.insert(self.next, target);
        self.next
    }

    fn drop_watch(&mut self, watch_id: i64) {
        if self.targets.remove(&watch_id).is_some() {
            let what = Some(WatchWhat::Cancel(WatchCancelRequest { watch_id }));
            self.send(WatchRequest { what });
        }
    }

    /// Sends a request. If there is no stream, the next one sends all watches.
    fn send(&self, request: WatchRequest) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
        }
    }

    /// Handles a message of the stream; returns `false` if it is a refusal (W4).
    fn handle_response(&mut self, response: &WatchResponse) -> bool {
        let watch = response.watch_id;
        if response.canceled {
            // Newer servers refuse under the number -1, older ones under that of the watch.
            if response.created || (response.compact_revision <= 0 && self.is_wanted(watch)) {
                return false;
            }
            self.start_anew(watch, response);
            return true;
        }
        let Some(target) = self.targets.get_mut(&watch) else { return true };
        if let Some(header) = &response.header {
            if target.may_have_missed(response.created, header.revision) {
                self.rechecks.push(target.recheck(header.revision));
            }
            target.from = target.from.max(header.revision + 1);
        }
        let id = target.id;
        let events = response.events.iter().filter_map(|event| target.matters(event));
        let events: Vec<EventOf> = events.collect();
        for event in events {
            match event {
                EventOf::OwnKey => {
                    self.watches.notify(id, Hint::CheckLease);
                }
                EventOf::Deletion(key) => {
                    let Some(ids) = self.by_id.get_mut(&id) else { continue };
                    if !ids.blockers.remove(&key) {
                        self.watches.notify(id, Hint::LookAgain);
                    }
                }
            }
        }
        true
    }

    fn is_wanted(&self, watch: i64) -> bool {
        self.targets.contains_key(&watch)
    }

    /// Replaces a watch that the server has cancelled because its revisions were compacted.
    fn start_anew(&mut self, watch: i64, response: &WatchResponse) {
        let Some(mut target) = self.targets.remove(&watch) else { return };
        tracing::debug!(reason = response.cancel_reason, "the server ended a watch");
        let id = target.id;
        self.watches.notify(id, Hint::LookAgain);
        self.watches.notify(id, Hint::CheckLease);
        target.from = target.from.max(response.compact_revision);
        let next = self.add(target);
        if let Some(ids) = self.by_id.get_mut(&id) {
            for number in ids.before.iter_mut().chain(&mut ids.own) {
                if *number == watch {
                    *number = next;
                }
            }
        }
    }
}

/// Returns the pause after a refusal. `last` was the pause before the stream, which lasted for
/// `lasted`. The first refusal after a long time is most likely an expired token.
fn pause_after_refusal(last: Duration, lasted: Duration) -> Duration {
    if lasted >= LONGEST_PAUSE { PAUSE } else { (last * 2).min(LONGEST_PAUSE) }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_refusals_double_the_pause_up_to_its_limit() {
        let soon = Duration::from_millis(5);
        let pauses: Vec<Duration> =
            std::iter::successors(Some(PAUSE), |last| Some(pause_after_refusal(*last, soon)))
                .take(9)
                .collect();
        assert!(pauses.windows(2).all(|two| two[1] >= two[0]) && pauses[1] > pauses[0]);
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
        assert_eq!(pause_after_refusal(LONGEST_PAUSE, LONGEST_PAUSE), PAUSE);
    }
}
