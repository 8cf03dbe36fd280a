//! A local store that does not exist yet.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::{Capabilities, Escaped};
use holdline_local::LocalOptions;

use super::url_failure;
use crate::config::Address;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// How often to look whether there is a store by now.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A local store that does not exist yet, because nobody has locked in its directory.
pub(crate) struct NoStore {
    directory: PathBuf,
    /// The capabilities that the engine will have.
    pub(crate) capabilities: Capabilities,
}

impl NoStore {
    /// Returns `Some` if the store of an address does not exist yet. A verb that only reads must
    /// not create it: a misspelt directory would exist from then on and look correct.
    pub(crate) fn at(address: &Address) -> Result<Option<NoStore>, Failure> {
        if !address.url.starts_with("local:") {
            return Ok(None);
        }
        let options = LocalOptions::from_url(&address.url).map_err(url_failure)?;
        if options.is_made()? {
            return Ok(None);
        }
        let directory = options.directory()?;
        let capabilities = options.capabilities();
        Ok(Some(NoStore { directory, capabilities }))
    }

    /// Waits until the store of an address exists, and reports the wait.
    pub(crate) async fn until_made(address: &Address, console: &Console) -> Result<(), Failure> {
        let mut reported = false;
        while let Some(no_store) = NoStore::at(address)? {
            if !std::mem::replace(&mut reported, true) {
                console.info(&no_store.to_string());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// Reports that there is no store, beside what a verb makes of that. A wrong command line has
    /// nothing to do with it.
    pub(crate) fn answered(&self, outcome: Outcome, console: &Console) -> Outcome {
        if !outcome.as_ref().is_err_and(|failure| failure.exit == Exit::Usage) {
            console.info(&self.to_string());
        }
        outcome
    }
}

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.to_string_lossy();
        write!(f, "there is no store yet in {}: nobody has locked there", Escaped(&directory))
    }
}
