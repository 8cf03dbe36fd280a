//! One server: how a statement travels to it and what comes back.
//!
//! One connection for each engine, and no pool; a second one while somebody wants to be woken, and
//! a third once a renewal had to wait for a row (`patient`). A task makes it, drives it, and makes
//! it anew when it is lost.
//!
//! - Invariant N1: no statement is sent twice, unless the server has told that it undid the first.
//! - Invariant N2: an error tells whether the statement may have left: what still waited for a
//!   connection was *not applied*; what was sent is *unknown* unless the server has said otherwise.
//! - Invariant N3: dropping the link ends its tasks and its connections.
//! - Invariant N4: a connection on which a statement missed its deadline is given up, and one on
//!   which a statement was stopped from outside: its transaction may be open.
//!
//! Read next: `supervisor` for how connections come and go, `dial` and `greet` for what is said
//! first, `driver` for how statements travel, `inbox` for how waiters are woken.

mod dial;
mod driver;
mod greet;
mod inbox;
mod supervisor;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use holdline_net::home::{Home, Task};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::{
    DEADLOCK, ENGINE, Failed, is_stopped, is_store_gone, of_command, takes_no_writes, unavailable,
};
use crate::keys::Names;
use crate::options::MysqlOptions;
use crate::schema::{self, Found};

pub(crate) use driver::Asker;
pub(crate) use greet::{Facts, SQL_MODE, only};
pub(crate) use wire::{Answer, Set};

/// How much longer than a try to connect its outcome is waited for.
const HEARD_OUT: Duration = Duration::from_millis(500);
/// How often a statement is sent that the server has undone for others.
const TRIES: usize = 4;

/// A connection that is good, until its end is told.
pub(crate) struct Live {
    asker: Asker,
    facts: Arc<Facts>,
    /// The tables are there, with all that we call.
    has_store: AtomicBool,
    /// One task at a time makes them.
    making: tokio::sync::Mutex<()>,
    end: CancellationToken,
}

/// How it stands with the connection.
#[derive(Clone, Default)]
enum Stand {
    /// There is none; the error is why the last try failed.
    #[default]
    Making,
    Failed(LockError),
    Live(Arc<Live>),
}

/// What the tasks share with the link.
struct Shared {
    options: MysqlOptions,
    names: Names,
    clock: Arc<dyn Clock>,
    home: Home,
    stand: watch::Sender<Stand>,
    closed: CancellationToken,
    watches: Arc<Watches>,
    /// Where we are woken now; 0 where nothing would be heard.
    inbox: watch::Sender<u64>,
    /// How often listening has failed or ended.
    deaf: watch::Sender<u64>,
    /// A new connection looks for the tables.
    looks: bool,
    /// Somebody wants to be told: the inbox's task runs.
    listen: AtomicBool,
    moves: AtomicU32,
    process: u32,
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
#[derive(Clone)]
pub(crate) struct Link(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.closed.cancel();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("options", &self.0.0.options).finish_non_exhaustive()
    }
}

