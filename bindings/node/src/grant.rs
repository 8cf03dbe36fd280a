//! Grants: what an event loop does with one, by its number.

use std::sync::Arc;

use holdline::clock::Moment;
use holdline::{Certainty, ErrorKind, LockError, LostReason};
use holdline_bindings::Grant;
use holdline_bindings::options::Mistake;
use holdline_bindings::words::Release;
use napi::Result;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use serde_json::{Value, json};

use crate::event_loop::{EventLoop, Started};
use crate::options;
use crate::settled::{Outcome, millis};

impl EventLoop {
    /// Starts a request about a grant, unless it has ended.
    fn about(&self, grant: Option<Arc<Grant>>, start: impl FnOnce(&Grant) -> Started) -> Started {
        let grant = grant.ok_or_else(|| {
            let kind = ErrorKind::Lost { reason: LostReason::Released };
            Mistake::Value(LockError::new("holdline", kind, Certainty::NotApplied))
        });
        self.checked(grant, |grant| start(&grant))
    }
}

#[napi]
impl EventLoop {
    /// Whether the lease is valid.
    #[napi]
    pub fn is_valid(&self, id: u32) -> bool {
        self.grant(id).is_some_and(|grant| grant.held().is_valid())
    }

    /// Milliseconds that the lease is still valid; infinite for a live grant.
    #[napi]
    pub fn remaining(&self, id: u32) -> f64 {
        match self.grant(id) {
            None => 0.0,
            Some(grant) if grant.held().valid_until() == Moment::NEVER => f64::INFINITY,
            Some(grant) => millis(grant.held().remaining()),
        }
    }

    /// Resolves when the lease is lost or was released.
    #[napi]
    pub fn lost(&self, id: u32) -> Started {
        self.about(self.grant(id), |grant| {
            let lost = grant.lost();
            self.drive(async move { Outcome::Reason(lost.await) })
        })
    }

    /// Resolves when the lease is at risk or lost, or was released.
    #[napi]
    pub fn at_risk(&self, id: u32) -> Started {
        self.about(self.grant(id), |grant| {
            let at_risk = grant.at_risk();
            self.drive(async move { Outcome::Reason(at_risk.await) })
        })
    }

    /// Renews the lease now, for this duration if there is one.
    ///
    /// # Errors
    /// The value cannot be read.
    #[napi]
    pub fn renew(&self, id: u32, lease_duration: Option<Unknown<'_>>) -> Result<Started> {
        Ok(self.checked(options::lease_duration(lease_duration)?, |duration| {
            self.about(self.grant(id), |grant| {
                let renewed = |left| Outcome::Data(json!(millis(left)));
                match duration {
                    None => self.start(grant.renew(), renewed),
                    Some(duration) => self.start(grant.renew_for(duration), renewed),
                }
            })
        }))
    }

    /// Releases the name.
    #[napi]
    pub fn release(&self, id: u32) -> Started {
        self.about(self.remove(id), |grant| {
            self.start(grant.release(), |outcome| {
                let nothing =
                    Release { confirmed: true, held_for: None, lost: None, failure: None };
                Outcome::Released(outcome.map_or(nothing, Release::from))
            })
        })
    }

    /// Gives the lease out of this process.
    #[napi]
    pub fn detach(&self, id: u32) -> Started {
        self.about(self.grant(id), |grant| {
            self.start(grant.detach(), |lease| Outcome::Data(json!(lease)))
        })
    }

    /// Stores the value of a leadership that observers see.
    #[napi]
    pub fn proclaim(&self, id: u32, value: String) -> Started {
        self.about(self.grant(id), |grant| {
            self.start(grant.proclaim(value), |()| Outcome::Data(Value::Null))
        })
    }

    /// Keeps the slot until its end: the job is done.
    #[napi]
    pub fn finish(&self, id: u32) -> Started {
        self.about(self.remove(id), |grant| {
            self.start(grant.finish(), |()| Outcome::Data(Value::Null))
        })
    }

    /// Ends a job that has failed.
    #[napi]
    pub fn fail(&self, id: u32) -> Started {
        self.about(self.remove(id), |grant| {
            self.start(grant.fail(), |is_kept| Outcome::Data(json!(is_kept)))
        })
    }
}
