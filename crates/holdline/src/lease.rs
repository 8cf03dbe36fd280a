//! Leases as plain data: detached from one process, attached by another.
//!
//! [`Guard::detach`] makes a [`Lease`], which can be stored or sent. [`Leases`] attaches, renews
//! and releases it, in any process with a client of the same store. So a lock can outlive the
//! process that acquired it: from one request to the next, or from one step of a pipeline to
//! another.

use std::sync::Arc;
use std::time::Duration;

pub use holdline_core::ShortLeaseId;
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{
    FencingToken, Hold, HolderFields, LeaseId, LockError, LockName, LostReason, Mode, Moment,
    Purpose, RenewReply, RenewRequest,
};
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::grant::Granted;
use crate::guard::Guard;
use crate::guard::release;
use crate::guard::ticket::Ticket;
use crate::plan::Plan;
use crate::plan::options::{Keep, LockOptions};
use crate::release_outcome::ReleaseOutcome;
use crate::worker::keeper;

/// A lease as plain data: any process that has it can renew and release it.
///
/// Get one from [`Guard::detach`]; use it with [`Leases::attach`], [`Leases::renew`] and
/// [`Leases::release`]. It contains the proof of the grant, so protect it as a secret. It ends
/// after its duration unless somebody renews it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use holdline::{Client, Lease};
///
/// let client = Client::connect("memory:lease").await?;
/// let guard = client.mutex("upload")?.lock().await?;
/// let token = guard.fencing_token();
/// let text = serde_json::to_string(&guard.detach().await?)?;
///
/// // Elsewhere, later:
/// let lease: Lease = serde_json::from_str(&text)?;
/// let guard = client.leases().attach(&lease).await?;
/// assert_eq!(guard.fencing_token(), token);
/// # guard.release().await.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    name: LockName,
    lease_id: LeaseId,
    fencing_token: FencingToken,
    mode: Mode,
    #[serde(rename = "lease_duration_ms", with = "millis")]
    lease_duration: Duration,
    engine: String,
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

impl Lease {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the proof of the grant.
    pub fn lease_id(&self) -> LeaseId {
        self.lease_id
    }

    /// Returns the number to pass to the resource.
    pub fn fencing_token(&self) -> FencingToken {
        self.fencing_token
    }

    /// Returns the mode in which the name is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns how long the store keeps the grant after each renewal.
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// Returns the identity of the store that has the grant.
    pub fn engine(&self) -> &str {
        &self.engine
    }
}

/// The calls for leases that no guard of this process holds. It borrows the client, and is made for
/// one call.
///
/// Get it from [`Client::leases`](crate::Client::leases).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = holdline::Client::connect("memory:leases").await?;
/// let lease = client.mutex("upload")?.lock().await?.detach().await?;
/// // The lease now ends after its duration, unless a program that has it renews it.
/// let left = client.leases().renew(&lease).await?;
/// assert!(left <= lease.lease_duration());
/// client.leases().release(&lease).await?.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Leases<'a> {
    core: &'a Arc<Core>,
}

impl<'a> Leases<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Leases<'a> {
        Leases { core }
    }

    /// Draws a fresh lease id, for [`LockOptions::with_lease_id`].
    pub fn draw_id(self) -> LeaseId {
        self.core.state.entropy.lease_id()
    }

    /// Attaches a detached lease: it is renewed now, and in the background from then on.
    ///
    /// A process that has the [`Lease`] counts as its holder. So only one may attach it: if two do,
    /// both guards are valid.
    ///
    /// # Errors
    /// - `Lost`: the store no longer knows it. Nothing is held.
    /// - `Invalid`: it was granted by another store.
    /// - `Unavailable` and others: if [`LockError::certainty`] is `NotApplied`, the lease is
    ///   unchanged. Otherwise it may have been renewed once, and belong to this process: with the
    ///   engine `local:` it then ends with the process. Attach it again, or release it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease to end after its duration. The request may be carried
    /// out, as after an error of unknown certainty.
    pub async fn attach(self, lease: &Lease) -> Result<Guard, LockError> {
        attach(self.core, lease).await
    }

    /// Renews a detached lease for its whole duration, and returns for how long it is valid.
    ///
    /// # Errors
    /// As [`Leases::attach`].
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the lease may have been renewed.
    pub async fn renew(self, lease: &Lease) -> Result<Duration, LockError> {
        renew(self.core, lease).await
    }

    /// Releases a detached lease.
    ///
    /// # Errors
    /// `Invalid` if the lease does not belong to this engine. If the store does not answer, the
    /// outcome is unconfirmed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the janitor continues the release.
    pub async fn release(self, lease: &Lease) -> Result<ReleaseOutcome, LockError> {
        release_lease(self.core, lease).await
    }

    /// Renews a detached lease by its id, and returns for how long it is valid.
    ///
    /// # Errors
    /// As [`Leases::attach`].
    ///
    /// # Cancel safety
    /// As [`Leases::renew`].
    pub async fn renew_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
        lease_duration: Duration,
    ) -> Result<Duration, LockError> {
        by_id::renew(self.core, name, lease_id, lease_duration).await
    }

    /// Releases a lease by its id. If the answer is lost, the store refuses the id for at least 30
    /// s.
    ///
    /// # Errors
    /// As [`Leases::release`].
    ///
    /// # Cancel safety
    /// As [`Leases::release`].
    pub async fn release_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        by_id::release(self.core, name, lease_id).await
    }

    /// Releases a lease id for good: the store refuses it for at least 30 s, even to a request that
    /// is still on its way. For ids of [`LockOptions::with_kept_lease_id`], under which
    /// several requests may have been sent.
    ///
    /// # Errors
    /// As [`Leases::release`].
    ///
    /// # Cancel safety
    /// As [`Leases::release`].
    pub async fn give_up_by_id(
        self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        by_id::give_up(self.core, name, lease_id).await
    }
}