impl Link {
    /// Makes a link, which begins to dial at once; `looks` is whether a new connection looks for
    /// the tables, and is refused by what is not ours. Its tasks run in the current runtime;
    /// outside of any, on a thread of their own.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit together, `Refused` when the process gets no thread.
    pub(crate) fn new(
        options: &MysqlOptions,
        clock: Arc<dyn Clock>,
        watches: Arc<Watches>,
        looks: bool,
    ) -> Result<Link, LockError> {
        options.validate()?;
        if options.exposes_password() {
            let address = options.address();
            tracing::warn!(%address, "who listens in can read along: write `sslmode=verify-full`");
        }
        let home = Home::find(None).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let shared = Arc::new(Shared {
            names: Names::new(options.prefix()),
            options: options.clone(),
            clock,
            home,
            stand: watch::Sender::default(),
            closed: CancellationToken::new(),
            watches,
            inbox: watch::Sender::new(0),
            deaf: watch::Sender::new(0),
            looks,
            listen: AtomicBool::new(false),
            moves: AtomicU32::new(0),
            process: std::process::id(),
        });
        supervisor::start(&shared);
        Ok(Link(Arc::new(Owner(shared))))
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<Facts>, LockError> {
        let limit = self.shared().options.connect_timeout().saturating_add(HEARD_OUT);
        // The first try that fails tells more than that nothing came.
        Ok(self.found_within(limit, |_| true).await?.facts.clone())
    }

    /// Tells whether the tables are there: where they are not, nobody holds anything.
    pub(crate) async fn has_store(&self) -> Result<bool, LockError> {
        let live = self.live_within(self.shared().options.command_timeout()).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // Somebody else may have made them meanwhile.
        let told = self.ask(&schema::look(self.names())).await?;
        match schema::found(&told)? {
            Found::Missing => Ok(false),
            Found::Older | Found::Ours => {
                // Where another version made them, what we call is added.
                self.make_store().await?;
                Ok(true)
            }
        }
    }

    /// Sees to it that the tables are there.
    pub(crate) async fn make_store(&self) -> Result<(), LockError> {
        let shared = self.shared();
        let limit = shared.options.connect_timeout();
        let live = self.live_within(limit).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Nothing else is asked meanwhile, and who made half of it makes the rest the next time.
        let _turn = live.making.lock().await;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        let unfinished = live.end.clone().drop_guard();
        let end = shared.clock.now().after(limit);
        tokio::select! {
            biased;
            made = schema::make(&live.asker, &shared.names, limit) => made?,
            () = shared.clock.sleep_until(end) => {
                let message = format!("the tables could not be made within {limit:?}");
                return Err(unavailable(message, Certainty::NotApplied));
            }
        }
        unfinished.disarm();
        live.has_store.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Sends a statement; again only if the server has undone it for the sake of others.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the statement may be carried out.
    pub(crate) async fn ask(&self, statement: &str) -> Result<Answer, LockError> {
        let shared = self.shared();
        let limit = shared.options.command_timeout();
        let end = shared.clock.now().after(limit);
        let live = self.live_within(limit).await?;
        let asking = async {
            let mut tries = 1;
            loop {
                match live.asker.ask(statement).await {
                    Err(Failed::Server(words)) if words.code == DEADLOCK && tries < TRIES => {
                        tries += 1;
                    }
                    answered => return answered,
                }
            }
        };
        // The server ends what takes long before we do; then it is certain that nothing was done.
        let answered = tokio::select! {
            biased;
            answered = asking => answered,
            () = shared.clock.sleep_until(end) => {
                live.end.cancel();
                let message = format!("no answer within {limit:?}");
                return Err(unavailable(message, Certainty::Unknown));
            }
        };
        answered.map_err(|failed| {
            if is_store_gone(&failed) || is_stopped(&failed) || takes_no_writes(&failed) {
                // The next connection looks what is there, and makes it anew if it may; the name of
                // the server may lead to another by then.
                live.end.cancel();
            }
            of_command(&failed)
        })
    }

    /// Returns the inbox to be woken in: 0 when nothing would be heard there.
    pub(crate) fn inbox(&self) -> u64 {
        *self.shared().inbox.borrow()
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        let mut deaf = shared.deaf.subscribe();
        deaf.mark_unchanged();
        if shared.listen.load(Ordering::SeqCst) && self.inbox() != 0 {
            return self.inbox();
        }
        let first = !shared.listen.load(Ordering::SeqCst);
        inbox::start(shared);
        let mut inbox = shared.inbox.subscribe();
        // Only the first one waits for it: if it cannot be opened now, the others lose no time.
        if first {
            let end = shared.clock.now().after(shared.options.command_timeout());
            tokio::select! {
                biased;
                _ = inbox.wait_for(|inbox| *inbox != 0) => {}
                _ = deaf.changed() => {}
                () = shared.clock.sleep_until(end) => {}
            }
        }
        self.inbox()
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open_inbox(&self) {
        inbox::start(self.shared());
    }

    /// Runs a task where the connection's own task runs.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.shared().home.spawn(task);
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.shared().clock
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.shared().options.command_timeout()
    }

    /// What our tables and procedures are called.
    pub(crate) fn names(&self) -> &Names {
        &self.shared().names
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Waits for a connection. A server that refuses us is told at once; one that cannot be
    /// reached may be back within the limit.
    async fn live_within(&self, limit: Duration) -> Result<Arc<Live>, LockError> {
        let refuses = |error: &LockError| !matches!(error.kind(), ErrorKind::Unavailable { .. });
        self.found_within(limit, refuses).await
    }

    /// Waits for a connection, or for a failure that ends the wait.
    async fn found_within(
        &self,
        limit: Duration,
        ends: impl Fn(&LockError) -> bool,
    ) -> Result<Arc<Live>, LockError> {
        let shared = self.shared();
        if std::process::id() != shared.process {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        let mut stand = shared.stand.subscribe();
        let settled = |stand: &Stand| match stand {
            Stand::Live(live) => live.is_good(),
            Stand::Failed(error) => ends(error),
            Stand::Making => false,
        };
        let end = shared.clock.now().after(limit);
        let found = tokio::select! {
            biased;
            found = stand.wait_for(settled) => found.ok().map(|found| found.clone()),
            () = shared.clock.sleep_until(end) => None,
        };
        match found.unwrap_or_else(|| shared.stand.borrow().clone()) {
            Stand::Live(live) if live.is_good() => Ok(live),
            Stand::Failed(error) => Err(error),
            _ => {
                let message =
                    format!("{}: no connection within {limit:?}", shared.options.address());
                Err(unavailable(message, Certainty::NotApplied))
            }
        }
    }
}

impl Live {
    fn is_good(&self) -> bool {
        !self.asker.is_closed() && !self.end.is_cancelled()
    }
}
