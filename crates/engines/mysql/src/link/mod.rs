//! The link to a MariaDB server: how a connection is made, and how statements are sent on it.
//!
//! `holdline_net::sql` keeps the connection. A second one is opened for wake-ups. Two more are
//! opened when they are needed: for a renewal that waits for a row, and for another command that
//! does (`locked_rows`, `waiting_commands`).
//!
//! - Invariant L1: a statement is sent again only if the server has reported that it rolled the
//!   first one back.
//! - Invariant L2: a connection is closed if a statement was killed: its transaction may be open.
//!
//! Read next: `inbox` for how waiters are woken, and the module `connection` for one connection.

mod fast;
mod inbox;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline_core::hints::Watches;
use holdline_core::{Clock, LockError};
use holdline_net::limits::Limits;
use holdline_net::sql::link::{Driver, LinkState, Live, ServerLink, SqlServer};
use tokio::sync::watch;

use crate::connection::{self, ConnectionHandle, Facts, Statement, handshake, open};
use crate::error::{
    DEADLOCK, ENGINE, Failed, is_locked, is_stopped, is_store_gone, of_command, switched_over,
    takes_no_writes,
};
use crate::keys::Names;
use crate::options::MysqlOptions;
use crate::rows::Answer;
use crate::schema::{self, Found};

/// How often a statement is sent that the server rolled back to break a deadlock.
const TRIES: usize = 4;

pub(crate) use fast::FastStatement;
pub(crate) use inbox::granted;

/// A database with one set of tables, and what the tasks of its link share.
pub(crate) struct Database {
    options: MysqlOptions,
    names: Names,
    /// Whether a new connection checks the tables.
    looks: bool,
    /// The current inbox; 0 if nothing can be received.
    inbox: watch::Sender<u64>,
    /// How often listening has failed or ended.
    closed_inboxes: watch::Sender<u64>,
    /// Whether there are watches: the inbox's task runs.
    listen: AtomicBool,
}

/// A connection that is set up.
pub(crate) struct Session {
    handle: ConnectionHandle,
    pub(crate) facts: Facts,
    prepared: fast::Prepared,
}

impl SqlServer for Database {
    const ENGINE: &'static str = ENGINE;
    const STORE: &'static str = "tables";
    /// With the connection id of the server's initial handshake.
    type Handle = (ConnectionHandle, u32);
    type Session = Session;

    fn address(&self) -> String {
        self.options.address().to_string()
    }

    fn limits(&self) -> &Limits {
        self.options.limits()
    }

    async fn open(shared: &LinkState<Database>) -> Result<(Self::Handle, Driver), LockError> {
        let opened = open(&shared.server.options).await?;
        let (handle, mut driver) = connection::on(opened.stream);
        Ok(((handle, opened.number), Box::pin(async move { driver.run().await })))
    }

    async fn set_up(
        shared: &LinkState<Database>,
        (handle, number): Self::Handle,
    ) -> Result<(Session, bool), LockError> {
        let database = &shared.server;
        let options = &database.options;
        let took_writes = shared.took_writes();
        let facts = handshake(&handle, number, options, &*shared.clock, took_writes).await?;
        shared.note_writes();
        let has_store =
            database.looks && schema::find(&handle, &database.names).await? == Found::Ours;
        Ok((Session { handle, facts, prepared: fast::Prepared::default() }, has_store))
    }

    fn is_closed(session: &Session) -> bool {
        session.handle.is_closed()
    }

    async fn has_store(link: &ServerLink<Database>) -> Result<bool, LockError> {
        let look = Statement::from(schema::look(&link.server().names));
        let reply = ask_on(link, &*link.live().await?, &look).await?;
        Ok(schema::found(&reply)? != Found::Missing)
    }

    async fn make_store(&self, session: &Session) -> Result<(), LockError> {
        schema::make(&session.handle, &self.names, self.options.connect_timeout()).await
    }

    fn restart(shared: &Arc<LinkState<Database>>) {
        if shared.server.listen.swap(false, Ordering::SeqCst) {
            inbox::start(shared);
        }
    }
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
#[derive(Clone)]
pub(crate) struct Link(ServerLink<Database>);

impl Deref for Link {
    type Target = ServerLink<Database>;

