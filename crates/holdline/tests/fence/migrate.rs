//! The example `migrate_once`, by replicas that are processes of their own.

use std::process::{Child, Command, Stdio};

use crate::support::{client, database};

#[path = "../../examples/migrate_once.rs"]
mod example;

const URL: &str = "HOLDLINE_TEST_MIGRATE";

/// A replica; does nothing when run by itself.
#[tokio::test]
async fn one_replica() {
    let Ok(url) = std::env::var(URL) else { return };
    let migrated = example::migrate_once(&url).await.expect("migrated, by whomever");
    // What it needs is there by now.
    let rows = client(&url).await.query("SELECT * FROM orders", &[]).await;
    assert!(rows.expect("the table is there").is_empty());
    println!("\nmigrated: {migrated:?}");
}

fn start(url: &str) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "migrate::one_replica", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

fn end(replica: Child) -> String {
    let output = replica.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("migrated: "));
    lines.next().expect("it says so").to_owned()
}

#[test]
fn of_many_replicas_one_migrates_and_the_others_see_it_done() {
    let server = database();
    server.sql("DROP TABLE holdline_fence");
    let replicas: Vec<Child> = (0..5).map(|_| start(&server.url())).collect();
    let mut outcomes: Vec<String> = replicas.into_iter().map(end).collect();
    outcomes.sort();
    assert_eq!(outcomes, ["Elsewhere", "Elsewhere", "Elsewhere", "Elsewhere", "Here"]);
    assert_eq!(server.sql("SELECT version FROM versions"), ["1"]);

    // A replica that starts later has nothing to do.
    assert_eq!(end(start(&server.url())), "Elsewhere");
}

/// One that dies in the middle leaves nothing behind, and the next one migrates.
#[tokio::test]
async fn what_a_dead_replica_has_begun_is_done_by_the_next() {
    let server = database();
    // Somebody looks at the table that the migration changes last, so it stands still half-way.
    server.sql("CREATE TABLE versions(version INTEGER PRIMARY KEY)");
    let mut reader = client(&server.url()).await;
    let looking = reader.transaction().await.expect("begun");
    looking.batch_execute("LOCK TABLE versions IN EXCLUSIVE MODE").await.expect("locked");
    let mut dying = start(&server.url());
    crate::support::until("the migration stands half-way", || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        server.sql(waiting) == ["1"]
    })
    .await;
    dying.kill().expect("ours");
    dying.wait().expect("killed");
    looking.rollback().await.expect("rolled back");
    let next = start(&server.url());
    let outcome = tokio::task::spawn_blocking(move || end(next)).await.expect("no panic");
    assert_eq!(outcome, "Here");
}
