//! A service of which one instance is active: the others stand by, and know where it is.
//!
//! ```sh
//! # On each machine:
//! HOLDLINE_URL=redis://locks.example ADDRESS=$(hostname):8080 cargo run -p holdline \
//!     --example leader_election --features redis
//! ```
//!
//! The leader passes its term to the resource that it changes, which rejects smaller terms: so a
//! leader that was paused for longer than its lease changes nothing when it resumes.

use std::time::Duration;

use holdline::{Client, Election, FencingToken, LockError, LockOptions};

/// A leader that dies is replaced within this time.
const LEASE: Duration = Duration::from_secs(10);

/// Describes the election. Every instance must use the same name on the same store.
pub(crate) fn election(client: &Client) -> Result<Election, LockError> {
    let options = LockOptions::default().with_lease_duration(LEASE);
    client.election_with("scheduler", &options)
}

/// Works whenever this instance leads, until the work is done.
pub(crate) async fn lead(
    election: &Election,
    address: &str,
    mut work: impl AsyncFnMut(FencingToken),
) -> Result<(), LockError> {
    loop {
        let leadership = election.campaign(address).await?;
        println!("this instance leads in term {}", leadership.term());
        // If the leadership is lost, the work is dropped before another instance can lead.
        match leadership.run(work(leadership.term())).await {
            Ok(()) => {
                return leadership.resign().await.into_result();
            }
            Err(lost) => println!("this instance stands by again: {lost}"),
        }
    }
}

/// Says who leads, whenever that changes.
pub(crate) async fn follow(
    election: &Election,
    mut seen: impl FnMut(u64, &str),
) -> Result<(), LockError> {
    let mut leaders = election.observe();
    while let Some(leader) = leaders.next().await {
        let leader = leader?;
        seen(leader.term().get(), leader.value());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let client = Client::from_env().await?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "localhost:8080".into());
    let election = election(&client)?;
    let work = async |term: FencingToken| loop {
        println!("scheduling in term {term}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let say = |term: u64, address: &str| println!("the leader of term {term} is at {address}");
    tokio::try_join!(lead(&election, &address, work), follow(&election, say))?;
    Ok(())
}