impl std::fmt::Debug for Leases<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capabilities = self.core.state.engine.capabilities();
        f.debug_struct("Leases").field("identity", &capabilities.identity).finish_non_exhaustive()
    }
}

/// A guard could not be detached, and is returned.
#[derive(Debug)]
pub struct DetachError {
    guard: Box<Guard>,
    error: LockError,
}

impl DetachError {
    /// Returns what went wrong.
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// Returns the guard.
    pub fn into_guard(self) -> Guard {
        *self.guard
    }

    pub(crate) fn into_parts(self) -> (Guard, LockError) {
        (*self.guard, self.error)
    }
}

impl std::fmt::Display for DetachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not detached: {}", self.error)
    }
}

impl std::error::Error for DetachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Guard {
    /// Detaches the lease from this process: it is no longer renewed and ends after its duration.
    /// Any process that has the [`Lease`] can renew or release it.
    ///
    /// # Errors
    /// [`DetachError`] returns the guard: `Unsupported` if the engine cannot detach, `Lost`
    /// if the lease is over, others if the store did not confirm.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:detach").await?;
    /// let guard = client.mutex("upload")?.lock().await?;
    /// let lease = guard.detach().await.map_err(|failure| failure.error().clone())?;
    /// // Elsewhere, in a process that was sent the lease:
    /// let guard = client.leases().attach(&lease).await?;
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn detach(self) -> Result<Lease, DetachError> {
        let lease_duration = self.grant.hold().duration();
        detach_to(self, lease_duration).await
    }
}

/// Detaches a guard's lease from this process, for this long from now, or for the remaining time if
/// that is longer.
pub(crate) async fn detach_for(
    guard: Guard,
    lease_duration: Duration,
) -> Result<Lease, DetachError> {
    detach_to(guard, Some(lease_duration)).await
}

async fn detach_to(guard: Guard, lease_duration: Option<Duration>) -> Result<Lease, DetachError> {
    match detached(&guard, lease_duration).await {
        Ok(lease) => {
            guard.disarm();
            Ok(lease)
        }
        Err(error) => {
            let error = error.with_name(guard.name());
            Err(DetachError { guard: Box::new(guard), error })
        }
    }
}

async fn detached(guard: &Guard, lease_duration: Option<Duration>) -> Result<Lease, LockError> {
    let core = &guard.core;
    let grant = &guard.grant;
    let state = &core.state;
    let plan = &grant.plan;
    let capabilities = state.engine.capabilities();
    if !state.is_own_process() {
        return Err(state.no_answer());
    }
    if guard.is_nested() {
        let message = "a guard of an owner cannot be detached";
        return Err(LockError::invalid(capabilities.engine, "guard", message));
    }
    let Some(lease_duration) = lease_duration else {
        let message = "a live grant belongs to its processes: pass its anchor on instead";
        return Err(LockError::invalid(capabilities.engine, "hold", message));
    };
    let hold = Hold::Detached(lease_duration);
    capabilities.check(plan.mode, hold)?;
    if !guard.is_valid() {
        return Err(state.lost(grant.why_lost()));
    }
    // A lock that was acquired detached is so already, unless its first renewal is to lengthen it.
    if plan.keep != Keep::Detached || guard.grant.is_partial() {
        // From here on the keeper must not renew it with the old purpose.
        grant.pause_renewals();
        keeper::await_idle(state, guard.key(), grant).await;
        let purpose = Purpose::Keep(hold);
        let renewal = RenewRequest { purpose, ..grant.renewal(state.client) };
        let outcome = renewed(core, renewal).await;
        if let Err(error) = outcome {
            grant.resume_renewals();
            keeper::renew_soon(state, guard.key());
            return Err(error);
        }
    }
    Ok(Lease {
        name: plan.name.clone(),
        lease_id: grant.lease_id,
        fencing_token: grant.token,
        mode: plan.mode,
        lease_duration,
        engine: capabilities.identity.clone(),
    })
}