    fn deref(&self) -> &ServerLink<Database> {
        &self.0
    }
}

impl Link {
    /// Makes a link, which begins to connect at once. `looks` is whether a new connection checks
    /// the tables, and fails if they are foreign.
    ///
    /// # Errors
    /// `Invalid`: options contradict each other. `Refused`: the process gets no thread.
    pub(crate) fn new(
        options: &MysqlOptions,
        clock: Arc<dyn Clock>,
        watches: Arc<Watches>,
        looks: bool,
    ) -> Result<Link, LockError> {
        options.validate()?;
        let database = Database {
            names: Names::new(options.prefix()),
            options: options.clone(),
            looks,
            inbox: watch::Sender::new(0),
            closed_inboxes: watch::Sender::new(0),
            listen: AtomicBool::new(false),
        };
        ServerLink::new(database, clock, watches, options.exposes_password()).map(Link)
    }

    /// Sends a statement; again only if the server rolled it back to break a deadlock.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the reply: the statement may be carried out.
    pub(crate) async fn ask(&self, statement: &str) -> Result<Answer, LockError> {
        let live = self.live().await?;
        ask_on(self, &live, &Statement::from(statement)).await
    }

    /// Sends a statement as [`Link::ask`], but the server does not let it wait for a row. The inner
    /// error: another session has locked one. Nothing was applied.
    ///
    /// A statement with `skip locked` must not be sent by this: with a limit of 0, MariaDB 10.11
    /// refuses the commit after a row was skipped.
    pub(crate) async fn ask_now(
        &self,
        statement: &str,
    ) -> Result<Result<Answer, LockError>, LockError> {
        let live = self.live().await?;
        let text = without_waiting(&live.session.facts, statement);
        try_on(self, &live, &Statement::from(text)).await
    }

    /// Returns the current inbox: 0 if nothing can be received.
    pub(crate) fn inbox(&self) -> u64 {
        *self.server().inbox.borrow()
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        let database = self.server();
        let mut closed_inboxes = database.closed_inboxes.subscribe();
        closed_inboxes.mark_unchanged();
        if database.listen.load(Ordering::SeqCst) && self.inbox() != 0 {
            return self.inbox();
        }
        let first = !database.listen.load(Ordering::SeqCst);
        inbox::start(shared);
        let mut inbox = database.inbox.subscribe();
        // Only the first caller waits for it: if it cannot be opened now, the others lose no time.
        if first {
            let end = shared.clock.now().after(self.limits().command_timeout);
            tokio::select! {
                biased;
                _ = inbox.wait_for(|inbox| *inbox != 0) => {}
                _ = closed_inboxes.changed() => {}
                () = shared.clock.sleep_until(end) => {}
            }
        }
        self.inbox()
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open_inbox(&self) {
        inbox::start(self.shared());
    }

    /// Returns the names of tables and procedures.
    pub(crate) fn names(&self) -> &Names {
        &self.server().names
    }
}

/// Returns the statement that waits for no row. Only MariaDB has such a form.
fn without_waiting(facts: &Facts, statement: &str) -> String {
    if facts.is_mariadb {
        format!("set statement innodb_lock_wait_timeout = 0 for {statement}")
    } else {
        statement.to_owned()
    }
}

async fn ask_on(
    link: &ServerLink<Database>,
    live: &Live<Database>,
    statement: &Statement,
) -> Result<Answer, LockError> {
    try_on(link, live, statement).await?
}

/// Sends a statement. The inner error: another session has a lock, and nothing was applied.
async fn try_on(
    link: &ServerLink<Database>,
    live: &Live<Database>,
    statement: &Statement,
) -> Result<Result<Answer, LockError>, LockError> {
    let failed = match send_on(link, live, statement).await? {
        Ok(answer) => return Ok(Ok(answer)),
        Err(failed) => failed,
    };
    let error = switched_over(&failed).unwrap_or_else(|| of_command(&failed));
    if is_locked(&failed) { Ok(Err(error)) } else { Err(error) }
}

/// Sends a statement; again if the server broke a deadlock. The inner error is the server's.
async fn send_on(
    link: &ServerLink<Database>,
    live: &Live<Database>,
    statement: &Statement,
) -> Result<Result<Answer, Failed>, LockError> {
    let asking = async {
        let mut tries = 1;
        loop {
            match live.session.handle.ask(statement.clone()).await {
                Err(Failed::Server(words)) if words.code == DEADLOCK && tries < TRIES => {
                    tries += 1;
                }
                answered => return answered,
            }
        }
    };
    let end = link.shared().clock.now().after(link.limits().command_timeout);
    let failed = match link.answer(live, end, asking).await? {
        Ok(answer) => return Ok(Ok(answer)),
        Err(failed) => failed,
    };
    if is_store_gone(&failed) || is_stopped(&failed) || takes_no_writes(&failed) {
        // The next connection checks the tables, and creates them if it may; the name of
        // the server may lead to another by then.
        live.close();
    }
    Ok(Err(failed))
}
