//! The engine: each command is one statement, which is one step of the lock table.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::snapshot::MAX_VIEWS;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditCommand, AuditPage, AuditTrail, Capabilities, Certainty,
    Clock, ClockKind, Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Operation,
    OperationReply, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot,
    Verbs,
};
use holdline_net::fast_path::FastPath;
use holdline_net::sql::replies::{acquired, audit_page, inspected, names, operated, released};
use parking_lot::Mutex;
use tokio_postgres::types::Type;

use crate::error::ENGINE;
use crate::keys::Statements;
use crate::link::{Link, Parameter};
use crate::options::PostgresOptions;
use crate::replies::{self, all, only};
use crate::requests::{self, BatchColumns, Wanted};

/// How many items one call renews.
const BATCH: usize = 128;
/// The longest page of a listing.
const MAX_PAGE: usize = 1_000;
/// How many names of a listing one call reads, and how many of their holders and waiters it
/// returns.
const SHOWN_AT_ONCE: usize = 100;
const SHOWN_OF_EACH: usize = 100;
/// How much later than its lease a dead holder's name may become free.
const LAG: Duration = Duration::from_millis(5);
/// After how many acquires a sweep looks for unused rows, and at how many: at more than can have
/// been added since.
const SWEEP_EVERY: u32 = 128;
const SWEPT_AT_ONCE: usize = 256;

/// The engine of one schema of a PostgreSQL database. Clones share its connection.
#[derive(Clone)]
pub struct PostgresEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    statements: Statements,
    link: Link,
    fast: FastPath,
    watches: Arc<Watches>,
    acquires: AtomicU32,
    /// Where the next sweep continues.
    swept: Mutex<Option<Vec<u8>>>,
}

impl PostgresEngine {
    /// Makes an engine. It connects with its first command; [`PostgresEngine::connect`] does it
    /// now. `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong.
    pub fn new(
        options: &PostgresOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PostgresEngine, LockError> {
        let watches = Arc::new(Watches::default());
        let link = Link::new(options, clock, watches.clone(), true)?;
        Ok(PostgresEngine(Arc::new(Inner {
            capabilities: capabilities(options),
            statements: Statements::of(options.schema()),
            link,
            fast: FastPath::default(),
            watches,
            acquires: AtomicU32::new(0),
            swept: Mutex::default(),
        })))
    }

    /// Makes an engine and waits until it has a connection. The schema is made by the first command
    /// that needs it.
    ///
    /// # Errors
    /// As [`crate::connect`].
    pub async fn connect(
        options: &PostgresOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PostgresEngine, LockError> {
        let engine = PostgresEngine::new(options, clock)?;
        engine.0.link.ready().await?;
        Ok(engine)
    }
}

fn capabilities(options: &PostgresOptions) -> Capabilities {
    let (address, database) = (options.address(), options.database());
    let identity = format!("{address}/{database} {}", options.schema());
    let mut capabilities = Capabilities::reference(ENGINE, identity);
    capabilities.lag = LAG;
    capabilities.clock = ClockKind::Boottime;
    capabilities.max_waiters = options.max_waiters();
    capabilities.max_batch = BATCH;
    capabilities.audit = AuditTrail::Store;
    capabilities
}

impl Verbs for PostgresEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, batch: &[&RenewRequest]) -> Renewed {
        self.0.renew(batch).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.watches.forget(request.lease_id);
        self.0.release(request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let shown = self.0.inspect(std::slice::from_ref(name), MAX_VIEWS).await?;
        Ok(shown.into_iter().next().unwrap_or_else(|| Snapshot::free(name.clone())))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.list(request).await
    }

    fn watch(&self, _name: &LockName, lease_id: LeaseId) -> Hints {
        let stream = Watches::open_or_ask(&self.0.watches, lease_id);
        self.0.link.open_inbox();
        Box::pin(stream)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }
}

impl Inner {
    async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.link.make_store().await?;
        let id = request.lease_id;
        let inbox = if request.queue {
            // A hint may come as soon as the command has committed, before its reply.
            self.watches.expect(id);
            self.link.inbox_opened().await
        } else {
            self.link.inbox()
        };
        let granted = match self.fast.may_grant(request) {
            true => self.grant_free(request, inbox).await,
            false => Ok(None),
        };
        let reply = match granted {
            Ok(None) => self.acquire_in_general(request, inbox).await,
            Ok(Some(reply)) => {
                self.fast.granted(id);
                Ok(reply)
            }
            Err(error) => Err(error),
        };
        let may_come_yet = match &reply {
            Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
            Err(error) => error.certainty() == Certainty::Unknown,
        };
        if !may_come_yet {
            self.watches.forget(id);
        }
        self.sweep_now_and_then();
        reply
    }

