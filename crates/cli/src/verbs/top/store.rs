//! The thread that talks to a store: rounds, the servers of a quorum, operators' commands.
//!
//! Each store has a thread with a runtime of its own, so that a store that blocks its thread, such
//! as a disk that hangs, blocks no key and no other store. The thread sends what it finds, and
//! waits while the screen takes nothing.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdline::watch::{Change, Coverage, LockEvent, NamePattern, Round, StoreWatch, WatchOptions};
use holdline_core::{ErrorKind, LockName, Snapshot};
use tokio::sync::{Notify, mpsc, watch};

use super::app::{CompleteRound, Event, StoreEvent};
use super::form::Action;
use super::stores::{Flow, NoNames, RoundView};
use crate::config::Address;
use crate::console::Messages;
use crate::failure::Failure;
use crate::open_store::{NoStore, OpenStore, StoreOptions};
use crate::verbs::{freeze, revoke};

/// How often to check whether a local store exists by now.
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// The shortest pause between two looks at the servers of a quorum.
#[cfg(feature = "redis")]
const NODES_PAUSE: Duration = Duration::from_secs(2);

/// How long an operator's command may take to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a holder whose grant is revoked may take to stop, as `revoke` has it by default.
const REVOKE_GRACE: Duration = Duration::from_secs(10);

/// What a store is asked for.
pub(super) struct Task {
    /// Its name on the command line.
    pub(super) name: String,
    /// Where it is.
    pub(super) address: Address,
    /// Which names.
    pub(super) pattern: NamePattern,
    /// How often.
    pub(super) options: WatchOptions,
}

impl Task {
    /// Returns the URL for display, without a password.
    pub(super) fn url(&self) -> String {
        holdline::redact_url(&self.address.url)
    }
}

/// The other end of the thread.
pub(super) struct Requests {
    pub(super) paused: watch::Sender<bool>,
    pub(super) refresh: Arc<Notify>,
    pub(super) actions: mpsc::Sender<Action>,
}

/// Starts the thread of a store. It ends with the process.
pub(super) fn start(
    store: usize,
    task: Task,
    events: SyncSender<Event>,
) -> Result<Requests, Failure> {
    let (paused, is_paused) = watch::channel(false);
    // One command at a time (`app`, A2).
    let (actions, orders) = mpsc::channel(1);
    let refresh = Arc::new(Notify::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let requests = Requests { paused, refresh: refresh.clone(), actions };
    let worker = Worker { store, task, events, is_paused, refresh };
    std::thread::Builder::new().name("store".into()).spawn(move || {
        let _end = EndOfThread(worker.events.clone());
        runtime.block_on(worker.work(orders));
    })?;
    Ok(requests)
}

/// Reports that the thread has ended, by a panic or otherwise.
struct EndOfThread(SyncSender<Event>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let failure = Failure::internal("a thread that talks to a store has ended");
        // Nobody receives it once the screen is gone.
        let _ = self.0.send(Event::Failed(Box::new(failure)));
    }
}

/// The screen is gone.
struct Gone;

struct Worker {
    store: usize,
    task: Task,
    events: SyncSender<Event>,
    is_paused: watch::Receiver<bool>,
    refresh: Arc<Notify>,
}

impl Worker {
    async fn work(&self, orders: mpsc::Receiver<Action>) {
        // Each ends only when the screen is gone, or the store can never be used.
        tokio::select! {
            _ = self.rounds() => {}
            _ = self.nodes() => {}
            _ = self.act(orders) => {}
        }
    }

    fn send(&self, event: StoreEvent) -> Result<(), Gone> {
        self.events.send(Event::Store { store: self.store, event }).map_err(|_| Gone)
    }

