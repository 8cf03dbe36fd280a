//! The checks of `doctor` for a server. Nothing is written.

use holdline_core::{Checkup, Finding, LockError, LockName};
use holdline_net::executor::Executor;

use crate::error::ENGINE;
use crate::options::HttpOptions;
use crate::store::Store;

const REACHABLE: &str = "without an answer no lock can be acquired, and held leases expire";
const STORE: &str = "the server keeps no locks itself: it needs its store for every request";
const TLS: &str = "who reads the network reads tokens and lease ids, which are proofs";
/// A name to look at; nobody need hold it.
const ANY_NAME: &str = "doctor";

/// Checks the server of these options.
///
/// # Errors
/// `Invalid`: an option is wrong. Every other fault is a finding.
pub async fn checkup(options: &HttpOptions) -> Result<Checkup, LockError> {
    options.validate()?;
    let options = options.clone();
    Executor::process_wide(ENGINE)?.run(async move { check(&options).await }).await
}

async fn check(options: &HttpOptions) -> Checkup {
    let mut checkup = Checkup::new(ENGINE);
    checkup.add(match (&options.tls, options.place.is_here()) {
        (Some(_), _) => Finding::ok("encryption", TLS, "TLS"),
        (None, true) => Finding::ok("encryption", TLS, "none, on this machine"),
        (None, false) => Finding::ok("encryption", TLS, "none").warn("use `https://`"),
    });
    let store = match Store::connect(options).await {
        Ok(store) => store,
        Err(error) => {
            let fix = "start `holdline serve` there, or correct the URL and the token";
            checkup.add(Finding::ok("reachable", REACHABLE, error.to_string()).fail(fix));
            return checkup;
        }
    };
    checkup.add(Finding::ok("reachable", REACHABLE, options.place.to_string()));
    let looked = match LockName::new(ANY_NAME) {
        Ok(name) => store.inspect(&name).await.map(|_| ()),
        Err(_) => Ok(()),
    };
    checkup.add(match looked {
        Ok(()) => Finding::ok("store", STORE, "answers"),
        Err(error) => {
            let fix = "run `holdline doctor` on the server's machine, and look into its log";
            Finding::ok("store", STORE, error.to_string()).fail(fix)
        }
    });
    checkup
}
