//! At most three calls at a time to somebody's API, counted over all processes.
//!
//! ```sh
//! HOLDLINE_URL=redis://localhost cargo run -p holdline --example semaphore_pool --features redis
//! ```
//!
//! Start it several times: together they make three calls at a time. When a process dies, its
//! permits come back at the end of its leases.

use std::time::Duration;

use holdline::{Client, LockError};

/// Everybody who uses the name must say the same number.
pub(crate) const AT_MOST: u32 = 3;

/// Makes one call while it holds a permit; waits in the queue until one is free.
pub(crate) async fn call<T>(
    client: &Client,
    call: impl Future<Output = T>,
) -> Result<T, LockError> {
    let permit = client.semaphore("payments-api", AT_MOST)?.acquire().await?;
    let answer = permit.run(call).await?;
    permit.release().await.into_result()?;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let client = Client::from_env().await?;
    let one = async |number: u32| {
        let work = async {
            println!("call {number} begins");
            tokio::time::sleep(Duration::from_secs(1)).await;
            println!("call {number} has ended");
        };
        call(&client, work).await
    };
    let calls = (1..=9).map(one);
    futures_util::future::try_join_all(calls).await?;
    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
