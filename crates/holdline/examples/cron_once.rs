//! A job that cron starts on every machine, and that one machine does in each period.
//!
//! ```sh
//! # crontab, on each machine: 0 * * * *  HOLDLINE_URL=redis://locks.example cron_once
//! cargo run -p holdline --example cron_once --features redis
//! ```
//!
//! The lock name contains the number of the period. When the job is done, the lease is not
//! released but detached: it keeps the name until it ends. So a machine whose clock is late, or
//! that starts the job again, is refused. When the job fails, the lock is released, and another
//! machine may try.

use std::error::Error;
use std::time::{Duration, SystemTime};

use holdline::{Client, ErrorKind, LockOptions};

const PERIOD: Duration = Duration::from_secs(3600);

/// What this machine did in the period.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The job ran here.
    Done,
    /// Another machine runs it, or has run it.
    Taken,
}

/// Runs `job` unless another machine does or did in the same `period`.
pub(crate) async fn once(
    client: &Client,
    period: u64,
    job: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> Result<Slot, Box<dyn Error>> {
    let whole = LockOptions::default().with_lease_duration(PERIOD);
    let slot = client.mutex_with(format!("report/{period}"), &whole)?;
    let guard = match slot.try_lock().await {
        Ok(guard) => guard,
        Err(busy) if matches!(busy.kind(), ErrorKind::Busy { .. }) => return Ok(Slot::Taken),
        Err(error) => return Err(error.into()),
    };
    match guard.run(job).await? {
        Ok(()) => guard.detach().await.map(drop)?,
        Err(failed) => {
            guard.release().await;
            return Err(failed);
        }
    }
    Ok(Slot::Done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::from_env().await?;
    let period = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() / PERIOD.as_secs();
    let job = async {
        println!("writing the report");
        Ok(())
    };
    println!("this machine: {:?}", once(&client, period, job).await?);
    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
