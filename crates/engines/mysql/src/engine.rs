//! The engine: each command calls one procedure, which is one step of the lock table.
//!
//! ```text
//! acquire:
//!   create the tables and procedures if they are missing
//!   if the request may queue: open this process's inbox first
//!   one short statement: nobody holds and nobody waits -> granted
//!   otherwise CALL acquire, one transaction under a lock of the name's row:
//!     the rules of the lock table -> granted, queued, busy, cancelled, revoked
//! a release hands the name to the first waiter in its own transaction:
//!   a waiter of this process is granted by the reply to the release
//!   another one by its inbox: the release ends the sleep of its process's second connection
//! a wait ends with its limit, with the caller, or when its heartbeats stop
//! ```

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::operation::removal_reason;
use holdline_core::snapshot::MAX_VIEWS;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRecord, AuditRequest, Backoff, Capabilities,
    Certainty, Clock, Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Operation,
    OperationReply, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot,
    Verbs,
};
use holdline_net::sql::engine::{
    EngineState, NameRange, SHOWN_AT_ONCE, SHOWN_OF_EACH, SWEPT_AT_ONCE, is_sweep_due, sweep,
};
use holdline_net::sql::replies::{acquired, audit_page, inspected, names, operated, released};

use crate::error::{ENGINE, unavailable};
use crate::keys::{Names, Value};
use crate::link::{Link, granted};
use crate::locked_rows::LockedRows;
use crate::options::MysqlOptions;
use crate::replies::{self, BatchReplies};
use crate::rows::{Answer, all, only};
use crate::views;
use crate::waiting_commands::WaitingCommands;
use crate::{fast, requests};

/// How long a renewal of a batch with several names waits for a locked row: well below the interval
/// of the heartbeat. And the pause between attempts while another renewal waits.
const LOCKED: Duration = Duration::from_millis(600);
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// The engine of one set of tables in a MariaDB database. Clones share its connection.
#[derive(Clone)]
pub struct MysqlEngine(Arc<MysqlEngineParts>);

struct MysqlEngineParts {
    state: EngineState,
    link: Link,
    locked_rows: LockedRows,
    waiting_renewals: WaitingCommands,
}

impl MysqlEngine {
    /// Makes an engine. It connects with its first command; [`MysqlEngine::connect`] does it
    /// now. `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong.
    pub fn new(options: &MysqlOptions, clock: Arc<dyn Clock>) -> Result<MysqlEngine, LockError> {
        let watches = Arc::new(Watches::default());
        let link = Link::new(options, clock.clone(), watches.clone(), true)?;
        let identity = format!("{}/{} {}", options.address(), options.database(), options.prefix());
        let state = EngineState::new(ENGINE, identity, options.max_waiters(), watches);
        Ok(MysqlEngine(Arc::new(MysqlEngineParts {
            state,
            link,
            locked_rows: LockedRows::new(options, clock.clone()),
            waiting_renewals: WaitingCommands::new(options, clock),
        })))
    }

    /// Makes an engine and waits until it has a connection. The tables are made by the first
    /// command that needs them.
    ///
    /// # Errors
    /// As [`crate::connect`].
    pub async fn connect(
        options: &MysqlOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<MysqlEngine, LockError> {
        let engine = MysqlEngine::new(options, clock)?;
        engine.0.link.ready().await?;
        Ok(engine)
    }
}

impl Verbs for MysqlEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.state.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        self.0.renew(renewals).await
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

impl MysqlEngineParts {
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
        let short = || fast::acquire(&self.link, request, inbox);
        let general = || self.acquire_by_call(request, inbox);
        let reply = self.state.acquire(request, short, general).await;
        self.sweep_now_and_then();
        reply
    }

    async fn acquire_by_call(
        &self,
        request: &AcquireRequest,
        inbox: u64,
    ) -> Result<AcquireReply, LockError> {
        let limit = self.state.capabilities.max_waiters;
        let answer = self.ask(&requests::acquire(self.names(), request, inbox, limit)).await;
        acquired(&only(&answer?)?, request, limit)
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        for renewal in renewals {
            // The short release is for a lease that was not renewed.
            self.state.fast.forget(renewal.lease_id);
        }
        let replies = self.renew_batch(renewals).await?;
        self.state.renewed(renewals, &replies);
        Ok(replies)
    }

