//! The audit trail: each operator's action, with who and from where.
//!
//! - T1: a record is made where the action is carried out, so the API, the pages beside it and the
//!   engine protocol have one record for each action.
//! - T2: an action goes on, is recorded and is an event also when its client has left.
//! - T3: a record that the store does not keep goes to the file `audit_file`. If that fails too,
//!   the log says so and a metric counts it; the action's answer never changes.
//! - T4: a request that lacks the right is no action. It is not recorded: a client that may do
//!   nothing must not be able to fill the trail.

use std::sync::Arc;

use axum::extract::State;
use holdline::audit::AuditFile;
use holdline_core::audit::MAX_PAGE;
use holdline_core::{
    AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest, AuditTrail, Certainty,
    ErrorKind, FencingToken, LockError, Operation, OperationReply,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::config::{ConfigError, ServerConfig};
use crate::identity::Identity;
use crate::input::Parameters;
use crate::json::Json;
use crate::operators::event_of;
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;

/// The end of the year 9999, in Unix milliseconds.
const LAST_MS: u64 = 253_402_300_799_999;

impl App {
    /// Carries out an operator's command, records it, and publishes its event. The caller has
    /// checked the right.
    pub(crate) async fn operate(
        &self,
        identity: &Identity,
        operation: Operation,
    ) -> Result<OperationReply, LockError> {
        let app = self.clone();
        let identity = identity.clone();
        let carried_out = tokio::spawn(async move {
            let reply = app.client.admin().operate(&operation).await;
            if !app.record(operation.audit_record(&identity.operator(), &reply)).await {
                app.metrics.unrecorded(&app.store);
            }
            let has_changed = !matches!(reply, Err(_) | Ok(OperationReply::NothingThere));
            if let Some(event) = event_of(&operation).filter(|_| has_changed) {
                app.events.publish(event.by(&identity));
            }
            reply
        });
        carried_out.await.unwrap_or_else(|_| {
            let message = "the command panicked".to_owned();
            let engine = self.client.capabilities().engine;
            Err(LockError::new(engine, ErrorKind::Protocol { message }, Certainty::Unknown))
        })
    }

    /// Returns whether the store or the file keeps the record.
    async fn record(&self, record: AuditRecord) -> bool {
        let trail = self.client.capabilities().audit;
        if trail == AuditTrail::Store {
            match self.client.admin().append_audit(record.clone()).await {
                Ok(()) => return true,
                Err(error) => tracing::warn!(%error, ?record, "the store has not kept a record"),
            }
        }
        let Some(file) = self.audit_file.read().clone() else {
            if trail == AuditTrail::None {
                tracing::warn!(?record, "neither the store nor a file keeps this record");
            }
            return false;
        };
        let store = self.store.clone();
        let written = tokio::task::spawn_blocking(move || {
            let written = file.append(&store, &record);
            written.inspect_err(|error| {
                tracing::error!(%error, ?record, "the audit file has not kept a record");
            })
        });
        // The failure is in the log, and a panic is there too.
        matches!(written.await, Ok(Ok(())))
    }

    /// Returns records about names that somebody may operate on, the newest first.
    pub(crate) async fn audit(
        &self,
        identity: &Identity,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, Problem> {
        identity.may(Right::Operate)?;
        let may_see = |entry: &AuditEntry| {
            let name = entry.record.name.as_ref();
            identity.covers(name.map_or("", |name| name.as_str())) && wanted(entry)
        };
        let request = AuditRequest { limit: request.limit(), ..*request };
        Ok(self.client.admin().audit(&request, may_see).await?)
    }
}

/// Opens the file of the settings, if they name one.
pub(crate) fn open_file(config: &ServerConfig) -> Result<Option<Arc<AuditFile>>, ConfigError> {
    let opened = config.audit_file.as_ref().map(|path| {
        let failed =
            |error| ConfigError::new(format_args!("audit_file: {}: {error}", path.display()));
        AuditFile::open(path).map(Arc::new).map_err(failed)
    });
    opened.transpose()
}

/// Which records to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParameters {
    /// Only records of this time or later, in Unix milliseconds.
    #[param(minimum = 0, maximum = 253_402_300_799_999_u64)]
    #[serde(default)]
    since_ms: u64,
    /// Only records before this one: the `before` of the last page.
    #[param(pattern = "^[0-9]{1,19}-[0-9]{1,19}$")]
    before: Option<String>,
    /// How many records to return at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Some records, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditBody {
    records: Vec<AuditRecordBody>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
}

/// One action of an operator.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRecordBody {
    id: String,
    /// When it was recorded, in Unix milliseconds: by the store's clock, where it has one.
    at_ms: u64,
    /// What was done.
    action: String,
    /// The user, or the name of the token.
    who: String,
    /// The machine and the process, or the address.
    from: String,
    /// The lock name; absent for an action on the whole store.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The fencing token that the action named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    fencing_token: Option<FencingToken>,
    /// Why.
    reason: String,
    outcome: AuditOutcome,
    /// The error of an action that was refused or whose outcome is unknown.
    detail: String,
}

impl AuditRecordBody {
    fn of(entry: AuditEntry) -> AuditRecordBody {
        let AuditEntry { id, record } = entry;
        AuditRecordBody {
            id: id.to_string(),
            at_ms: id.at_ms,
            action: record.action,
            who: record.who,
            from: record.from,
            name: record.name.map(|name| name.as_str().to_owned()),
            fencing_token: record.fencing_token,
            reason: record.reason,
            outcome: record.outcome,
            detail: record.detail,
        }
    }
}

/// Lists what operators did, the newest first. It needs the right `operate`, and shows the names
/// for which it is given.
#[utoipa::path(
    get, path = "/v1/audit", tag = "operators", operation_id = "list_audit",
    params(AuditParameters),
    responses(
        (status = 200, body = AuditBody, description = "One page"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    identity: Identity,
    Parameters(parameters): Parameters<AuditParameters>,
) -> Result<Json<AuditBody>, Problem> {
    let before = parameters.before.as_deref().map(|text| {
        let is_short = text.split('-').all(|number| number.len() <= 19);
        let read = text.parse::<AuditId>().ok().filter(|_| is_short);
        read.ok_or_else(|| Problem::invalid("before", "must be the `before` of an earlier page"))
    });
    let before = before.transpose()?;
    let limit = parameters.limit.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::invalid("limit", format!("must be from 1 to {MAX_PAGE}")));
    }
    if parameters.since_ms > LAST_MS {
        return Err(Problem::invalid("since_ms", format!("must be at most {LAST_MS}")));
    }
    let request = AuditRequest { since_ms: parameters.since_ms, before, limit };
    let page = app.audit(&identity, &request, |_| true).await?;
    let before = page.before.map(|before| before.to_string());
    let records = page.entries.into_iter().map(AuditRecordBody::of).collect();
    Ok(Json(AuditBody { records, before }))
}
