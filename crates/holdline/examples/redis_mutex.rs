//! One task at a time among all processes that reach a Redis or Valkey server. The README shows
//! this program.
//!
//! ```sh
//! cargo run -p holdline --example redis_mutex --features redis
//! ```

use holdline::{Client, FencingToken, LockError};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let client = Client::connect("redis://localhost").await?;
    report(&client).await?;
    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Writes the report, in one process at a time.
pub async fn report(client: &Client) -> Result<(), LockError> {
    // Waits in the queue. The lease is renewed for as long as the guard lives.
    let guard = client.mutex("nightly-report")?.lock().await?;

    // If the lease is lost, the work is dropped at its next await and `run` returns `Lost`.
    guard.run(write_report(guard.fencing_token())).await?;

    guard.release().await.into_result()?;
    Ok(())
}

async fn write_report(fencing_token: FencingToken) {
    println!("writing the report with fencing token {fencing_token}");
}
