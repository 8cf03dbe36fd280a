//! Server programs from the system.

use crate::Failure;
use std::path::PathBuf;

/// Where a program of the system lies: what `variable` names, or the first on the search path.
pub(crate) fn of_system(program: &str, package: &str, variable: &str) -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(variable).map(PathBuf::from) {
        let says = || format!("{variable} names {}, which is no file", named.display());
        return if named.is_file() { Ok(named) } else { Err(Failure::new(says())) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            Failure::new(format!(
                "`{program}` is missing. Install the Debian package {package} (`./check` does), \
                 or name the program in {variable}"
            ))
        })
}
