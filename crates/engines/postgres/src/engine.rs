//! The engine: each command is one statement, which is one step of the lock table.
//!
//! ```text
//! acquire:
//!   create the tables and functions if they are missing
//!   if the request may queue: LISTEN for this process's inbox first
//!   grant_free_1, one short statement: nobody holds and nobody waits -> granted
//!   otherwise acquire_1, one transaction under a lock of the name's row:
//!     the rules of the lock table -> granted, queued, busy, cancelled, revoked
//! a release hands the name to the first waiter in its own transaction; NOTIFY leaves with the
//! commit; the message is the grant
//! a wait ends with its limit, with the caller, or when its heartbeats stop
//! ```

use std::fmt;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::operation::removal_reason;
use holdline_core::snapshot::MAX_VIEWS;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRecord, AuditRequest, Capabilities, Clock, Hints,
    LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Renewed, ShortLeaseId, Snapshot, Verbs,
};
use holdline_net::sql::engine::{
    EngineState, NameRange, SHOWN_AT_ONCE, SHOWN_OF_EACH, SWEPT_AT_ONCE, is_sweep_due, sweep,
};
use holdline_net::sql::replies::{acquired, audit_page, inspected, names, operated, released};
use tokio_postgres::types::Type;

use crate::error::ENGINE;
use crate::keys::Statements;
use crate::link::{Link, Parameter};
use crate::options::PostgresOptions;
use crate::replies::{self, all, only};
use crate::requests::{self, BatchColumns, Wanted};

/// The engine of one schema of a PostgreSQL database. Clones share its connection.
#[derive(Clone)]
pub struct PostgresEngine(Arc<PostgresEngineParts>);

struct PostgresEngineParts {
    state: EngineState,
    statements: Statements,
    link: Link,
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
        let identity = format!("{}/{} {}", options.place(), options.database(), options.schema());
        let state = EngineState::new(ENGINE, identity, options.max_waiters(), watches);
        Ok(PostgresEngine(Arc::new(PostgresEngineParts {
            state,
            link,
            statements: Statements::of(options.schema()),
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

impl Verbs for PostgresEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.state.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, batch: &[&RenewRequest]) -> Renewed {
        self.0.renew(batch).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.state.watches.forget(request.lease_id);
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
        let stream = Watches::open_or_ask(&self.0.state.watches, lease_id);
        self.0.link.open_inbox();
        Box::pin(stream)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }

    async fn append_audit(&self, record: &AuditRecord) -> Result<(), LockError> {
        self.0.append_audit(record).await
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        self.0.read_audit(request).await
    }
}

impl PostgresEngineParts {
    async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.link.make_store().await?;
        let inbox = if request.queue {
            // A hint may come as soon as the command has committed, before its reply.
            self.state.watches.expect(request.lease_id);
            self.link.inbox_opened().await
        } else {
            self.link.inbox()
        };
        let short = || self.grant_free(request, inbox);
        let general = || self.acquire_in_general(request, inbox);
        let reply = self.state.acquire(request, short, general).await;
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
        let limit = self.state.capabilities.max_waiters;
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
        acquired(&only(&rows?)?, request, limit)
    }

    async fn renew(&self, batch: &[&RenewRequest]) -> Renewed {
        let replies = self.renew_batch(batch).await?;
        self.state.renewed(batch, &replies);
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
        if self.state.fast.forget(request.lease_id) && !request.ending.for_good {
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
        let range = NameRange::of(request);
        let values: [Parameter<'_>; 4] = [
            (&range.prefix, Type::BYTEA),
            (&range.after, Type::BYTEA),
            (&range.before, Type::BYTEA),
            (&requests::count(range.limit), Type::INT4),
        ];
        let rows = self.link.ask(&self.statements.list, &values).await?;
        let mut names = names(all(&rows), "list_1")?;
        let mut page = range.page(&mut names);
        for some in names.chunks(SHOWN_AT_ONCE) {
            let shown = self.inspect(some, SHOWN_OF_EACH).await?;
            page.names.extend(shown.into_iter().filter(Snapshot::is_used));
        }
        Ok(page)
    }

    async fn remove_waiter(
        &self,
        name: &LockName,
        waiter: ShortLeaseId,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        let reason = removal_reason(reason);
        let rows = self
            .link
            .ask_about(
                Some(name),
                &self.statements.remove_waiter,
                &[
                    (&name.as_str().as_bytes(), Type::BYTEA),
                    (&waiter.as_bytes().as_slice(), Type::BYTEA),
                    (&reason.as_bytes(), Type::BYTEA),
                ],
            )
            .await;
        operated(&only(&rows?)?)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
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
            Operation::RemoveWaiter { name, waiter, reason } => {
                self.remove_waiter(name, *waiter, reason).await
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
            Operation::RevokeHolder { .. } => Err(operation.unsupported(&self.state.capabilities)),
            Operation::RaiseFence { to } => {
                let to = requests::token(*to);
                let rows = self.link.ask(&statements.raise, &[(&to, Type::INT8)]).await;
                rows.map(|_| OperationReply::Done)
            }
        }
    }

    async fn append_audit(&self, record: &AuditRecord) -> Result<(), LockError> {
        self.link.make_store().await?;
        let text = record.to_encoded().into_bytes();
        let rows = self.link.ask(&self.statements.audit_append, &[(&text, Type::BYTEA)]).await;
        rows.map(drop)
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        if !self.link.has_store().await? {
            return Ok(AuditPage::default());
        }
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let since = number(request.since_ms);
        let before = request.before.map_or(i64::MAX, |before| number(before.number));
        let limit = requests::count(request.limit());
        let values: [Parameter<'_>; 3] =
            [(&since, Type::INT8), (&before, Type::INT8), (&limit, Type::INT4)];
        let rows = self.link.ask(&self.statements.audit_read, &values).await;
        audit_page(all(&rows?), request)
    }

    /// Removes rows of names that were not used for a while, a few at a time, in the background.
    fn sweep_now_and_then(self: &Arc<Self>) {
        if !is_sweep_due() {
            return;
        }
        let inner = self.clone();
        self.link.spawn(Box::pin(async move {
            // Without a name, the store's own place is used.
            let after = None::<&[u8]>;
            let most = requests::count(SWEPT_AT_ONCE);
            let values: [Parameter<'_>; 2] = [(&after, Type::BYTEA), (&most, Type::INT4)];
            sweep(inner.link.ask(&inner.statements.sweep, &values)).await;
        }));
    }
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine")
            .field("identity", &self.0.state.capabilities.identity)
            .finish_non_exhaustive()
    }
}
