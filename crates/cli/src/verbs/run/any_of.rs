//! `run --any-of A,B,C`: the job runs under whichever of several names is free first.

use clap::Args;
use holdline::{Guard, LockOptions};
use holdline_core::LockName;

use super::Run;
use crate::failure::Failure;
use crate::open_store::TRY_LIMIT;

/// The arguments of `run --any-of`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AnyOfArgs {
    /// Hold the first of these names that is free, in place of NAME; HOLDLINE_NAME is that one. May
    /// be given several times
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["shared", "permits", "once_per"])]
    pub(crate) any_of: Vec<LockName>,
}

impl Run<'_> {
    /// Acquires the first name that is free, or the first that becomes free.
    pub(super) async fn first_free(&self, options: &LockOptions) -> Result<Guard, Failure> {
        let flags = &self.plan.run_only;
        let any_of = self.store.client().any_of_with(&flags.any_of, options);
        let any_of = any_of.map_err(|error| named_twice(error.into()))?;
        let tried =
            tokio::time::timeout(self.store.remaining_wait(TRY_LIMIT), any_of.try_lock()).await;
        let error = match tried {
            Ok(Ok(guard)) => return Ok(guard),
            Ok(Err(error)) => error,
            Err(_) => self.store.no_answer("no answer", TRY_LIMIT),
        };
        if flags.only_try {
            return Err(self.store.failure(error).await);
        }
        if error.is_contended() {
            let names: Vec<String> = any_of.names().iter().map(ToString::to_string).collect();
            self.console.info(&format!("waiting for the first of {}", names.join(", ")));
        }
        match any_of.lock().await {
            Ok(guard) => Ok(guard),
            Err(error) => Err(self.store.failure(error).await),
        }
    }
}

/// Returns the failure with the flag of the names.
fn named_twice(failure: Failure) -> Failure {
    let message = format!("--any-of: {}", failure.message);
    Failure { message, ..failure }
}
