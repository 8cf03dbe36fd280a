//! A lock's description after all checks; every attempt and grant of it shares the plan.

pub(crate) mod leftovers;
pub(crate) mod options;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{
    Capabilities, Ending, Hold, HolderFields, LeaseId, LeaseTerms, LockError, LockKind, LockName,
    Metadata, Mode, ReleaseRequest, lease, renewal, validity,
};

use crate::observer::Subject;
use crate::observer::class::{Class, Classes};
use leftovers::Leftovers;
use options::{Keep, LockOptions, MAX_VALUE_BYTES, OnLost};

/// A lock's description, checked.
pub(crate) struct Plan {
    pub(crate) name: LockName,
    pub(crate) engine: &'static str,
    pub(crate) class: Arc<Class>,
    pub(crate) mode: Mode,
    pub(crate) kind: LockKind,
    /// How the grant is kept after its first renewal.
    pub(crate) hold: Hold,
    pub(crate) terms: LeaseTerms,
    pub(crate) keep: Keep,
    /// How long to wait; `None` for ever.
    pub(crate) wait: Option<Duration>,
    /// Contenders queue in the store.
    pub(crate) queues: bool,
    /// A store of which no server answers ends the attempt before its limit.
    pub(crate) fails_in_outage: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) metadata: Metadata,
    pub(crate) lease_id: Option<LeaseId>,
    /// Counts what the janitor releases of an acquisition of several names.
    pub(crate) leftovers: Option<Arc<Leftovers>>,
    /// The caller has chosen the id, and only the caller releases it.
    pub(crate) keeps_id: bool,
    /// How long a new grant needs no check ([`renewal::first_look`]).
    pub(crate) first_look: Duration,
    /// The first lease, and its validity if the store reports it whole; computed once for all
    /// grants.
    pub(crate) first_lease: Option<(Duration, Duration)>,
}

/// What a client gives to the plans of its locks.
pub(crate) struct Defaults<'a> {
    pub(crate) capabilities: &'a Capabilities,
    pub(crate) holder: &'a HolderFields,
    pub(crate) lease_duration: Duration,
    pub(crate) drift_ppm: u32,
    pub(crate) classes: &'a Classes,
}

impl Plan {
    /// Checks name, mode and options against each other and against the engine.
    pub(crate) fn new(
        defaults: &Defaults<'_>,
        name: impl AsRef<str>,
        mode: Mode,
        options: &LockOptions,
    ) -> Result<Plan, LockError> {
        let capabilities = defaults.capabilities;
        let engine = capabilities.engine;
        let name =
            LockName::new(name).map_err(|error| LockError::invalid(engine, "name", error))?;
        let lease_duration = options.lease_duration.unwrap_or(defaults.lease_duration);
        let terms = LeaseTerms::new(lease_duration, options.renew_interval, defaults.drift_ppm)
            .map_err(|error| LockError::invalid(engine, field_of(&error), error))?;
        let hold = match options.keep {
            Keep::Renewed | Keep::Fixed => Hold::Leased(lease_duration),
            Keep::Detached => Hold::Detached(lease_duration),
            Keep::Live => Hold::Live,
        };
        check(capabilities, mode, hold, options).map_err(|error| error.with_name(&name))?;
        let metadata = metadata(engine, &fields(defaults.holder, options, hold))?;
        let renews = matches!(options.keep, Keep::Renewed | Keep::Live);
        let first = hold.first().duration();
        Ok(Plan {
            class: defaults.classes.of(&name, options.about.class.as_deref()),
            engine,
            name,
            mode,
            kind: LockKind::Mutex,
            hold,
            first_look: renewal::first_look(&terms, renews),
            first_lease: first
                .map(|first| (first, validity::validity_time(first, terms.drift_ppm()))),
            terms,
            keep: options.keep,
            wait: options.waiting.limit,
            fails_in_outage: options.waiting.fails_in_outage,
            queues: capabilities.queue
                || (options.waiting.fair && capabilities.may_queue(mode, LockKind::Mutex)),
            max_hold: options.max_hold,
            on_lost: options.on_lost,
            metadata,
            lease_id: options.lease_id.map(|chosen| chosen.id),
            keeps_id: options.lease_id.is_some_and(|chosen| chosen.kept),
            leftovers: None,
        })
    }

    /// Makes it a plan of a read/write lock.
    pub(crate) fn of_read_write(mut self) -> Plan {
        self.kind = LockKind::ReadWrite;
        self
    }