    /// Renews a batch. Names whose rows are locked are skipped; their renewals wait briefly for the
    /// row on another connection, and fail without the other renewals.
    async fn renew_batch(&self, renewals: &[&RenewRequest]) -> Renewed {
        if !self.link.has_store().await? {
            return Ok(vec![Ok(RenewReply::Unknown); renewals.len()]);
        }
        let clock = &*self.link.shared().clock;
        let limit = self.link.limits().command_timeout;
        let others = renewals.iter().any(|renewal| renewal.name != renewals[0].name);
        let end = clock.now().after(if others { LOCKED.min(limit / 2) } else { limit });
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut replies: Vec<Option<Result<RenewReply, LockError>>> = vec![None; renewals.len()];
        loop {
            let open: Vec<usize> =
                (0..renewals.len()).filter(|at| replies[*at].is_none()).collect();
            match self.renew_unlocked(&open, renewals).await {
                Ok(answers) => enter(&mut replies, &open, answers),
                Err(error) if open.len() == renewals.len() => return Err(error),
                // The renewals that were answered before are valid.
                Err(error) => fill(&mut replies, &error),
            }
            let Some(first) = replies.iter().position(Option::is_none) else {
                return Ok(replies.into_iter().flatten().collect());
            };
            if clock.now() >= end {
                let message = "the row of the name is locked by another session";
                fill(&mut replies, &unavailable(message, Certainty::NotApplied));
                return Ok(replies.into_iter().flatten().collect());
            }
            let is_same = |at: &usize| renewals[*at].name == renewals[first].name;
            let same: Vec<usize> =
                open.into_iter().filter(|at| replies[*at].is_none()).filter(is_same).collect();
            let (call, order) = self.renew_call(&same, renewals, true);
            match self.waiting_renewals.ask(call, end).await {
                Some(answer) => match answer.and_then(|answer| replies::renewed(&answer, &order)) {
                    Ok(answers) => enter(&mut replies, &same, answers),
                    Err(error) => {
                        let failed = same.iter().map(|_| Err(error.clone())).collect();
                        enter(&mut replies, &same, failed);
                    }
                },
                None => {
                    let pause = pauses.next_pause(rand::random());
                    clock.sleep_until(clock.now().after(pause)).await;
                }
            }
        }
    }

    /// Sends these renewals of a batch; renewals of a locked name are not answered.
    async fn renew_unlocked(
        &self,
        at: &[usize],
        renewals: &[&RenewRequest],
    ) -> Result<BatchReplies, LockError> {
        if at.is_empty() {
            return Ok(BatchReplies::new());
        }
        let (call, order) = self.renew_call(at, renewals, false);
        replies::renewed(&self.link.ask(&call).await?, &order)
    }

    /// Returns the call that sends these renewals, and the order of its replies.
    fn renew_call(
        &self,
        at: &[usize],
        renewals: &[&RenewRequest],
        waits: bool,
    ) -> (String, Vec<usize>) {
        let batch: Vec<&RenewRequest> = at.iter().map(|at| renewals[*at]).collect();
        let (packed, order) = requests::packed_batch(&batch);
        let inbox = self.link.inbox().to_be_bytes();
        let values = [Value::Bytes(&packed), Value::Bytes(&inbox), Value::Number(i64::from(waits))];
        (self.names().call("renew", &values), order)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        // Only a tombstone needs the tables.
        if request.ending.for_good {
            self.link.make_store().await?;
        } else if !self.link.has_store().await? {
            return Ok(ReleaseReply::NotHeld { revoked: None });
        }
        if self.state.fast.forget(request.lease_id)
            && !request.ending.for_good
            && let Some(reply) = fast::release(&self.link, request).await?
        {
            return Ok(reply);
        }
        let call = self.names().call(
            "release",
            &[
                Value::Bytes(request.name.as_str().as_bytes()),
                Value::Bytes(request.lease_id.as_bytes()),
                Value::Number(requests::remembered(request.ending)),
                Value::Bytes(&self.link.inbox().to_be_bytes()),
            ],
        );
        let answer = self.ask(&call).await?;
        let row = only(&answer)?;
        // The reply follows the commit, so it is the grant of a waiter of this process.
        if let Some(next) = row.maybe::<&str>("next_id")? {
            self.state.watches.deliver(granted(next, row.sure("next_token")?).as_bytes());
        }
        released(&row)
    }

    async fn inspect(&self, names: &[LockName], most: usize) -> Result<Vec<Snapshot>, LockError> {
        if !self.link.has_store().await? {
            return Ok(names.iter().cloned().map(Snapshot::free).collect());
        }
        // First settle what time has changed; then read everything at one moment.
        let packed = requests::packed(names);
        let refresh = self.names().call("refresh", &[Value::Bytes(&packed)]);
        match names {
            [_] => self.ask(&refresh).await?,
            // It skips names whose rows are locked.
            _ => self.link.ask(&refresh).await?,
        };
        let answer = self.link.ask(&views::inspect(self.names(), names, most)).await?;
        inspected(all(&answer), names)
    }