/// Renews one lease by its id. Returns when the request was sent and how long the store keeps the
/// lease.
async fn renewed(
    core: &Core,
    renewal: RenewRequest,
) -> Result<(Moment, Option<Duration>), LockError> {
    let state = &core.state;
    let sent = state.clock.now();
    match state.renew(renewal).await {
        Some(Ok(RenewReply::Renewed { left })) => Ok((sent, left)),
        Some(Ok(RenewReply::Revoked { reason, .. })) => {
            Err(state.lost(LostReason::Revoked(reason)))
        }
        Some(Ok(_)) => Err(state.lost(LostReason::Missing)),
        Some(Err(error)) => Err(error),
        None => Err(state.no_answer()),
    }
}

/// Attaches a lease: it is renewed now, and in the background from then on.
async fn attach(core: &Arc<Core>, lease: &Lease) -> Result<Guard, LockError> {
    core.open()?;
    check_store(core, lease)?;
    let options = LockOptions::default().with_lease_duration(lease.lease_duration);
    let plan = Arc::new(core.plan(&lease.name, lease.mode, &options)?);
    let (sent, left) = by_id::keep(core, &lease.name, lease.lease_id, plan.hold).await?;
    let ticket = Ticket::new(&core.state, &plan, lease.lease_id);
    let granted = Granted {
        lease_id: lease.lease_id,
        token: lease.fencing_token,
        sent,
        since: sent,
        left,
        handed: false,
        anchor: None,
        unsettled: false,
    };
    let guard = Guard::granted(core, ticket, &plan, granted);
    core.state.observe_attached(&guard.grant);
    Ok(guard)
}

/// Checks that this client's store has granted the lease. Another store would report it as lost.
fn check_store(core: &Core, lease: &Lease) -> Result<(), LockError> {
    let capabilities = core.state.engine.capabilities();
    if lease.engine == capabilities.identity {
        return Ok(());
    }
    let message = "it was granted by another store";
    Err(LockError::invalid(capabilities.engine, "lease", message).with_name(&lease.name))
}

/// Renews a detached lease for its whole duration; returns for how long it is valid.
async fn renew(core: &Arc<Core>, lease: &Lease) -> Result<Duration, LockError> {
    check_store(core, lease)?;
    by_id::renew(core, &lease.name, lease.lease_id, lease.lease_duration).await
}

/// Releases a lease.
async fn release_lease(core: &Arc<Core>, lease: &Lease) -> Result<ReleaseOutcome, LockError> {
    check_store(core, lease)?;
    by_id::release(core, &lease.name, lease.lease_id).await
}

/// Detached leases by name and lease id.
mod by_id {
    use super::*;

    /// Renews a lease. Returns when the request was sent and how long the store keeps the lease.
    pub(super) async fn keep(
        core: &Core,
        name: &LockName,
        lease_id: LeaseId,
        hold: Hold,
    ) -> Result<(Moment, Option<Duration>), LockError> {
        let purpose = Purpose::Keep(hold);
        let client = core.state.client;
        let renewal = RenewRequest { name: name.clone(), lease_id, client, purpose };
        renewed(core, renewal).await.map_err(|error| error.with_name(name))
    }

    /// Renews a detached lease; returns for how long it is valid.
    pub(crate) async fn renew(
        core: &Arc<Core>,
        name: &LockName,
        lease_id: LeaseId,
        lease_duration: Duration,
    ) -> Result<Duration, LockError> {
        let plan = plan(core, name, lease_duration)?;
        let (sent, left) = keep(core, name, lease_id, plan.hold).await?;
        let drift = core.state.drift_ppm;
        let until = holdline_core::validity::valid_until(sent, left, drift);
        Ok(core.state.clock.now().until(until))
    }

    /// Releases a lease.
    pub(crate) async fn release(
        core: &Arc<Core>,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        end(core, name, lease_id, false).await
    }

    /// Releases a lease id for good.
    pub(crate) async fn give_up(
        core: &Arc<Core>,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        end(core, name, lease_id, true).await
    }

    async fn end(
        core: &Arc<Core>,
        name: &LockName,
        lease_id: LeaseId,
        for_good: bool,
    ) -> Result<ReleaseOutcome, LockError> {
        // The mode has no effect here, and every engine accepts this one.
        let range = core.state.engine.capabilities().lease;
        let plan = plan(core, name, DEFAULT_LEASE.clamp(range.min, range.max))?;
        let since = core.state.clock.now();
        let request = plan.ending(None, lease_id, for_good);
        Ok(release::release(&core.state, &plan, &request, since).await)
    }

    fn plan(core: &Core, name: &LockName, lease: Duration) -> Result<Plan, LockError> {
        // These requests carry no metadata, so none is encoded for them.
        let options = LockOptions::default()
            .with_lease_duration(lease)
            .with_keep(Keep::Detached)
            .with_holder(HolderFields::default());
        core.plan(name, Mode::Exclusive, &options)
    }
}