    /// Returns what observers learn an attempt or a grant of this plan by.
    pub(crate) fn subject(&self, lease_id: LeaseId) -> Subject<'_> {
        Subject {
            name: &self.name,
            lease_id: lease_id.short(),
            mode: self.mode,
            engine: self.engine,
            class: &self.class,
        }
    }

    /// Returns whether the keeper renews grants of this plan.
    pub(crate) fn renews(&self) -> bool {
        matches!(self.keep, Keep::Renewed | Keep::Live)
    }

    /// Returns the hold of its grants with another duration.
    ///
    /// # Errors
    /// `Invalid`: no lease has this duration, or a grant of this plan has none. `Unsupported`: the
    /// engine has no such lease.
    pub(crate) fn lasting(
        &self,
        capabilities: &Capabilities,
        lease_duration: Duration,
    ) -> Result<Hold, LockError> {
        if self.hold == Hold::Live {
            let message = "a live grant has no duration: it lasts as long as its processes";
            return Err(LockError::invalid(self.engine, "lease_duration", message));
        }
        LeaseTerms::new(lease_duration, None, self.terms.drift_ppm())
            .map_err(|error| LockError::invalid(self.engine, field_of(&error), error))?;
        let hold = self.hold.lasting(lease_duration);
        capabilities.check(self.mode, hold)?;
        Ok(hold)
    }

    /// Makes the request that releases a lease id, and reuses a copy of the name.
    pub(crate) fn ending(
        &self,
        name: Option<LockName>,
        lease_id: LeaseId,
        for_good: bool,
    ) -> ReleaseRequest {
        let ending = Ending { for_good, hold: self.hold };
        ReleaseRequest { name: name.unwrap_or_else(|| self.name.clone()), lease_id, ending }
    }
}

fn check(
    capabilities: &Capabilities,
    mode: Mode,
    hold: Hold,
    options: &LockOptions,
) -> Result<(), LockError> {
    let engine = capabilities.engine;
    capabilities.check(mode, hold)?;
    if options.waiting.fair {
        capabilities.check_fair(mode)?;
    }
    let fixed = !matches!(options.keep, Keep::Renewed | Keep::Live);
    if fixed && options.renew_interval.is_some() {
        let message = "a lease that is not renewed has no renew interval";
        return Err(LockError::invalid(engine, "renew_interval", message));
    }
    if let Some(max_hold) = options.max_hold
        && (max_hold.is_zero() || max_hold > lease::MAX_LEASE)
    {
        let message = format_args!("must be above 0 and at most 24h, not {max_hold:?}");
        return Err(LockError::invalid(engine, "max_hold", message));
    }
    Ok(())
}

fn field_of(error: &lease::TermsError) -> &'static str {
    match error {
        lease::TermsError::LeaseDuration(_) => "lease_duration",
        lease::TermsError::RenewInterval { .. } => "renew_interval",
        lease::TermsError::Drift(_) => "drift",
    }
}

/// Encodes what a holder reports about itself.
fn metadata(engine: &'static str, fields: &HolderFields) -> Result<Metadata, LockError> {
    let value = fields.value.len();
    if value > MAX_VALUE_BYTES {
        let message = format_args!("may have {MAX_VALUE_BYTES} bytes, this one has {value}");
        return Err(LockError::invalid(engine, "value", message));
    }
    Metadata::new(fields).map_err(|error| match value {
        0 => LockError::invalid(engine, "metadata", error),
        _ => LockError::invalid(
            engine,
            "value",
            format_args!(
                "value, reason, labels and the rest of the holder's metadata may have {} bytes \
                 together, these have {}: shorten the value",
                holdline_core::metadata::MAX_METADATA_BYTES,
                error.bytes,
            ),
        ),
    })
}

fn fields(base: &HolderFields, options: &LockOptions, hold: Hold) -> HolderFields {
    let about = &options.about;
    let mut fields = about.holder.as_ref().unwrap_or(base).clone();
    if let Hold::Detached(lease) = hold {
        fields.lease_duration_ms = u64::try_from(lease.as_millis()).ok();
    }
    if !about.reason.is_empty() {
        fields.reason.clone_from(&about.reason);
    }
    if !about.traceparent.is_empty() {
        fields.traceparent.clone_from(&about.traceparent);
    }
    fields.value.clone_from(&about.value);
    fields.labels.extend(about.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    fields
}