    async fn rounds(&self) -> Result<(), Gone> {
        let opened = self.open().await?;
        let open_store = match opened {
            Ok(open_store) => open_store,
            Err(failure) => return self.fail(failure).await,
        };
        let Task { pattern, options, .. } = &self.task;
        let watch = StoreWatch::new(open_store.client().clone(), pattern.clone(), options.clone());
        let mut watch = match watch {
            Ok(watch) => watch,
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                let message = Failure::from(error).message;
                self.send(StoreEvent::NoNames(NoNames::Unlisted(message)))?;
                return std::future::pending().await;
            }
            Err(error) => return self.fail(error.into()).await,
        };
        let mut is_paused = self.is_paused.clone();
        loop {
            if is_paused.wait_for(|paused| !paused).await.is_err() {
                return Err(Gone);
            }
            // A round that is dropped loses only itself.
            let round = tokio::select! {
                round = watch.next_round() => round,
                () = self.refresh.notified() => {
                    watch.hurry();
                    continue;
                }
                _ = is_paused.wait_for(|paused| *paused) => continue,
            };
            let names = || watch.names().map(|name| name.snapshot().clone()).collect();
            self.send(event(round, names))?;
        }
    }

    /// Opens the store read-only, and waits until there is one.
    async fn open(&self) -> Result<Result<OpenStore, Failure>, Gone> {
        let address = &self.task.address;
        loop {
            match NoStore::at(address) {
                Err(failure) => return Ok(Err(failure)),
                Ok(None) => break,
                Ok(Some(none)) => {
                    self.send(StoreEvent::NoNames(NoNames::NoStore(none.to_string())))?;
                }
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
        let mut gone = Ok(());
        let open_store = OpenStore::open_when_up(address, |failure| {
            gone = self.send(StoreEvent::Down(failure.message.clone()));
        });
        let open_store = open_store.await;
        gone.map(|()| open_store)
    }

    async fn fail(&self, failure: Failure) -> Result<(), Gone> {
        self.send(StoreEvent::Unusable(Box::new(failure)))?;
        std::future::pending().await
    }

    /// Looks at the servers of a quorum.
    async fn nodes(&self) -> Result<(), Gone> {
        #[cfg(feature = "redis")]
        match crate::verbs::quorum::admin(&self.task.address) {
            Ok(None) => {}
            Err(failure) => return self.fail(failure).await,
            Ok(Some(admin)) => {
                let mut is_paused = self.is_paused.clone();
                while is_paused.wait_for(|paused| !paused).await.is_ok() {
                    self.send(StoreEvent::Quorum(Box::new(admin.status().await)))?;
                    tokio::time::sleep(self.task.options.interval().max(NODES_PAUSE)).await;
                }
            }
        }
        std::future::pending().await
    }

    async fn act(&self, mut orders: mpsc::Receiver<Action>) -> Result<(), Gone> {
        while let Some(action) = orders.recv().await {
            let done = act(&self.task.address, action).await;
            self.send(StoreEvent::Done(done.map_err(|failure| failure.message)))?;
        }
        Err(Gone)
    }
}

/// Carries out an operator's command as its verb does, with a client of its own: the other one
/// only reads.
async fn act(address: &Address, action: Action) -> Result<String, Failure> {
    let options = StoreOptions { wait: Some(CONNECT_LIMIT), ..StoreOptions::default() };
    let open_store = OpenStore::open(address.clone(), options).await?;
    let notes = Notes::default();
    let done = match action {
        Action::Revoke { name, token, reason, now } => {
            let revocation = revoke::Revocation {
                name: &name,
                token,
                reason: &reason,
                now,
                grace: REVOKE_GRACE,
            };
            match revocation.carry_out(&open_store, || {}, &notes).await {
                Ok(true) if now => Ok(format!(
                    "{name}: freed at once, token {token}; its job may still run and write"
                )),
                Ok(true) => Ok(format!("{name}: revoked, token {token}")),
                Ok(false) => Err(Failure::nothing(not_revoked(&open_store, &name, token).await)),
                Err(failure) => Err(failure),
            }
        }
        Action::Freeze { name, duration, reason } => {
            let active = freeze::set(&open_store, &name, duration, &reason, &notes).await?;
            let when = if active { "frozen" } else { "will be frozen when its holder is done" };
            Ok(format!("{name}: {when}"))
        }
        Action::Unfreeze { name } => freeze::end(&open_store, &name, &notes)
            .await
            .map(|()| format!("{name}: no longer frozen")),
    };
    open_store.flush().await;
    done.map(|done| notes.behind(done))
}

/// What an action says beside its outcome, such as that nothing has recorded it.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn behind(self, done: String) -> String {
        let notes = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        notes.iter().fold(done, |text, note| text + "; " + note)
    }
}

impl Messages for Notes {
    fn info(&self, message: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
    }

    fn warn(&self, message: &str) {
        self.info(message);
    }
}

/// Says that the grant that was shown is over, and who holds the name now.
async fn not_revoked(
    open_store: &OpenStore,
    name: &LockName,
    token: holdline_core::FencingToken,
) -> String {
    let holder = open_store.inspect(name).await.ok().and_then(|now| now.holders.into_iter().next());
    let now = match holder {
        Some(holder) => {
            let token = holder.summary.token.map_or_else(String::new, |t| format!("token {t}, "));
            format!("now {token}{}", crate::holder::Holder::inspected(&holder))
        }
        None => "nobody holds it now".to_owned(),
    };
    format!("{name}: nothing was revoked, token {token} is over; {now}")
}

/// Returns what the screen needs of a round.
fn event(round: Round, names: impl FnOnce() -> Vec<Snapshot>) -> StoreEvent {
    let Round { at, took, changes, coverage, failing, .. } = round;
    if let Some(failing) = failing {
        return StoreEvent::Down(Failure::of(&failing.error, None).message);
    }
    let view = RoundView { at, took, left_out_after: left_out(coverage), names: names() };
    let mut flow = Flow::default();
    for change in changes.iter().filter(|change| !change.found) {
        match change.event {
            LockEvent::Granted { .. } => flow.granted += 1,
            LockEvent::Ended { .. } => flow.ended += 1,
            LockEvent::Queued { .. } => flow.queued += 1,
            _ => {}
        }
    }
    // Renewals are the normal state, and would hide the rest.
    let shown =
        |change: &&Change| !change.found && !matches!(change.event, LockEvent::Renewed { .. });
    let changes = changes
        .iter()
        .filter(shown)
        .map(|change| (change.name.clone(), crate::verbs::watch::text(change)))
        .collect();
    StoreEvent::Round(Box::new(CompleteRound { view, changes, flow }))
}

/// Returns the last name that a round covers, if there are more.
pub(super) fn left_out(coverage: Option<Coverage>) -> Option<LockName> {
    match coverage {
        Some(Coverage::UpTo(last)) => Some(last),
        Some(Coverage::All) | None => None,
    }
}
