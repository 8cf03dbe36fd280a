//! A lock without async: for threads, and for programs that have no runtime.
//!
//! ```sh
//! cargo run -p holdline --example blocking
//! ```
//!
//! Without `HOLDLINE_URL` the locks are those of this machine; no server is needed.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use holdline::blocking::Client;

/// Adds one to the number in a file, which several threads and processes do at once.
pub(crate) fn count(client: &Client, file: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let guard = client.mutex("counter")?.lock()?;
    let number: u64 = match fs::read_to_string(file) {
        Ok(text) => text.trim().parse()?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    fs::write(file, format!("{}\n", number + 1))?;
    guard.release().into_result()?;
    Ok(number + 1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let file = std::env::temp_dir().join("holdline-example-counter");
    println!("{} is {} now", file.display(), count(&client, &file)?);
    client.shutdown(Duration::from_secs(5));
    Ok(())
}