    /// Grants a name that is free by a short call; `None` if it is not, or if another comes first.
    async fn grant_free(
        &self,
        request: &AcquireRequest,
        inbox: u64,
    ) -> Result<Option<AcquireReply>, LockError> {
        let wanted = Wanted::of(request);
        let values: [Parameter<'_>; 7] = [
            (&wanted.name, Type::BYTEA),
            (&wanted.lease_id, Type::BYTEA),
            (&wanted.client, Type::INT8),
            (&requests::bits(inbox), Type::INT8),
            (&wanted.kind, Type::TEXT),
            (&wanted.lease, Type::INT8),
            (&wanted.metadata, Type::BYTEA),
        ];
        let ask = &self.statements.grant_free;
        let rows = self.link.ask_about(Some(&request.name), ask, &values).await;
        replies::granted(&only(&rows?)?, request)
    }

    async fn acquire_in_general(
        &self,
        request: &AcquireRequest,
        inbox: u64,
    ) -> Result<AcquireReply, LockError> {
        let limit = self.capabilities.max_waiters;
        let wanted = Wanted::of(request);
        let rows = self
            .link
            .ask_about(
                Some(&request.name),
                &self.statements.acquire,
                &[
                    (&wanted.name, Type::BYTEA),
                    (&wanted.lease_id, Type::BYTEA),
                    (&wanted.client, Type::INT8),
                    (&requests::bits(inbox), Type::INT8),
                    (&wanted.mode, Type::TEXT),
                    (&wanted.permits, Type::INT4),
                    (&wanted.total, Type::INT4),
                    (&wanted.kind, Type::TEXT),
                    (&wanted.lease, Type::INT8),
                    (&wanted.window, Type::INT8),
                    (&wanted.metadata, Type::BYTEA),
                    (&request.queue, Type::BOOL),
                    (&request.known, Type::BOOL),
                    (&requests::count(limit), Type::INT4),
                ],
            )
            .await;
        let reply = rows.and_then(|rows| acquired(&only(&rows)?, request, limit));
        self.fast.note(request, &reply);
        reply
    }

    async fn renew(&self, batch: &[&RenewRequest]) -> Renewed {
        let replies = self.renew_batch(batch).await?;
        for (item, reply) in iter::zip(batch, &replies) {
            if reply.as_ref().is_ok_and(RenewReply::is_over) {
                self.watches.forget(item.lease_id);
            }
        }
        Ok(replies)
    }

