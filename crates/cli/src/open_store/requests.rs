//! Single requests to an open store, which hold no guard.

use std::time::Duration;

use holdline::ReleaseOutcome;
use holdline_core::{
    AuditEntry, AuditPage, AuditRecord, AuditRequest, AuditTrail, Certainty, ErrorKind, LeaseId,
    ListPage, ListRequest, LockError, LockName, Operation, OperationReply, Purpose, RenewReply,
    RenewRequest, Snapshot,
};

use super::OpenStore;
use crate::console::Messages;
use crate::record;

/// How long a single request waits for its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

impl OpenStore {
    /// Returns the holders and the queue of a name.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.client.admin().inspect(name).await.map_err(unchanged)
    }

    /// Lists names.
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.client.admin().list(request).await.map_err(unchanged)
    }

    /// Sends one renewal for a lease id. `Purpose::Wait`, and keeping a live grant, change nothing.
    pub(crate) async fn renew_once(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        purpose: Purpose,
    ) -> Result<RenewReply, LockError> {
        let renewal = RenewRequest {
            name: name.clone(),
            lease_id,
            client: self.client.admin().client_id(),
            purpose,
        };
        let batch = [renewal];
        let replies = self.client.admin().engine().renew(&batch);
        let answer = tokio::time::timeout(ANSWER_LIMIT, replies).await;
        answer.ok().and_then(|replies| replies.into_iter().next()).unwrap_or_else(|| {
            let message = format!("no answer within {ANSWER_LIMIT:?}");
            Err(self.error(ErrorKind::Unavailable { message }).with_name(name))
        })
    }

    /// Carries out an operator's command, and records it in the audit trail.
    pub(crate) async fn operate(
        &self,
        operation: &Operation,
        messages: &dyn Messages,
    ) -> Result<OperationReply, LockError> {
        let reply = self.client.admin().operate(operation).await;
        self.record(operation.audit_record(&record::operator(), &reply), messages).await;
        reply
    }

    /// Records an action. If that fails, the action and its outcome stay as they are.
    async fn record(&self, record: AuditRecord, messages: &dyn Messages) {
        match self.capabilities().audit {
            AuditTrail::Server => {}
            AuditTrail::None => record::in_file(&record, &self.address.url, messages),
            AuditTrail::Store => {
                if let Err(error) = self.client.admin().append_audit(record.clone()).await {
                    let why = format!(" in the audit trail: {error}");
                    messages.warn(&record::not_recorded(&record, why));
                    record::in_file(&record, &self.address.url, messages);
                }
            }
        }
    }

    /// Returns the newest records of the audit trail that `wanted` accepts, the newest first.
    pub(crate) async fn audit(
        &self,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, LockError> {
        self.client.admin().audit(request, wanted).await.map_err(unchanged)
    }

    /// Releases a lease by its id.
    ///
    /// # Errors
    /// The store did not confirm the release. The name is free at the end of the lease at the
    /// latest.
    pub(crate) async fn release_by_id(
        &self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        let outcome = self.client.leases().release_by_id(name, lease_id).await?;
        let ReleaseOutcome::Released { confirmed: false, failure, .. } = outcome else {
            return Ok(outcome);
        };
        let message = || "the store did not confirm the release".to_owned();
        let kind = failure.unwrap_or_else(|| ErrorKind::Unavailable { message: message() });
        let error = LockError::new(self.capabilities().engine, kind, Certainty::Unknown);
        Err(error.with_name(name))
    }
}

/// Says that nothing was changed: a request that only reads has no effect that could be unknown.
fn unchanged(error: LockError) -> LockError {
    error.with_certainty(Certainty::NotApplied)
}
