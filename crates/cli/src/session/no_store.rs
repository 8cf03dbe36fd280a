//! A local store that does not exist yet.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{Capabilities, Escaped};
use holdline_local::LocalOptions;

use super::url_failure;
use crate::config::Address;
use crate::failure::Failure;

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
}

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.to_string_lossy();
        write!(f, "there is no store yet in {}: nobody has locked there", Escaped(&directory))
    }
}