    async fn renew_batch(&self, batch: &[&RenewRequest]) -> Renewed {
        if !self.link.has_store().await? {
            return Ok(vec![Ok(RenewReply::Unknown); batch.len()]);
        }
        // A batch of several names skips those whose rows are locked.
        let only_name = match batch {
            [first, others @ ..] => {
                Some(&first.name).filter(|name| others.iter().all(|other| other.name == **name))
            }
            [] => None,
        };
        let columns = BatchColumns::of(batch);
        let rows = self
            .link
            .ask_about(
                only_name,
                &self.statements.renew,
                &[
                    (&columns.names, Type::BYTEA_ARRAY),
                    (&columns.ids, Type::BYTEA_ARRAY),
                    (&columns.clients, Type::INT8_ARRAY),
                    (&requests::bits(self.link.inbox()), Type::INT8),
                    (&columns.kinds, Type::TEXT_ARRAY),
                    (&columns.leases, Type::INT8_ARRAY),
                ],
            )
            .await;
        Ok(replies::renewed(&rows?, batch.len()))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        // Only a tombstone needs the tables.
        if request.ending.for_good {
            self.link.make_store().await?;
        } else if !self.link.has_store().await? {
            return Ok(ReleaseReply::NotHeld { revoked: None });
        }
        let name = request.name.as_str().as_bytes();
        let lease_id = &request.lease_id.as_bytes()[..];
        if self.fast.forget(request.lease_id) && !request.ending.for_good {
            let ask = &self.statements.release_alone;
            let values: [Parameter<'_>; 2] = [(&name, Type::BYTEA), (&lease_id, Type::BYTEA)];
            let rows = self.link.ask_about(Some(&request.name), ask, &values).await?;
            if let Some(held_for) = replies::held_for(&only(&rows)?)? {
                return Ok(ReleaseReply::Released { held_for: Some(held_for) });
            }
        }
        let rows = self
            .link
            .ask_about(
                Some(&request.name),
                &self.statements.release,
                &[
                    (&name, Type::BYTEA),
                    (&lease_id, Type::BYTEA),
                    (&requests::remembered(request.ending), Type::INT8),
                ],
            )
            .await;
        released(&only(&rows?)?)
    }

    async fn inspect(&self, names: &[LockName], most: usize) -> Result<Vec<Snapshot>, LockError> {
        if !self.link.has_store().await? {
            return Ok(names.iter().cloned().map(Snapshot::free).collect());
        }
        let only_name = if let [name] = names { Some(name) } else { None };
        let wanted: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
        let rows = self
            .link
            .ask_about(
                only_name,
                &self.statements.inspect,
                &[(&wanted, Type::BYTEA_ARRAY), (&requests::count(most), Type::INT4)],
            )
            .await;
        inspected(all(&rows?), names)
    }

    /// Returns a page of names with their states; some may have become free meanwhile.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        if !self.link.has_store().await? {
            return Ok(ListPage::default());
        }
        let limit = request.limit.clamp(1, MAX_PAGE);
        let prefix = request.prefix.as_bytes();
        let after = request.after.as_ref().map(|name| name.as_str().as_bytes());
        let last = behind(prefix);
        let rows = self
            .link
            .ask(
                &self.statements.list,
                &[
                    (&prefix, Type::BYTEA),
                    (&after, Type::BYTEA),
                    (&last, Type::BYTEA),
                    (&requests::count(limit + 1), Type::INT4),
                ],
            )
            .await;
        let mut names = names(all(&rows?), "list_1")?;
        let more = names.len() > limit;
        names.truncate(limit);
        let mut page = ListPage {
            names: Vec::with_capacity(names.len()),
            after: names.last().filter(|_| more).cloned(),
        };
        for some in names.chunks(SHOWN_AT_ONCE) {
            let shown = self.inspect(some, SHOWN_OF_EACH).await?;
            let used =
                |one: &Snapshot| one.is_held() || one.queue_length > 0 || one.freeze.is_some();
            page.names.extend(shown.into_iter().filter(used));
        }
        Ok(page)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        if let Operation::Audit(command) = operation {
            return self.audit(command).await;
        }
        let makes = matches!(operation, Operation::Freeze { .. } | Operation::RaiseFence { .. });
        if makes {
            self.link.make_store().await?;
        } else if !self.link.has_store().await? {
            return Ok(OperationReply::NothingThere);
        }
        let statements = &self.statements;
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                let rows = self
                    .link
                    .ask_about(
                        Some(name),
                        &statements.revoke,
                        &[
                            (&name.as_str().as_bytes(), Type::BYTEA),
                            (&requests::token(*token), Type::INT8),
                            (&reason.as_bytes(), Type::BYTEA),
                            (now, Type::BOOL),
                        ],
                    )
                    .await;
                operated(&only(&rows?)?)
            }
            Operation::Freeze { name, duration, reason } => {
                let rows = self
                    .link
                    .ask_about(
                        Some(name),
                        &statements.freeze,
                        &[
                            (&name.as_str().as_bytes(), Type::BYTEA),
                            (&requests::micros(*duration), Type::INT8),
                            (&reason.as_bytes(), Type::BYTEA),
                        ],
                    )
                    .await;
                rows.map(|_| OperationReply::Done)
            }
            Operation::Unfreeze { name } => {
                let wanted = name.as_str().as_bytes();
                let rows = self
                    .link
                    .ask_about(Some(name), &statements.unfreeze, &[(&wanted, Type::BYTEA)])
                    .await;
                replies::unfrozen(&only(&rows?)?)
            }
            other @ (Operation::RevokeHolder { .. }
            | Operation::Latch { .. }
            | Operation::Counting { .. }
            | Operation::Audit(_)) => Err(other.unsupported(&self.capabilities)),
            Operation::RaiseFence { to } => {
                let to = requests::token(*to);
                let rows = self.link.ask(&statements.raise, &[(&to, Type::INT8)]).await;
                rows.map(|_| OperationReply::Done)
            }
        }
    }

    async fn audit(&self, command: &AuditCommand) -> Result<OperationReply, LockError> {
        match command {
            AuditCommand::Append { record, .. } => {
                self.link.make_store().await?;
                let text = record.to_encoded().into_bytes();
                let statement = &self.statements.audit_append;
                let rows = self.link.ask(statement, &[(&text, Type::BYTEA)]).await;
                rows.map(|_| OperationReply::Done)
            }
            AuditCommand::Read(_) if !self.link.has_store().await? => {
                Ok(OperationReply::Audit(AuditPage::default()))
            }
            AuditCommand::Read(request) => {
                let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
                let since = number(request.since_ms);
                let before = request.before.map_or(i64::MAX, |before| number(before.number));
                let limit = requests::count(request.limit());
                let statement = &self.statements.audit_read;
                let rows = self
                    .link
                    .ask(
                        statement,
                        &[(&since, Type::INT8), (&before, Type::INT8), (&limit, Type::INT4)],
                    )
                    .await;
                audit_page(all(&rows?), request).map(OperationReply::Audit)
            }
        }
    }

    /// Removes rows of names that were not used for a while, a few at a time, in the background.
    fn sweep_now_and_then(self: &Arc<Self>) {
        if self.acquires.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY != SWEEP_EVERY - 1 {
            return;
        }
        let inner = self.clone();
        self.link.spawn(Box::pin(async move {
            let after = inner.swept.lock().take();
            let rows = inner
                .link
                .ask(
                    &inner.statements.sweep,
                    &[(&after, Type::BYTEA), (&requests::count(SWEPT_AT_ONCE), Type::INT4)],
                )
                .await;
            match rows {
                Ok(rows) => {
                    let next = rows.first().and_then(|row| row.try_get(0).ok()).flatten();
                    *inner.swept.lock() = next;
                }
                // No lock depends on it: the next sweep starts again.
                Err(error) => tracing::debug!(%error, "old rows were not swept"),
            }
        }));
    }
}

/// The first text behind all that begin with a prefix; `None` when there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut text = prefix[..=at].to_vec();
    text[at] += 1;
    Some(text)
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(behind(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind(b""), None);
    }
}
