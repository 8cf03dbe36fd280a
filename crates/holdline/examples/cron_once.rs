//! A job that cron starts on every machine, and that one machine does in each hour.
//!
//! ```sh
//! # crontab, on each machine: 0 * * * *  HOLDLINE_URL=redis://locks.example cron_once
//! cargo run -p holdline --example cron_once --features redis
//! ```
//!
//! When the job is done, its slot stays taken until the hour is over. So a machine whose clock is
//! late, or that starts the job again, does not run it. When the job fails or its machine dies,
//! another machine may run it. `docs/once-per-slot.md` says what is promised.

use std::error::Error;
use std::time::Duration;

use holdline::once::{OnceOutcome, Slot};
use holdline::{Client, LockError};

/// Runs `job` unless another machine does or did in the same slot.
pub(crate) async fn report<E>(
    client: &Client,
    slot: Slot,
    job: impl AsyncFn() -> Result<(), E>,
) -> Result<OnceOutcome<(), E>, LockError> {
    client.once("report", slot)?.run(async |_lock| job().await).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::from_env().await?;
    let hourly = Slot::every(Duration::from_secs(3600));
    let job = async || {
        println!("writing the report");
        Ok::<(), std::io::Error>(())
    };
    match report(&client, hourly, job).await? {
        OnceOutcome::Ran(()) => println!("done here"),
        OnceOutcome::AlreadyRan(taken) => println!("done by {}", taken.by().host),
        OnceOutcome::RunningElsewhere(taken) => println!("{} is doing it", taken.by().host),
        OnceOutcome::Failed(error) => return Err(error.into()),
        other => println!("{other:?}"),
    }
    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
