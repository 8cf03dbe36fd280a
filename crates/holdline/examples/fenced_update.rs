//! A row of PostgreSQL that refuses a holder whose lease has ended.
//!
//! ```sh
//! cargo run -p holdline --example fenced_update --features postgres -- postgres://user@host/db
//! ```
//!
//! A process can be paused for longer than its lease, and write when it goes on. No lock service
//! can prevent that; the database can. Each write shows its fencing token, and the transaction
//! of the write refuses a token that is smaller than the largest one so far.

use holdline::Client;
use holdline::fence::{FenceError, PostgresFence, Proof};
use tokio_postgres::NoTls;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const STOCK: &str = "CREATE TABLE IF NOT EXISTS stock(id INTEGER PRIMARY KEY, apples INTEGER);
    INSERT INTO stock VALUES (17, 10) ON CONFLICT DO NOTHING";

/// Takes one apple, or nothing if a later holder was here. Returns how many are left.
pub(crate) async fn take_apple(
    db: &mut tokio_postgres::Client,
    proof: &Proof,
) -> Result<i32, FenceError> {
    let taken = "UPDATE stock SET apples = apples - 1 WHERE id = 17 RETURNING apples";
    let fence = PostgresFence::new("stock/17");
    fence
        .check_and_write(db, proof, async |step| step.query_one(taken, &[]).await?.try_get(0))
        .await
}

/// Two holders, one after the other. The first one writes after its lease has ended: what it
/// receives is returned, with the number of apples that the second one left.
pub(crate) async fn demonstrate(url: &str) -> Result<(i32, Result<i32, FenceError>), Failure> {
    let (mut db, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    db.batch_execute(STOCK).await?;
    PostgresFence::create_table(&db).await?;
    let client = Client::connect(url).await?;
    let mutex = client.mutex("stock/17")?;

    let first = mutex.lock().await?;
    let late = Proof::exclusive_of(&first)?;
    let _ = first.release().await; // stands for a pause that is longer than the lease

    let second = mutex.lock().await?;
    let left = take_apple(&mut db, &Proof::exclusive_of(&second)?).await?;
    let refused = take_apple(&mut db, &late).await;
    second.release().await.into_result()?;
    Ok((left, refused))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: fenced_update postgres://user@host/db")?;
    let (left, late) = demonstrate(&url).await?;
    println!("the second holder left {left} apples; the late one received: {late:?}");
    Ok(())
}
