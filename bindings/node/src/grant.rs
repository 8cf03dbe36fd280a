//! Grants.

use holdline::clock::Moment;
use holdline_bindings::words::{Reason, Release};
use napi::Result;
use napi::bindgen_prelude::{BigInt, Unknown};
use napi_derive::napi;
use serde_json::{Value, json};

use crate::operation::Operation;
use crate::options;
use crate::settled::{Grant, Settled, millis, reason, since_1970};

/// A release, as JSON.
pub(crate) fn release(release: Release) -> Settled {
    Settled::json(json!({
        "confirmed": release.confirmed,
        "heldFor": release.held_for.map(millis),
        "lost": release.lost.as_ref().map(reason),
        "failure": release.failure,
    }))
}

fn settled(why: &Reason) -> Settled {
    Settled::json(reason(why))
}

#[napi]
impl Grant {
    /// The lock name.
    #[napi(getter)]
    pub fn name(&self) -> &str {
        self.0.held().name().as_str()
    }

    /// The proof of the grant, in full.
    #[napi(getter)]
    pub fn lease_id(&self) -> String {
        self.0.held().lease_id().to_hex()
    }

    /// The mode's word.
    #[napi(getter)]
    pub fn mode(&self) -> &'static str {
        self.0.held().mode().word()
    }

    /// The fencing token.
    #[napi(getter)]
    pub fn fencing_token(&self) -> BigInt {
        BigInt::from(self.0.held().fencing_token().get())
    }

    /// Whether the lease is valid.
    #[napi(getter)]
    pub fn is_valid(&self) -> bool {
        self.0.held().is_valid()
    }

    /// Milliseconds that the lease is still valid; infinite for a live grant.
    #[napi(getter)]
    pub fn remaining(&self) -> f64 {
        if self.0.held().valid_until() == Moment::NEVER {
            return f64::INFINITY;
        }
        millis(self.0.held().remaining())
    }

    /// When the slot began, in milliseconds since 1970, for a job that runs once per slot.
    #[napi(getter)]
    pub fn slot_start(&self) -> Option<f64> {
        self.0.slot_start().map(since_1970)
    }

    /// Resolves when the lease is lost or was released.
    #[napi]
    pub fn lost(&self) -> Operation {
        let lost = self.0.lost();
        Operation::sure(async move { settled(&lost.await) })
    }

    /// Resolves when the lease is at risk or lost, or was released.
    #[napi]
    pub fn at_risk(&self) -> Operation {
        let at_risk = self.0.at_risk();
        Operation::sure(async move { settled(&at_risk.await) })
    }

    /// Renews the lease now, for this duration if there is one.
    ///
    /// # Errors
    /// The value cannot be read.
    #[napi]
    pub fn renew(&self, lease_duration: Option<Unknown<'_>>) -> Result<Operation> {
        let settled = |left| Settled::json(millis(left));
        let Some(duration) = lease_duration.map(options::Value::of).transpose()? else {
            return Ok(Operation::new(self.0.renew(), settled));
        };
        let duration = options::time("lease_duration", &duration);
        Ok(Operation::checked(
            duration.map(|duration| Operation::new(self.0.renew_for(duration), settled)),
        ))
    }

    /// Releases the name.
    #[napi]
    pub fn release(&self) -> Operation {
        Operation::new(self.0.release(), |outcome| match outcome {
            Some(outcome) => release(outcome.into()),
            None => release(Release { confirmed: true, held_for: None, lost: None, failure: None }),
        })
    }

    /// Gives the lease out of this process.
    #[napi]
    pub fn detach(&self) -> Operation {
        Operation::new(self.0.detach(), |lease| Settled::json(json!(lease)))
    }

    /// Stores the value of a leadership that observers see.
    #[napi]
    pub fn proclaim(&self, value: String) -> Operation {
        Operation::new(self.0.proclaim(value), |()| Settled::json(Value::Null))
    }

    /// Keeps the slot until its end: the job is done.
    #[napi]
    pub fn finish(&self) -> Operation {
        Operation::new(self.0.finish(), |()| Settled::json(Value::Null))
    }

    /// Ends a job that has failed.
    #[napi]
    pub fn fail(&self) -> Operation {
        Operation::new(self.0.fail(), Settled::json)
    }
}
