//! Several replicas of a service start at once: one migrates the database, the others wait and see
//! that it was done.
//!
//! ```sh
//! cargo run -p holdline --example migrate_once --features postgres -- postgres://user@host/database
//! ```
//!
//! The lock keeps two replicas from migrating at once. A row in the database, not the lock, records
//! that the migration was done: the next holder looks there first. Row, migration and the fence's
//! mark are one transaction. So a replica that wakes up after its lease has expired is refused. One
//! that dies in the middle leaves nothing, and the next one migrates.

use std::time::Duration;

use holdline::fence::{PostgresFence, Proof};
use holdline::{Client, LockOptions};
use tokio_postgres::{NoTls, Transaction};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The version that this program needs.
const VERSION: i32 = 1;

/// What became of it here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Migrated {
    /// By this replica.
    Here,
    /// By another one, before.
    Elsewhere,
}

/// Sees to it that the database is of [`VERSION`], by whichever replica comes first.
pub(crate) async fn migrate_once(url: &str) -> Result<Migrated, Failure> {
    let (mut db, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    PostgresFence::create_table(&db).await?;

    let client = Client::connect(url).await?;
    let patience = LockOptions::default().with_wait(Duration::from_secs(600));
    let guard = client.mutex_with("migration", &patience)?.lock().await?;
    let proof = Proof::exclusive_of(&guard)?;
    let fence = PostgresFence::new("migration");
    let migrated = fence.check_and_write(&mut db, &proof, migrate).await?;
    guard.release().await.into_result()?;
    client.shutdown(Duration::from_secs(5)).await;
    Ok(migrated)
}

/// Migrates unless that was done. In PostgreSQL tables too are made or not with their transaction.
async fn migrate(step: &Transaction<'_>) -> Result<Migrated, Failure> {
    step.batch_execute("CREATE TABLE IF NOT EXISTS versions(version INTEGER PRIMARY KEY)").await?;
    let found = step.query_one("SELECT max(version) FROM versions", &[]).await?;
    if found.get::<_, Option<i32>>(0).is_some_and(|version| version >= VERSION) {
        return Ok(Migrated::Elsewhere);
    }
    step.batch_execute("CREATE TABLE orders(id BIGSERIAL PRIMARY KEY, apples INTEGER)").await?;
    step.execute("INSERT INTO versions VALUES ($1)", &[&VERSION]).await?;
    Ok(Migrated::Here)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "the tests include this file and call the rest")]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: migrate_once postgres://user@host/database")?;
    println!("migrated: {:?}", migrate_once(&url).await?);
    Ok(())
}
