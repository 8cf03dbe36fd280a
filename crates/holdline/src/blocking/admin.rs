//! What a client does besides locks, without async: operators' commands, and detached leases.

use std::time::Duration;

use holdline_core::{
    AuditEntry, AuditPage, AuditRecord, AuditRequest, ClientId, LeaseId, ListPage, ListRequest,
    LockError, LockName, Operation, OperationReply, Snapshot,
};

use super::guard::Guard;
use crate::lease::Lease;
use crate::parker::block_on;
use crate::release_outcome::ReleaseOutcome;
use crate::{admin, lease};

/// As [`admin::Admin`], without async.
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a>(pub(super) admin::Admin<'a>);

impl Admin<'_> {
    /// As [`admin::Admin::inspect`].
    ///
    /// # Errors
    /// As [`admin::Admin::inspect`].
    pub fn inspect(self, name: &LockName) -> Result<Snapshot, LockError> {
        block_on(self.0.inspect(name))
    }

    /// As [`admin::Admin::list`].
    ///
    /// # Errors
    /// As [`admin::Admin::list`].
    pub fn list(self, request: &ListRequest) -> Result<ListPage, LockError> {
        block_on(self.0.list(request))
    }

    /// As [`admin::Admin::operate`].
    ///
    /// # Errors
    /// As [`admin::Admin::operate`].
    pub fn operate(self, operation: &Operation) -> Result<OperationReply, LockError> {
        block_on(self.0.operate(operation))
    }

    /// As [`admin::Admin::append_audit`].
    ///
    /// # Errors
    /// As [`admin::Admin::append_audit`].
    pub fn append_audit(self, record: AuditRecord) -> Result<(), LockError> {
        block_on(self.0.append_audit(record))
    }

    /// As [`admin::Admin::audit`].
    ///
    /// # Errors
    /// As [`admin::Admin::audit`].
    pub fn audit(
        self,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, LockError> {
        block_on(self.0.audit(request, wanted))
    }

    /// As [`admin::Admin::client_id`].
    pub fn client_id(self) -> ClientId {
        self.0.client_id()
    }
}

/// As [`lease::Leases`], without async.
#[derive(Clone, Copy, Debug)]
pub struct Leases<'a>(pub(super) lease::Leases<'a>);

impl Leases<'_> {
    /// As [`lease::Leases::draw_id`].
    pub fn draw_id(self) -> LeaseId {
        self.0.draw_id()
    }

    /// As [`lease::Leases::attach`].
    ///
    /// # Errors
    /// As [`lease::Leases::attach`].
    pub fn attach(self, lease: &Lease) -> Result<Guard, LockError> {
        block_on(self.0.attach(lease)).map(Guard)
    }

    /// As [`lease::Leases::renew`].
    ///
    /// # Errors
    /// As [`lease::Leases::renew`].
    pub fn renew(self, lease: &Lease) -> Result<Duration, LockError> {
        block_on(self.0.renew(lease))
    }

    /// As [`lease::Leases::release`].
    ///
    /// # Errors
    /// As [`lease::Leases::release`].
    pub fn release(self, lease: &Lease) -> Result<ReleaseOutcome, LockError> {
        block_on(self.0.release(lease))
    }

    /// As [`lease::Leases::renew_by_id`].
    ///
    /// # Errors
    /// As [`lease::Leases::renew_by_id`].
    pub fn renew_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
        lease_duration: Duration,
    ) -> Result<Duration, LockError> {
        block_on(self.0.renew_by_id(name, lease_id, lease_duration))
    }

    /// As [`lease::Leases::release_by_id`].
    ///
    /// # Errors
    /// As [`lease::Leases::release_by_id`].
    pub fn release_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        block_on(self.0.release_by_id(name, lease_id))
    }

    /// As [`lease::Leases::give_up_by_id`].
    ///
    /// # Errors
    /// As [`lease::Leases::give_up_by_id`].
    pub fn give_up_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        block_on(self.0.give_up_by_id(name, lease_id))
    }
}