    /// Returns a page of names with their states; some may have become free meanwhile.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        if !self.link.has_store().await? {
            return Ok(ListPage::default());
        }
        let range = NameRange::of(request);
        let text = views::list(self.names(), &range);
        let mut names = names(all(&self.link.ask(&text).await?), "name")?;
        let mut page = range.page(&mut names);
        for some in names.chunks(SHOWN_AT_ONCE) {
            let shown = self.inspect(some, SHOWN_OF_EACH).await?;
            page.names.extend(shown.into_iter().filter(Snapshot::is_used));
        }
        Ok(page)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let makes = matches!(operation, Operation::Freeze { .. } | Operation::RaiseFence { .. });
        if makes {
            self.link.make_store().await?;
        } else if !self.link.has_store().await? {
            return Ok(OperationReply::NothingThere);
        }
        let bytes = |name: &LockName| name.as_str().as_bytes().to_vec();
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                let name = bytes(name);
                let values = [
                    Value::Bytes(&name),
                    Value::Number(requests::token(*token)),
                    Value::Bytes(reason.as_bytes()),
                    Value::Number(i64::from(*now)),
                ];
                self.operated("revoke", &values).await
            }
            Operation::RemoveWaiter { name, waiter, reason } => {
                let name = bytes(name);
                let reason = removal_reason(reason);
                let values = [
                    Value::Bytes(&name),
                    Value::Bytes(waiter.as_bytes()),
                    Value::Bytes(reason.as_bytes()),
                ];
                self.operated("remove_waiter", &values).await
            }
            Operation::Freeze { name, duration, reason } => {
                let name = bytes(name);
                let values = [
                    Value::Bytes(&name),
                    Value::Number(requests::micros(*duration)),
                    Value::Bytes(reason.as_bytes()),
                ];
                self.operated("freeze", &values).await
            }
            Operation::Unfreeze { name } => {
                self.operated("unfreeze", &[Value::Bytes(&bytes(name))]).await
            }
            Operation::RevokeHolder { .. } => Err(operation.unsupported(&self.state.capabilities)),
            Operation::RaiseFence { to } => {
                self.operated("raise", &[Value::Number(requests::token(*to))]).await
            }
        }
    }

    async fn append_audit(&self, record: &AuditRecord) -> Result<(), LockError> {
        self.link.make_store().await?;
        let text = record.to_encoded();
        self.operated("audit_append", &[Value::Bytes(text.as_bytes())]).await.map(drop)
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        if !self.link.has_store().await? {
            return Ok(AuditPage::default());
        }
        let number = |number| Value::Number(i64::try_from(number).unwrap_or(i64::MAX));
        let before = request.before.map_or(u64::MAX, |before| before.number);
        let limit = Value::Number(requests::count(request.limit()).into());
        let since = request.since_ms.saturating_mul(1_000);
        let values = [number(since), number(before), limit];
        let answer = self.link.ask(&self.names().call("audit_read", &values)).await;
        audit_page(all(&answer?), request)
    }

    async fn operated(
        &self,
        verb: &str,
        values: &[Value<'_>],
    ) -> Result<OperationReply, LockError> {
        let answer = self.ask(&self.names().call(verb, values)).await?;
        // Some commands return no row.
        if answer.is_empty() {
            return Ok(OperationReply::Done);
        }
        operated(&only(&answer)?)
    }

    /// Sends a command, which may have to wait for a row.
    async fn ask(&self, call: &str) -> Result<Answer, LockError> {
        self.locked_rows.ask(&self.link, call).await
    }

    fn names(&self) -> &Names {
        self.link.names()
    }

    /// Removes rows of names that were not used for a while, a few at a time, in the background.
    fn sweep_now_and_then(self: &Arc<Self>) {
        if !is_sweep_due() {
            return;
        }
        let inner = self.clone();
        self.link.spawn(Box::pin(async move {
            let most = Value::Number(requests::count(SWEPT_AT_ONCE).into());
            sweep(inner.link.ask(&inner.names().call("sweep", &[most]))).await;
        }));
    }
}

/// Enters the replies to some renewals of a batch; a renewal with a locked row gets none.
fn enter(
    replies: &mut [Option<Result<RenewReply, LockError>>],
    places: &[usize],
    answers: BatchReplies,
) {
    for (at, answer) in iter::zip(places, answers) {
        replies[*at] = answer.transpose();
    }
}

/// Enters this error for all renewals without a reply.
fn fill(replies: &mut [Option<Result<RenewReply, LockError>>], error: &LockError) {
    for reply in replies {
        reply.get_or_insert_with(|| Err(error.clone()));
    }
}

impl fmt::Debug for MysqlEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlEngine")
            .field("identity", &self.0.state.capabilities.identity)
            .finish_non_exhaustive()
    }
}
